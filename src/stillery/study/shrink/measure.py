"""What is measured before a search: size and speed of every shape, and the teacher's score on what chooses."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.errors import ErrorList, UserError
from stillery.evaluation.cost import flops_per_example, latencies_ms, parameters
from stillery.evaluation.inference_mode import device_of, to_device
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.settings import ConditionSettings
from stillery.jobs.distill import prepare_distill
from stillery.jobs.kinds.base import Reader, Scored
from stillery.jobs.prepared import Prepared
from stillery.models.family import sizes
from stillery.progress import quiet, say, track
from stillery.study.shrink.request import Request
from stillery.study.shrink.shapes import Shape
from stillery.train.learning_rate import run_steps

__all__ = ["DEV", "HALF", "HELD_OUT", "Basis", "Cost", "basis", "costs", "in_first_half"]

HELD_OUT, DEV, HALF = "held-out", "dev", "half of dev"
"""What chooses: a part of train that no model has learnt from; dev, where test is scored; a half of dev, where the
other half is."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a student of a shape costs to run; `speedup` is over the teacher, timed in turns with it."""

    layers: int
    width: int
    heads: int
    parameters: int
    flops: int
    latency_ms: float
    speedup: float

    @property
    def shape(self) -> str:
        """Its shape in words."""
        return f"{self.layers} {'layer' if self.layers == 1 else 'layers'} x {self.width}"


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What the students of a search are compared with.

    Attributes:
        task: the name of the task or file.
        metric: the metric that chooses.
        chooses: what it is measured on: `HELD_OUT`, `DEV` or `HALF`.
        examples: how many examples that has.
        score: the teacher's score there, in percent.
        reports: the split that is scored once, for the student that is recommended.
        steps: the optimiser steps of a training in full.
    """

    task: str
    metric: str
    chooses: str
    examples: int
    score: float
    reports: str
    steps: int


def in_first_half(ids: Sequence[object]) -> NDArray[np.bool_]:
    """Which examples choose where dev is divided in two: a half by the hash of their ids, or of their queries."""
    return np.array([hashlib.blake2b(str(one).encode(), digest_size=1).digest()[0] < 128 for one in ids])


def basis(request: Request, teacher: str, shape: Shape) -> tuple[Request, Basis]:
    """What students are compared with; the request comes back without a holdout where dev chooses.

    A teacher that has learnt from the held-out examples scores too well on them. Then dev chooses where there is a test
    split to report, and else a half of dev.
    """
    with quiet():
        prepared = _prepared(request, teacher, shape)
        chooses = HELD_OUT
        if not _has_held_out(teacher, prepared.run.condition):
            chooses = HALF if prepared.read.scored["test"].split == "dev" else DEV
        if chooses == DEV:
            request = request.without_holdout()
            prepared = _prepared(request, teacher, shape)
        scored = _chosen_by(prepared, chooses)
        metric, score = _teachers_score(prepared, scored)
    training, reports = prepared.run.training, prepared.read.scored["test"].split
    window, train = training.batch_size * training.accumulate, len(prepared.read.splits.train)
    return request, Basis(
        task=scored.task, metric=metric, chooses=chooses, examples=len(scored.examples), score=score,
        reports="the other half of dev" if chooses == HALF else str(reports),
        steps=run_steps(training.epochs, train, window, training.max_steps),
    )  # fmt: skip


def costs(
    request: Request, teacher: str, wanted: Sequence[Shape], before: Cost | None = None
) -> tuple[Cost, list[Cost]]:
    """What the teacher and each shape cost to run; `before` is the teacher's cost of an earlier measurement.

    Each shape is timed in turns with the teacher. Its latency is then the teacher's, the median over all, by the ratio
    of the two, so that what else the machine did meanwhile changes no order.
    """
    _warn_if_busy()
    errors, found, theirs = ErrorList(), list[Cost](), list[Cost]()
    for shape in track(wanted, "measure students"):
        try:
            with quiet():
                prepared = _prepared(request, teacher, shape)
                inputs = _one_by_one(prepared)
        except UserError as error:
            for line in error.lines:
                errors.add(f"student of {shape[0]} x {shape[1]}: {line}")
            continue
        assert prepared.teacher is not None
        models = prepared.model, prepared.teacher.model
        times = latencies_ms(models, [inputs, inputs])
        length = prepared.encoding.max_length
        found.append(_cost(models[0], length, times[0], times[1] / times[0]))
        theirs.append(_cost(models[1], length, times[1], 1.0))
    errors.raise_any()
    own = before or dataclasses.replace(theirs[0], latency_ms=median(one.latency_ms for one in theirs))
    return own, [dataclasses.replace(one, latency_ms=own.latency_ms / one.speedup) for one in found]


def _warn_if_busy() -> None:
    """Warn where others use the machine: what is interrupted less often then looks faster than it is."""
    load, cores = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if load > cores:
        say(f"warning: the machine is busy (load {load:.0f} on {cores} cores), so measured latencies are rough")


def _cost(model: PreTrainedModel, length: int, latency: float, speedup: float) -> Cost:
    has = sizes(model.config)
    return Cost(
        layers=has.layers, width=has.width, heads=has.heads, parameters=parameters(model),
        flops=flops_per_example(model, length), latency_ms=latency, speedup=speedup,
    )  # fmt: skip


def _prepared(request: Request, teacher: str, shape: Shape) -> Prepared:
    """A student of a shape, with everything checked and read; its weights are random, which takes no time to copy."""
    return prepare_distill(request.student(teacher, layers=shape[0], width=shape[1], init="random"))


def _has_held_out(teacher: str, condition: ConditionSettings) -> bool:
    """Whether the teacher's training held out these texts too: as large a share, by the same hash."""
    values = run_of(teacher)
    share, seed = values.get("holdout"), values.get("holdout_seed", 0)
    return isinstance(share, float) and share >= (condition.holdout or 0) and seed == condition.holdout_seed


