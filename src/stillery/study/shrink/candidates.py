"""The students of a search as cells of a study: every shape from every start, with its trainings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.jobs.config.settings import Asked, Finetune
from stillery.study.cells import PlannedCell
from stillery.study.contents import address
from stillery.study.shrink.choice import Sized
from stillery.study.shrink.measure import Basis, Cost
from stillery.study.shrink.request import Request

__all__ = ["SHORT", "Candidate", "candidates", "short_steps", "teacher_cell", "terms"]

SHORT = 4
"""A short training has one step in so many."""

_FEW = 3
"""So many students are all trained in full where the best one is sought."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A student that a search may train.

    Attributes:
        sized: its name, shape and cost, by which students are put in order.
        cost: all that was measured of its shape.
        init: its start, in words.
        full: its training.
        short: a training with a quarter of the steps; None where every student is trained in full.
    """

    sized: Sized
    cost: Cost
    init: str
    full: PlannedCell
    short: PlannedCell | None = None

    @property
    def name(self) -> str:
        """What it is, such as `3 layers x 384, first`."""
        return self.sized.name


def candidates(request: Request, teacher: str, basis: Basis, costs: Sequence[Cost]) -> list[Candidate]:
    """The students to choose from: those that cost no more than is allowed, each shape from every start."""
    inits: Sequence[str | None] = request.inits or (None,)
    allowed = [cost for cost in costs if _is_allowed(request, cost)]
    steps = short_steps(basis.steps) if _has_short_round(request, allowed, len(inits)) else None
    found = []
    for cost, init in itertools.product(allowed, inits):
        shape: dict[str, Any] = {"layers": cost.layers, "width": cost.width, "init": init}
        start = init or _start(request)
        name = f"{cost.shape}, {start}"
        full = _cell(request, teacher, basis.task, shape, start)
        short = None if steps is None else _cell(request, teacher, basis.task, {**shape, "max_steps": steps}, start)
        sized = Sized(
            name=name, shape=(cost.layers, cost.width), parameters=cost.parameters, latency_ms=cost.latency_ms
        )
        found.append(Candidate(sized=sized, cost=cost, init=start, full=full, short=short))
    return sorted(found, key=lambda one: (one.sized.parameters, one.sized.latency_ms))


def short_steps(steps: int) -> int:
    """The steps of a short training."""
    return max(1, steps // SHORT)


def teacher_cell(base: Asked[Finetune]) -> PlannedCell:
    """The fine-tuning of the teacher as a cell."""
    ending = address(base.run, None)
    task = base.run.data.task or Path(str(base.run.data.data)).stem
    return PlannedCell(
        name=_named(f"{task}-teacher", ending), asked=base, task=task, row=None, seed=base.run.training.seed
    )


def terms(request: Request, teacher: str) -> str:
    """A hash of all that the students of a search have in common: data, teacher, method, training."""
    return address(request.student(teacher).run, None)


def _is_allowed(request: Request, cost: Cost) -> bool:
    few = request.max_params is None or cost.parameters <= request.max_params
    return few and (request.max_latency is None or cost.latency_ms <= request.max_latency)


def _has_short_round(request: Request, costs: Sequence[Cost], starts: int) -> bool:
    """Whether students are trained shortly first: where that can leave some out."""
    if request.every:
        return False
    if request.within is None:
        return len(costs) * starts > _FEW
    # From the smallest on, depths of one width from one start are all needed until one is within.
    return starts > 1 or len({cost.width for cost in costs}) > 1


def _start(request: Request) -> str:
    """The start of the method, in words."""
    from stillery.jobs.chosen_recipe import chosen_recipe
    from stillery.jobs.config.resolved import resolved_student

    run = request.student("?", layers=1).run
    return str(resolved_student(run.student, chosen_recipe(run.method, None)).init)


def _cell(request: Request, teacher: str, task: str, values: Mapping[str, Any], start: str) -> PlannedCell:
    asked = request.student(teacher, **values)
    asked.gathered().raise_any()
    run, short = asked.run, "-short" if "max_steps" in values else ""
    what = f"{Path(task).stem}-{values['layers']}x{values['width']}-{start}{short}-seed{run.training.seed}"
    return PlannedCell(
        name=_named(what, address(run, None)), asked=asked, task=task, row=run.method.method, seed=run.training.seed
    )


def _named(what: str, ending: str) -> str:
    readable = re.sub(r"[^\w.+-]+", "-", what).strip("-.")[:60]
    return f"{readable}-{ending}"
