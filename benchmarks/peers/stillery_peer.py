"""stillery: the jobs behind `stillery finetune` and `stillery distill`, as they are.

The clock is read where a run scores its dev split, which is not done, for no side does. A method of none is
`stillery finetune` of the student. Filling the teacher store belongs to the first epoch. Neither the scoring of the
finished model nor its export is run.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from job import Job, Watch, carry_out
from transformers import PreTrainedModel

from stillery.jobs.config.settings import Distill, Finetune, resolve
from stillery.jobs.distill import prepare_distill
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.finish import Result
from stillery.jobs.prepared import Data, Prepared
from stillery.jobs.run import carry_out as run
from stillery.train.loop import Outcome


def watched(prepared: Prepared, watch: Watch) -> Prepared:
    """The run, watched from the end of tokenising on, with the clock in place of the scores."""

    def scorer(prepared: Prepared, data: Data) -> Callable[[PreTrainedModel], Mapping[str, float]]:
        steps = math.ceil(len(data.train) / prepared.run.training.batch_size)
        watch.start()

        def score(model: PreTrainedModel) -> Mapping[str, float]:
            watch.epoch_ends(steps)
            return {"none": 0.0}

        return score

    return dataclasses.replace(prepared, kind=dataclasses.replace(prepared.kind, scorer=scorer))


def unscored(out: Path, prepared: Prepared, data: Data, model: PreTrainedModel, outcome: Outcome) -> Result:
    """Nothing is scored or written at the end."""
    return Result(out=out, student=out, metrics={})


def prepared_run(job: Job, out: Path) -> Prepared:
    """The run a user would ask for on the command line."""
    common = {
        "data": str(job.place / "data"), "epochs": job.epochs, "batch_size": job.batch_size, "lr": job.lr,
        "precision": job.precision, "keep": "last", "checkpoint_every": 10**9,
    }  # fmt: skip
    if job.method == "none":
        return prepare_finetune(resolve(Finetune, common | {"model": str(job.place / "student")}), out)
    layers = json.loads((job.place / "student" / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    taught = {"teacher": str(job.place / "teacher"), "method": job.method, "layers": layers, "init": "first"}
    return prepare_distill(resolve(Distill, common | taught | {"cache": job.cache}), out)


def train(job: Job) -> dict[str, Any]:
    watch = Watch(job)
    with TemporaryDirectory() as folder:
        os.environ["STILLERY_CACHE"] = str(Path(folder) / "cache")
        out = Path(folder) / "run"
        prepared = prepared_run(job, out)
        run(watched(prepared, watch), out, end=unscored)
        kept = sum(path.stat().st_size for path in (Path(folder) / "cache" / "teacher").rglob("*") if path.is_file())
        events = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
        first = next(event for event in events if event["event"] == "train")
    return watch.answer(first={"loss": first["loss"], **first["terms"]}, store_mb=kept / 1e6)


if __name__ == "__main__":
    carry_out(train)
