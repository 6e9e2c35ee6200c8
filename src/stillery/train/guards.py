"""Guards: one-line warnings of silent training failures, each with a measurement and a remedy.

They check a few examples a few times an epoch, without affecting the steps: a run with guards is bit-identical to one
without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stillery.recipe import Clock
from stillery.train.explosion import Explosion, LossWatch
from stillery.train.guard_measures import Measures, ProjectionRanks, few_of, measure, with_layers
from stillery.train.microbatches import MicroBatch
from stillery.train.seeds import seed_generators, step_seed
from stillery.train.stage_clocks import StageSpan
from stillery.train.step import Step
from stillery.train.step_plan import StepPlan
from stillery.train.validation import Scores

__all__ = ["ONE_ANSWER", "SHARE", "Advice", "GuardWarning", "Guards", "PlainAdvice", "lost_rank"]

ONE_ANSWER = "one answer"
"""Name of the guard against constant predictions on the dev split."""

EXAMPLES = 16
"""Examples of a check; with fewer, the estimate of a rank is too noisy."""

CHECKS_PER_EPOCH = 4

STEPS_BETWEEN = {"cpu": 50, "cuda": 100, "graph": 800}
"""Minimum number of steps between checks, so that checks cost at most about one step in fifty. On a GPU a check takes
as long as a whole step, and as long as many replayed ones."""

SHARE = 0.95
"""Share of the gradient above which, for an epoch, a term dominates the others."""

RANK = 0.05
"""Least share of the directions besides the first that projected states must keep. The two trained maps of RAIL-KD's
literal reading keep 0.005 to 0.035 after an epoch, those of its default 0.2 to 0.7."""

LEAST_SPREAD = 0.05
"""Least excess over rank 1 of states that can lose a direction."""

EXPECTED = 0.9
"""Share of the majority answer in the labels from which constant predictions are not reported."""


class Advice(Protocol):
    """Remedies that end a warning; stages are counted from 0."""

    def weight(self, stage: int, term: str, now: float) -> str:
        """The remedy for a term that dominates the gradient; `now` is its weight."""

    def projection(self, stage: int, match: str, now: float) -> str:
        """The remedy for projections of a match that lose rank; `now` is the match's weight."""

    def one_answer(self) -> str:
        """The remedy for constant predictions."""

    def explosion(self, lr: float) -> str:
        """The remedy for a loss that explodes."""


class PlainAdvice:
    """Advice that refers to no options, for a recipe whose settings are unknown."""

    def weight(self, stage: int, term: str, now: float) -> str:
        """Lower the weight."""
        return f"lower its weight in the recipe (now {now:.3g})"

    def projection(self, stage: int, match: str, now: float) -> str:
        """Change the projection."""
        return f"train the map of one side only, or lower the weight of {match} in the recipe (now {now:.3g})"

    def one_answer(self) -> str:
        """Change the training."""
        return "try a lower learning rate, more steps or another seed"

    def explosion(self, lr: float) -> str:
        """Lower the learning rate."""
        return f"lower the learning rate (now {lr:g})"


