"""Student and teacher scored on examples that the student was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from stillery.data.schema.subsets import draw_samples
from stillery.errors import UserError
from stillery.evaluation.inference_mode import to_device
from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill, Finetune
from stillery.jobs.diagnosis.levels import Apart
from stillery.jobs.distill import prepare_distill
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.kinds.base import Reader
from stillery.jobs.prepared import Prepared
from stillery.models.load_model import Loaded
from stillery.models.model_folder import model_in
from stillery.progress import worded
from stillery.train.trainable import TextData, Trainable, TrainingData, WordData

__all__ = ["Examined", "examine", "prepare"]

EXAMPLES = 512
"""The most training examples that models are scored on."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was measured on the training split of a run.

    Attributes:
        of: the number of its examples.
        truncated: how many of them are truncated.
        unknown: the share of their tokens that the student's tokenizer does not know.
        examples: the number of examples that models were scored on; 0 where they were not.
        why_not: why they were not.
        student: the student's score on them.
        teacher: its teacher's.
        behind: the student's minus the teacher's.
        teacher_interval: the teacher's 95% interval.
    """

    of: int
    truncated: int
    unknown: float
    examples: int = 0
    why_not: str = ""
    student: float | None = None
    teacher: float | None = None
    behind: Apart | None = None
    teacher_interval: tuple[float, float] | None = None


def prepare(folder: Path, run: Distill | Finetune, changes: Mapping[str, Any] | None = None) -> Prepared:
    """Prepare the run of a folder again, with its data and models; its messages were said when it ran."""
    if isinstance(run, Distill) and run.method.recipe is not None:
        raise UserError("the run has a recipe of its own, whose code is not run here")
    with worded(lambda line: None):
        if isinstance(run, Distill):
            return prepare_distill(ask(Distill, dict(changes or {}), folder / "run.toml"))
        return prepare_finetune(ask(Finetune, dict(changes or {}), folder / "run.toml"))


def examine(folder: Path, run: Distill | Finetune, metric: str) -> Examined | str:
    """Score the models of a run on training examples; return why not, where its data or models are not here."""
    try:
        prepared = prepare(folder, run)
        place = str(model_in(folder) or folder)
        student = prepared.kind.load(place)
    except UserError as error:
        return error.lines[0]
    train = prepared.read.splits.train
    with worded(lambda line: None):
        tokens = prepared.encoding.data(train, prepared.tokenizer, "train")
    facts = Examined(of=len(train), truncated=_truncated(tokens), unknown=_unknown(tokens, prepared.tokenizer))
    if isinstance(tokens, TextData):
        return replace(facts, why_not="training texts are not generated again, which would take too long")
    return _scored(prepared, student, facts, metric)


def _scored(prepared: Prepared, student: Loaded, facts: Examined, metric: str) -> Examined:
    kind, train = prepared.kind, prepared.read.splits.train
    few = train.take(draw_samples(len(train), min(EXAMPLES, len(train))))
    scored = kind.to_select(prepared.read, few, "train")
    if scored.gold is None:
        return replace(facts, why_not="the training split has no labels")
    models = [(student, prepared.encoding)]
    if prepared.teacher is not None:
        models.append((prepared.teacher, prepared.teacher_encoding or prepared.encoding))
    answers = []
    for loaded, encoding in models:
        to_device(loaded.model)
        reader = Reader(loaded=loaded, encoding=encoding, batch_size=64, description="training examples")
        with worded(lambda line: None):
            answers.append(kind.answers(reader, scored, None))
        loaded.model.cpu()
    ours = kind.evaluation(scored, answers[0], answers[1] if len(answers) > 1 else None)
    if metric not in ours["metrics"]:
        return replace(facts, why_not=f"{metric} is not computed on training examples")
    held = ours.get("difference", {})
    found = replace(
        facts, examples=len(few), student=ours["metrics"][metric],
        teacher=ours.get("teacher_metrics", {}).get(metric),
        behind=Apart(held["value"], *held["interval"]) if held.get("metric") == metric else None,
    )  # fmt: skip
    if len(answers) < 2:
        return found
    theirs = kind.evaluation(scored, answers[1], None)["intervals"].get(metric)
    return found if theirs is None else replace(found, teacher_interval=(theirs[0], theirs[1]))


def _truncated(tokens: Trainable) -> int:
    """Return how many examples of a split were truncated."""
    if isinstance(tokens, TrainingData):
        return tokens.tokens.truncated
    if isinstance(tokens, WordData):
        return tokens.words.tokens.truncated
    assert isinstance(tokens, TextData)
    return max(tokens.tokens.cut_sources, tokens.tokens.cut_targets)


def _unknown(tokens: Trainable, tokenizer: PreTrainedTokenizerBase) -> float:
    """Return the share of a split's tokens that stand for unknown words; special tokens are not counted."""
    flat: NDArray[Any]
    if isinstance(tokens, TrainingData):
        flat = tokens.tokens.flat
    elif isinstance(tokens, WordData):
        flat = tokens.words.tokens.flat
    else:
        return 0.0
    unknown = tokenizer.unk_token_id
    if unknown is None:
        return 0.0
    special = [number for number in tokenizer.all_special_ids if number != unknown]
    words = flat[~np.isin(flat, special)]
    return float((words == unknown).mean()) if len(words) else 0.0
