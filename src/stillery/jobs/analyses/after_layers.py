"""The hidden-state stage of finished runs: its texts, a probe of the student after it, the losses that follow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillery.analyse.probe import features, linear_probe
from stillery.analyse.states import stack_named
from stillery.errors import UserError
from stillery.jobs.analyses.finished_runs import FinishedRun
from stillery.jobs.analyses.settings import SupplementarySettings
from stillery.jobs.analyses.snapshots import read_snapshots, weights_at
from stillery.jobs.analyses.subjects import Inputs, labelled, read_examples
from stillery.jobs.calibration import spread
from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill
from stillery.jobs.kinds.find import kind_of_model
from stillery.models.load_model import load_tokenizer, read_config
from stillery.train.log import read_events

__all__ = ["OWN", "LastStage", "Texts", "last_stage", "probe_after", "source_of", "texts_of"]

OWN = "the task's own"
_READ = 1000


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts of a hidden-state stage: how many, and their mean number of tokens."""

    size: int
    length: float


@dataclass(frozen=True, kw_only=True)
class LastStage:
    """The last stage of a run: how many steps came before it, 0 without a stage of layers, and its logged losses."""

    begins: int
    losses: list[tuple[int, float]]


def source_of(run: FinishedRun) -> str:
    """Return the texts of a run's hidden-state stage: a named task, a file, or the task's own."""
    task, data = run.values.get("ild_task"), run.values.get("ild_data")
    return str(task) if task else (Path(str(data)).name if data else OWN)


def texts_of(run: FinishedRun) -> Texts | None:
    """Count the texts of a run's hidden-state stage and their tokens; None where the data is not there any more."""
    try:
        settings = ask(Distill, {}, run.folder / "run.toml").run.texts
        if settings is None:
            return None
        kind, place = kind_of_model(str(run.folder)), str(run.folder)
        examples = kind.read_texts(settings)
        tokenizer = load_tokenizer(place)
        encoding = kind.encoding(settings, [read_config(place)], tokenizer)
        few = encoding.data(examples.take(spread(len(examples), _READ)), tokenizer, "supplementary")
    except UserError:
        return None
    return Texts(size=len(examples), length=float(np.mean(few.lengths)))


def last_stage(folder: Path) -> LastStage:
    """Read the losses of a run's last stage from its log, by step since the stage began."""
    try:
        events, _ = read_events(folder / "log.jsonl")
    except OSError:
        return LastStage(begins=0, losses=[])
    found = [(event["stage"], event["step"], event["loss"]) for event in events if event["event"] == "train"]
    last = [(step, loss) for stage, step, loss in found if stage == found[-1][0]]
    # The first step of a stage is always logged.
    begins = last[0][0] - 1 if last else 0
    return LastStage(begins=begins, losses=[(step - begins, loss) for step, loss in last])


def probe_after(run: FinishedRun, begins: int, own: SupplementarySettings) -> float | None:
    """Return the score of a linear probe of the task on the student as the hidden-state stage left it, in percent.

    None without a snapshot from there, and where the model predicts no class or score of a text.
    """
    file = read_snapshots(str(run.folder)).get(begins) if begins else None
    if file is None:
        return None
    try:
        subject = labelled(str(run.folder), {})
        train, dev = (read_examples(subject, own, labels=True, split=split) for split in ("train", own.split))
    except UserError:
        return None
    if train.outputs not in ("classes", "score"):
        return None
    model = subject.model
    with torch.no_grad():
        model.load_state_dict(weights_at(file, dict(model.state_dict())), strict=False)
    stack = stack_named(None, model)

    def last_layer(inputs: Inputs) -> Any:
        name = f"after layers {run.folder.name}"
        return features(model, inputs.batches(), stack=stack, pool=own.pool, total=len(inputs), name=name)[-1]

    _, score = linear_probe(
        last_layer(train), np.asarray(train.examples.labels), last_layer(dev), np.asarray(dev.examples.labels)
    )
    return score