@dataclass(frozen=True, kw_only=True)
class GuardWarning:
    """A guard's warning: its message and its measurements."""

    guard: str
    stage: str
    about: str
    epoch: int
    step: int
    numbers: dict[str, Any]
    line: str

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of a warning; a run gets each only once."""
        return self.guard, self.stage, self.about

    def record(self) -> dict[str, Any]:
        """The warning as plain data."""
        return {
            "guard": self.guard, "stage": self.stage, "about": self.about, "epoch": self.epoch, "step": self.step,
            **self.numbers, "message": self.line,
        }  # fmt: skip


def lost_rank(one: ProjectionRanks, best: float) -> tuple[float, bool]:
    """The rank that projected states can have, and whether they have lost nearly all of it.

    `best` is the highest rank that this projection's outputs have had so far.
    """
    # A trained teacher map may collapse together with the student's, and with it the student's states. Where it is not
    # trained, a student that begins at the mean of its target has lost nothing.
    held = max(one.before, best) if one.trained else one.before
    # A direction that the teacher does not have is no loss.
    full = min(one.teacher, held)
    return full, full - 1 >= LEAST_SPREAD and one.after - 1 < RANK * (full - 1)


class Guards:
    """The guards of a stage; `before` are the records of the run's earlier warnings, across resumes."""

    def __init__(
        self,
        step: Step,
        span: StageSpan,
        *,
        graphs: bool,
        advice: Advice,
        before: Iterable[dict[str, Any]] = (),
    ) -> None:
        self.step, self.stage, self.advice = step, span.stage, advice
        self.per_epoch = span.per_epoch
        epoch = min(span.per_epoch, span.length)
        kind = "graph" if graphs else step.accelerator.device.type
        self.every = max(math.ceil(epoch / CHECKS_PER_EPOCH), STEPS_BETWEEN.get(kind, STEPS_BETWEEN["cuda"]))
        # Number of consecutive checks that span an epoch; a single one proves nothing.
        self.needed = max(math.ceil(epoch / self.every), 2)
        self.warned: set[tuple[str, ...]] = {(one["guard"], one["stage"], one["about"]) for one in before}
        self.measured: Measures | None = None
        self._heavy: dict[tuple[str, ...], list[float]] = {}
        self._best: dict[tuple[str, int, str], float] = {}
        self._lost: dict[tuple[str, int, str], int] = {}
        recipe = step.objective.stages[self.stage]
        self.name = recipe.name
        self.projects = any(
            name.startswith(f"{self.stage}.") for name, _ in step.objective.projections.named_parameters()
        )
        terms = bool(recipe.hard_weight) + (recipe.prediction is not None) + len(recipe.matches)
        self.predicts = bool(recipe.hard_weight) or recipe.prediction is not None
        predictions = [*(["hard"] if recipe.hard_weight else []), *(["soft"] if recipe.prediction is not None else [])]
        self.watch = LossWatch(
            start=span.start, window=span.window, per_epoch=span.per_epoch, terms=predictions,
            squared=step.objective.kind == "score",
        )  # fmt: skip
        self.checks = self.projects or (self.predicts and terms > 1)

    def due(self, clock: Clock) -> bool:
        """Return whether a check is due before this step.

        It is at equal distances, before a stage's last step, and before the first one where there are projections.
        """
        last = clock.stage_step + 1 == clock.stage_steps
        return self.checks and (last or self._in_turn(clock))

    def _in_turn(self, clock: Clock) -> bool:
        return (clock.stage_step + 1) % self.every == 0 or (self.projects and not clock.stage_step)

    def check(self, plan: StepPlan, micro_batch: MicroBatch) -> list[GuardWarning]:
        """Check gradients and projections on a micro-batch of the upcoming step; `measured` has what was found.

        What a stage ends with is measured for the log. Warnings come from checks at equal distances only.
        """
        step, clock = self.step, plan.clock
        few = few_of(micro_batch, EXAMPLES).to(step.accelerator.device)
        step.module.eval()
        try:
            # Every step seeds its own generators, so this check does not affect it.
            seed_generators(step_seed(clock.seed, clock.step, 0, step.accelerator.process_index), few.places.device)
            found = measure(step, plan, few)
        finally:
            step.module.train()
        self.measured = found
        if not self._in_turn(clock):
            return []
        return self._new([*self._shares(found, clock), *self._ranks(found, clock)])

    def check_score(self, metrics: object, clock: Clock, *, lr: float) -> list[GuardWarning]:
        """Check the dev split's predictions after a step, from the end of the first epoch on."""
        one = metrics.one_answer if isinstance(metrics, Scores) else None
        if one is None or not self.predicts or clock.stage_step + 1 < min(self.per_epoch, clock.stage_steps):
            return []
        if one.expected is not None and one.expected >= EXPECTED:
            return []
        expected = "" if one.expected is None else f", which {one.expected:.1%} should get"
        after = self._after(clock.stage_step + 1)
        line = (
            f"after {after} every one of {one.examples} dev examples gets {one.answer}{expected}: "
            f"{self.advice.one_answer()}"
        )
        numbers = {"answer": one.answer, "examples": one.examples, "expected": one.expected, "lr": lr}
        return self._new([self._warning(ONE_ANSWER, "model", clock, numbers, line)])

    def _after(self, steps: int) -> str:
        """The training length of a stage in words: in epochs, or in steps within the first one."""
        if steps < self.per_epoch:
            return "the one step of this stage" if steps == 1 else f"the {steps} steps of this stage"
        epochs = steps / self.per_epoch
        return f"{epochs:.3g} epoch{'' if epochs == 1 else 's'}"

    def check_losses(self, steps: Iterable[tuple[int, Mapping[str, float]]], lr: float) -> list[GuardWarning]:
        """Check the losses of completed steps, which cover this process's share of their examples."""
        share = 1 / self.step.accelerator.num_processes
        found = [
            self.watch.see(step, {name: value / share for name, value in losses.items()}) for step, losses in steps
        ]
        exploded = [one for one in found if one is not None][:1]
        return self._new([self._explosion(one, lr) for one in exploded])

    def _explosion(self, one: Explosion, lr: float) -> GuardWarning:
        numbers = {"start": one.start, "loss": one.now, "lr": lr}
        line = (
            f"warning: {self.advice.explosion(lr)} and train again: the loss has exploded, from {one.start:.3g} at the "
            f"start of {self.name} to {one.now:.3g} around step {one.step}"
        )
        return GuardWarning(
            guard="explosion", stage=self.name, about=one.term or "layers", step=one.step,
            epoch=(one.step - 1 - self.watch.start) // self.per_epoch + 1, numbers=numbers, line=line,
        )  # fmt: skip

    def _shares(self, found: Measures, clock: Clock) -> Iterable[GuardWarning]:
        """Warn of terms that dominate the gradient: a single one, or all layer terms, which may share a weight."""
        groups = with_layers(found.shares, SHARE)
        self._heavy = {names: [*self._heavy.get(names, []), share] for names, share in groups.items() if share > SHARE}
        for names, shares in self._heavy.items():
            if len(shares) >= self.needed:
                mean = sum(shares) / len(shares)
                heaviest = max(names, key=found.shares.__getitem__)
                weight, about = found.weights[heaviest], " + ".join(names)
                take = f"term {about} takes" if len(names) == 1 else f"terms {about} take"
                yield self._warning(
                    "gradient share", about, clock, {"share": mean, "shares": shares, "weight": weight},
                    f"{take} {mean:.1%} of the gradient in epoch {clock.epoch + 1}: "
                    f"{self.advice.weight(self.stage, heaviest, weight)}",
                )  # fmt: skip

    def _ranks(self, found: Measures, clock: Clock) -> Iterable[GuardWarning]:
        """Warn of projections that lose rank."""
        for one in found.projections:
            key = (one.match, one.pair, one.side)
            full, lost = lost_rank(one, self._best.get(key, 1.0))
            self._best[key] = max(one.after, self._best.get(key, 1.0))
            self._lost[key] = self._lost.get(key, 0) + 1 if lost else 0
            if self._lost[key] >= 2:
                weight = found.weights[one.match]
                yield self._warning(
                    "projection rank", one.match, clock,
                    {"pair": one.pair + 1, "side": one.side, "rank": one.after, "full_rank": full, "weight": weight},
                    f"the projection of {one.match} turns the {one.side}'s states to nearly one direction (effective "
                    f"rank {one.after:.3f} of {full:.2f} in epoch {clock.epoch + 1}): "
                    f"{self.advice.projection(self.stage, one.match, weight)}",
                )  # fmt: skip

    def _warning(self, guard: str, about: str, clock: Clock, numbers: dict[str, Any], line: str) -> GuardWarning:
        return GuardWarning(
            guard=guard, stage=self.name, about=about, epoch=clock.epoch + 1, step=clock.step + 1, numbers=numbers,
            line=f"warning: {line}",
        )  # fmt: skip

    def _new(self, found: Sequence[GuardWarning]) -> list[GuardWarning]:
        """The warnings that are new in this run."""
        new = []
        for one in found:
            if one.key not in self.warned:
                self.warned.add(one.key)
                new.append(one)
        return new
