"""Guards: what goes wrong silently while a model is trained is said in one line each, with a number and a way out.

They look a few times an epoch at a few examples, besides the steps and without changing them: a run with guards ends
with the same bits as one without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stillery.recipe import Clock
from stillery.train.guard_measures import Measured, few_of, measured
from stillery.train.microbatches import Part
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.step import Step
from stillery.train.validation import Scores

__all__ = ["Advice", "Guards", "Plain", "Warned"]

EXAMPLES = 16
"""Examples that are looked at: fewer say too little about a rank."""

AN_EPOCH = 4
"""Looks in an epoch."""

APART = {"cpu": 50, "cuda": 100, "graph": 800}
"""Steps from one look to the next at least, so that looks cost no more than one step in fifty or so. On a GPU one takes
as long as a whole step, and as long as many that are replayed."""

SHARE = 0.95
"""Terms with more of the gradient than this, an epoch long, leave the others nothing to say."""

RANK = 0.05
"""What is left of the directions of projected states besides the first, where they are lost. The two trained maps of
RAIL-KD's literal reading keep 0.005 to 0.035 after an epoch, those of its default 0.2 to 0.7."""

LEAST_SPREAD = 0.05
"""States that hardly have a second direction cannot lose it."""

EXPECTED = 0.9
"""Where so many examples should be given one answer, giving it to all of them is no failure yet."""


_PREDICTIONS = ("hard", "soft")


class Advice(Protocol):
    """What to change, in words that end a line; stages are counted from 0."""

    def weight(self, stage: int, term: str, now: float) -> str:
        """When a term weighs too much."""

    def projection(self, stage: int, match: str, now: float) -> str:
        """When the projections of a match lose what they project; `now` is what the match weighs."""

    def one_answer(self) -> str:
        """When the model gives every example one answer."""


class Plain:
    """Advice where nothing is known about where a recipe comes from."""

    def weight(self, stage: int, term: str, now: float) -> str:
        """Its weight."""
        return f"lower its weight in the recipe (now {now:.3g})"

    def projection(self, stage: int, match: str, now: float) -> str:
        """The maps."""
        return f"train the map of one side only, or lower the weight of {match} in the recipe (now {now:.3g})"

    def one_answer(self) -> str:
        """The learning rate."""
        return "try a lower learning rate, more steps or another seed"


@dataclass(frozen=True, kw_only=True)
class Warned:
    """What a guard found: the line that is said, and its numbers."""

    guard: str
    stage: str
    about: str
    epoch: int
    step: int
    numbers: dict[str, Any]
    line: str

    @property
    def key(self) -> tuple[str, ...]:
        """What is said only once in a run."""
        return self.guard, self.stage, self.about

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "guard": self.guard, "stage": self.stage, "about": self.about, "epoch": self.epoch, "step": self.step,
            **self.numbers, "message": self.line,
        }  # fmt: skip