def _chosen_by(prepared: Prepared, chooses: str) -> Scored:
    """The examples that choose."""
    scored = prepared.read.scored
    if chooses != HALF:
        return scored["dev"]
    examples = scored["test"].examples
    query = examples.get("query")
    rows = np.flatnonzero(in_first_half(examples.ids if query is None else query.to_pylist()))
    if len(rows) in (0, len(examples)):
        raise UserError(
            f"the dev split has {len(examples)} examples, too few to choose by one half and report the other; "
            "fine-tune the teacher with --holdout 0.1, or give data with a test split"
        )
    return prepared.kind.to_select(prepared.read, examples.take(rows), "dev")


def _teachers_score(prepared: Prepared, scored: Scored) -> tuple[str, float]:
    """The metric that chooses, and the teacher's score by it."""
    kind, teacher = prepared.kind, prepared.teacher
    assert teacher is not None
    to_device(teacher.model)
    size = kind.batch_size(prepared.run.training, device_of(teacher.model))
    reader = Reader(loaded=teacher, encoding=prepared.encoding, batch_size=size, description="teacher")
    found = kind.evaluation(scored, kind.answers(reader, scored, None), None)["metrics"]
    metric, score = next(iter(found.items()))
    return str(metric), float(score)


def _one_by_one(prepared: Prepared) -> list[dict[str, Any]]:
    """Examples of the split that is scored, one at a time, as the latency of every run is measured."""
    scored = prepared.read.scored
    examples = scored.get("test", scored["dev"]).examples
    few = examples.take(np.arange(min(prepared.kind.latency_examples, len(examples))))
    tokenised = prepared.encoding.data(few, prepared.tokenizer, "latency")
    return [tokenised.batch(np.array([row]), pad_to=1).inputs for row in range(len(tokenised))]
