"""The end of a run: score the model, write model, predictions and metrics, and remove the checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from stillery.evaluation.cost import cost, megabytes, parameters
from stillery.evaluation.inference_mode import device_of
from stillery.jobs.card import Facts, card, layer_counts
from stillery.jobs.custom_metric import with_metrics
from stillery.jobs.footprint import peak_megabytes, versions
from stillery.jobs.kinds.base import Answers, Reader, Scored
from stillery.jobs.prepared import Data, Prepared
from stillery.jobs.result import Result
from stillery.jobs.run_folder import mark_finished
from stillery.jobs.warm import warm
from stillery.models.export import export
from stillery.models.load_model import Loaded
from stillery.models.projected_head import folded
from stillery.progress import say
from stillery.train.checkpoint import discard
from stillery.train.guards import ONE_ANSWER
from stillery.train.loop import Outcome
from stillery.train.trainable import Trainable

__all__ = ["Result", "finish"]


def finish(out: Path, prepared: Prepared, data: Data, model: PreTrainedModel, outcome: Outcome) -> Result:
    """Score the model on the test split, or dev without one, and write the contents of a run folder.

    The exported model is scored, counted and written: a projector in the head is folded first. `metrics.json` is
    written last and marks the run as finished.
    """
    peak = peak_megabytes(device_of(model))
    kind, teacher, model = prepared.kind, prepared.teacher, folded(model)
    scored, tokenised = data.splits.get("test", data.splits["dev"])
    as_teacher = prepared.teacher_reads(scored.examples, tokenised, scored.split or "")
    student, theirs = _both(prepared, model, scored, (tokenised, as_teacher))
    metrics = _evaluation(prepared, scored, (student, theirs)) | {"split": scored.split}
    more = {name: split for name, split in data.splits.items() if name not in ("dev", "test")}
    if more:
        metrics["also"] = {
            name: _evaluation(
                prepared, one, _both(prepared, model, one, (tokens, prepared.teacher_reads(one.examples, tokens, name)))
            )
            for name, (one, tokens) in more.items()
        }
    own = kind.finishing(prepared, data, model)
    metrics |= own.metrics
    guarded = [one for one in outcome.warnings or () if one["guard"] == ONE_ANSWER]
    if own.one_answer is not None and not guarded:
        say(f"warning: {own.one_answer}")
    model.cpu()
    start = prepared.start.record() if prepared.start else None
    splits = prepared.read.splits
    facts = Facts(
        run=prepared.run, data=f"{splits.source} ({splits.note})" if splits.note else splits.source,
        origin=prepared.origin, paper=prepared.paper, start=start, layers=layer_counts(model.config), **own.card,
    )  # fmt: skip
    export(model, prepared.tokenizer, out, card(facts, metrics | {"cost": own.cost}), own.ends)
    if teacher is not None:
        teacher.model.cpu()
    measured = _cost(prepared, model, out, (tokenised, as_teacher))
    spent = {"train_seconds": outcome.seconds, "peak_megabytes": peak}
    metrics["cost"] = measured | spent | dict(own.cost)
    metrics["versions"] = versions()
    metrics |= _training(outcome) | dict(data.record)
    samples = prepared.run.training.dev_samples
    if samples is not None and samples < len(data.splits["dev"][0].examples):
        metrics["training"]["dev_samples"] = samples
    if prepared.run.condition.holdout is not None:
        metrics["training"]["selected_on"] = data.splits["dev"][0].split
    if start is not None:
        metrics["start"] = start
    kind.write_answers(out / "predictions.parquet", scored, student, theirs)
    mark_finished(out, metrics)
    discard(out)
    return Result(out=out, student=out, metrics=metrics)


def _evaluation(prepared: Prepared, scored: Scored, answers: tuple[Answers, Answers | None]) -> dict[str, Any]:
    """Return the metrics of a split, with those of a user-defined metric."""
    found = prepared.kind.evaluation(scored, *answers)
    return with_metrics(prepared.from_python.metric, prepared.kind, scored, answers, found)


def _both(
    prepared: Prepared, model: PreTrainedModel, scored: Scored, tokenised: tuple[Any, Any]
) -> tuple[Answers, Answers | None]:
    """Return the predictions of the model and its teacher for a split, tokenised for each of them."""
    kind, encoding, split = prepared.kind, prepared.encoding, scored.split or ""
    student = Loaded(model=model, tokenizer=prepared.tokenizer, name="student", missing=frozenset())
    size = kind.batch_size(prepared.run.training, device_of(model))
    ours = kind.answers(
        Reader(loaded=student, encoding=encoding, batch_size=size, description=split), scored, tokenised[0]
    )
    if prepared.teacher is None:
        return ours, None
    described = f"{split} (teacher)"
    own = prepared.teacher_encoding or encoding
    theirs = Reader(loaded=prepared.teacher, encoding=own, batch_size=size, description=described, cached=True)
    teacher, examples = prepared.run.fingerprints.get("teacher"), scored.examples.fingerprint
    key = ("answers", teacher, examples, scored.task, repr((encoding, own)), size, device_of(model).type)
    return ours, warm(key, lambda: kind.answers(theirs, scored, tokenised[1]))


def _cost(
    prepared: Prepared, model: PreTrainedModel, folder: Path, tokenised: tuple[Trainable, Trainable]
) -> dict[str, Any]:
    """Measure the model's size and latency; in a process with many runs once per shape of model and teacher."""
    teacher = None if prepared.teacher is None else prepared.teacher.model
    length, most = prepared.encoding.max_length, prepared.kind.latency_examples

    def measured() -> dict[str, Any]:
        ours, theirs = (_one_by_one(one, most) for one in tokenised)
        return cost(model, folder, ours, length=length, train_seconds=None, teacher=teacher, teacher_inputs=theirs)

    shapes = [None if one is None else (parameters(one), _shape(one)) for one in (model, teacher)]
    return warm(("cost", *shapes, length), measured) | {"megabytes": megabytes(folder)}


def _shape(model: PreTrainedModel) -> str:
    """Return the configuration without the parts that differ between models of one shape."""
    config = model.config.to_dict()
    return str({name: value for name, value in config.items() if name not in ("_name_or_path", "id2label", "label2id")})


def _one_by_one(tokenised: Trainable, most: int) -> list[dict[str, Any]]:
    """Return a few examples as batches of one, without padding, to measure latency on."""
    return [tokenised.batch(np.array([row]), pad_to=1).inputs for row in range(min(most, len(tokenised)))]


def _training(outcome: Outcome) -> dict[str, Any]:
    """Return the record of the training for `metrics.json`."""
    found: dict[str, Any] = {
        "steps": outcome.steps, "kept_step": outcome.kept_step, "stopped_early": outcome.stopped_early,
        "dev_best": outcome.best, "dev_last": outcome.last,
    }  # fmt: skip
    if outcome.stopped_by is not None:
        found["stopped_by"] = outcome.stopped_by
    if outcome.store_choices:
        found |= {"teacher_store_seconds": outcome.store_seconds, "teacher_store": outcome.store_choices}
    warnings = {} if outcome.warnings is None else {"warnings": outcome.warnings}
    return {"training": found, **warnings}