class Guards:
    """The guards of a stage; `before` are the records of what was said already, in a run that goes on too."""

    def __init__(
        self,
        step: Step,
        stage: int,
        *,
        length: int,
        per_epoch: int,
        graphs: bool,
        advice: Advice,
        before: Iterable[dict[str, Any]] = (),
    ) -> None:
        self.step, self.stage, self.advice = step, stage, advice
        self.per_epoch = per_epoch
        span = min(per_epoch, length)
        kind = "graph" if graphs else step.accelerator.device.type
        self.every = max(math.ceil(span / AN_EPOCH), APART.get(kind, APART["cuda"]))
        # So many looks in a row span an epoch, and one alone is no proof.
        self.needed = max(math.ceil(span / self.every), 2)
        self.said: set[tuple[str, ...]] = {(one["guard"], one["stage"], one["about"]) for one in before}
        self._heavy: dict[tuple[str, ...], list[float]] = {}
        self._best: dict[tuple[str, int, str], float] = {}
        self._lost: dict[tuple[str, int, str], int] = {}
        recipe = step.objective.stages[stage]
        self.name = recipe.name
        self.projects = any(name.startswith(f"{stage}.") for name, _ in step.objective.projections.named_parameters())
        terms = bool(recipe.hard_weight) + (recipe.prediction is not None) + len(recipe.matches)
        self.predicts = bool(recipe.hard_weight) or recipe.prediction is not None
        self.looks = self.projects or (self.predicts and terms > 1)

    def due(self, clock: Clock) -> bool:
        """Whether to look before this step: projections are looked at before the first one too."""
        return self.looks and ((clock.stage_step + 1) % self.every == 0 or (self.projects and not clock.stage_step))

    def look(self, part: Part, clock: Clock) -> list[Warned]:
        """Look at a micro-batch of a step that is yet to be taken."""
        step = self.step
        few = few_of(part, EXAMPLES).to(step.accelerator.device)
        step.module.eval()
        try:
            # Every step seeds what it draws; this look takes nothing away from it.
            seed_generators(step_seed(clock.seed, clock.step, 0, step.accelerator.process_index), few.places.device)
            found = measured(step, few, clock)
        finally:
            step.module.train()
        return self._new([*self._shares(found, clock), *self._ranks(found, clock)])

    def scored(self, metrics: object, clock: Clock, *, lr: float) -> list[Warned]:
        """Look at what the dev part's score says, after a step; before an epoch is over it says nothing yet."""
        one = metrics.one_answer if isinstance(metrics, Scores) else None
        if one is None or not self.predicts or clock.stage_step + 1 < min(self.per_epoch, clock.stage_steps):
            return []
        if one.expected is not None and one.expected >= EXPECTED:
            return []
        epochs = (clock.stage_step + 1) / self.per_epoch
        expected = "" if one.expected is None else f", which {one.expected:.1%} should get"
        after = f"{epochs:.3g} epoch{'' if epochs == 1 else 's'}"
        line = (
            f"after {after} every one of {one.examples} dev examples gets {one.answer}{expected}: "
            f"{self.advice.one_answer()}"
        )
        numbers = {"answer": one.answer, "examples": one.examples, "expected": one.expected, "lr": lr}
        return self._new([self._warned("one answer", "model", clock, numbers, line)])

    def _shares(self, found: Measured, clock: Clock) -> Iterable[Warned]:
        """Terms with all the gradient, each by itself, or those of layers together: a weight may be that of several."""
        layers = sorted(name for name in found.shares if name not in _PREDICTIONS)
        groups: dict[tuple[str, ...], float] = {(name,): share for name, share in found.shares.items()}
        if len(layers) > 1 and not any(share > SHARE for share in found.shares.values()):
            groups[tuple(layers)] = sum(found.shares[name] for name in layers)
        self._heavy = {names: [*self._heavy.get(names, []), share] for names, share in groups.items() if share > SHARE}
        for names, shares in self._heavy.items():
            if len(shares) >= self.needed:
                mean = sum(shares) / len(shares)
                heaviest = max(names, key=found.shares.__getitem__)
                weight, about = found.weights[heaviest], " + ".join(names)
                take = f"term {about} takes" if len(names) == 1 else f"terms {about} take"
                yield self._warned(
                    "gradient share", about, clock, {"share": mean, "shares": shares, "weight": weight},
                    f"{take} {mean:.1%} of the gradient in epoch {clock.epoch + 1}: "
                    f"{self.advice.weight(self.stage, heaviest, weight)}",
                )  # fmt: skip

    def _ranks(self, found: Measured, clock: Clock) -> Iterable[Warned]:
        for one in found.projections:
            key = (one.match, one.pair, one.side)
            # A teacher's side that is trained too may follow the student's to one direction, and the student's states
            # with it. Where it stays, a student that begins with the mean of its target has lost nothing.
            best = max(one.before, self._best.get(key, 1.0)) if one.moves else one.before
            self._best[key] = max(one.after, self._best.get(key, 1.0))
            # What the teacher does not tell apart is no loss.
            full = min(one.teacher, best)
            lost = full - 1 >= LEAST_SPREAD and one.after - 1 < RANK * (full - 1)
            self._lost[key] = self._lost.get(key, 0) + 1 if lost else 0
            if self._lost[key] >= 2:
                weight = found.weights[one.match]
                yield self._warned(
                    "projection rank", one.match, clock,
                    {"pair": one.pair + 1, "side": one.side, "rank": one.after, "full_rank": full, "weight": weight},
                    f"the projection of {one.match} turns the {one.side}'s states to nearly one direction (effective "
                    f"rank {one.after:.3f} of {full:.2f} in epoch {clock.epoch + 1}): "
                    f"{self.advice.projection(self.stage, one.match, weight)}",
                )  # fmt: skip

    def _warned(self, guard: str, about: str, clock: Clock, numbers: dict[str, Any], line: str) -> Warned:
        return Warned(
            guard=guard, stage=self.name, about=about, epoch=clock.epoch + 1, step=clock.step + 1, numbers=numbers,
            line=f"warning: {line}",
        )  # fmt: skip

    def _new(self, found: Sequence[Warned]) -> list[Warned]:
        """Those that have not been said."""
        new = []
        for one in found:
            if one.key not in self.said:
                self.said.add(one.key)
                new.append(one)
        return new
