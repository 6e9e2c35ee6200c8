"""Advice printed with a guard's warning: the option that sets a loss term's weight, or the method's projections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stillery import methods
from stillery.errors import UserError
from stillery.jobs.config.settings import Distill, Finetune, MethodSettings
from stillery.recipe import Clock, Recipe
from stillery.train.guards import PlainAdvice

__all__ = ["RunAdvice"]

_SAFE_PROJECTIONS: Mapping[str, Any] = {"projection_start": "same", "frozen_teacher": True}
"""Options of methods whose projections can collapse all states to one direction, and the values that prevent it."""


@dataclass(frozen=True)
class RunAdvice(PlainAdvice):
    """Advice in terms of the options of a run."""

    run: Finetune | Distill

    def weight(self, stage: int, term: str, now: float) -> str:
        """Advise to lower the option that determines the weight."""
        if term == "hard":
            return f"lower --hard-weight (now {now:.3g})"
        found = None if self._method is None else _option_of(self._method, term)
        if found is None:
            return super().weight(stage, term, now)
        name, value = found
        return f"lower --option {name} (now {now if value is None else value:.3g})"

    def projection(self, stage: int, match: str, now: float) -> str:
        """Advise options that prevent collapsed projections, or else a lower weight."""
        method = self._method
        options = {} if method is None else methods.find(method.method).options | method.method_options()
        unsafe = {name: safe for name, safe in _SAFE_PROJECTIONS.items() if options.get(name, safe) != safe}
        if unsafe:
            return f"take {' '.join(f'--option {name}={str(value).lower()}' for name, value in unsafe.items())}"
        return self.weight(stage, match, now) if method is not None else super().projection(stage, match, now)

    def one_answer(self) -> str:
        """Advise another learning rate, number of epochs or seed."""
        training = self.run.training
        restart = " or --restarts" if isinstance(self.run, Finetune) else ""
        return f"try a lower --lr (now {training.lr:g}), more --epochs (now {training.epochs}), another --seed{restart}"

    def explosion(self, lr: float) -> str:
        """Advise a lower learning rate."""
        return f"lower the learning rate (--lr, now {lr:g})"

    @property
    def _method(self) -> MethodSettings | None:
        """The named method of the run; None for fine-tuning or a recipe of the user's own."""
        if isinstance(self.run, Finetune) or self.run.method.recipe is not None:
            return None
        return self.run.method


def _option_of(method: MethodSettings, term: str) -> tuple[str, float | None] | None:
    """Find the option that determines a term's weight, and its value: changing the one changes the other."""
    options = methods.find(method.method).options | method.method_options()
    before = _weights(methods.build(method.method, method.method_options()))
    # The names of an encoder-decoder's terms also have the stack.
    if term not in before:
        term = next((name for name in before if term.endswith(f"_{name}")), term)
    for name in sorted(options, key=lambda name: not name.endswith("weight")):
        value = options[name]
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name == "hard_weight" or not (number or (value is None and name == "soft_weight")):
            continue
        changed = replace(method, options=dict(method.options) | {name: 2 * value if value else 1.0})
        try:
            after = _weights(methods.build(method.method, changed.method_options()))
        except UserError:
            continue
        if after.get(term) != before.get(term):
            return name, value
    return None


def _weights(recipe: Recipe) -> dict[str, float]:
    """Return the weight of every term in the middle of its stage."""
    clock = Clock(step=1, stage_step=1, stage_steps=2, epoch=1, stage_epochs=2)
    found: dict[str, float] = {}
    for stage in recipe.stages:
        if stage.prediction is not None:
            found["soft"] = stage.prediction.weight
        found |= {match.name: match.weight_at(clock) for match in stage.matches}
    return found
