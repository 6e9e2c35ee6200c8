"""What an option of a method changes: values of terms, weights, gradients, what is trained, what is drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch
from fixed_traces import Case
from torch import Tensor

from stillery import methods
from stillery.models.wanted_outputs import Trace
from stillery.parts import mix
from stillery.recipe import Clock, Need

CLOCK = Clock(seed=3, epoch=1, step=30, stage_step=30, stage_steps=100, stage_epochs=4)


def with_leaves(trace: Trace) -> tuple[Trace, list[Tensor]]:
    """The trace with states, queries, keys and values that take gradients."""
    leaves: list[Tensor] = []

    def fresh(layers) -> dict[int, Tensor]:
        made = {layer: values.clone().requires_grad_() for layer, values in layers.items()}
        leaves.extend(made.values())
        return made

    stack = trace.encoder
    parts = {name: fresh(getattr(stack, name)) for name in get_args(Need)}
    return replace(trace, encoder=replace(stack, **parts)), leaves


def snapshot(name: str, at: Case, options: dict[str, object], clock: Clock = CLOCK) -> dict[str, object]:
    """Everything an option may change, by name."""
    found: dict[str, object] = {}
    recipe = methods.build(name, options)
    found["shares"] = [stage.share for stage in recipe.stages]
    found["least steps"] = [stage.least_steps for stage in recipe.stages]
    for index, stage in enumerate(recipe.stages):
        now = replace(clock, stage=index)
        views, leaves = {}, []
        for view, trace in at.student.items():
            views[view], made = with_leaves(trace)
            leaves += made
        terms, projections, flows = replace(at, student=views).terms(name, now, **options)
        found |= {term: value.item() for term, value in terms.items()}
        found["weight hard"] = max(stage.hard_weight, float(found.get("weight hard", 0)))  # type: ignore[arg-type]
        found["weight soft"] = stage.prediction.weight if stage.prediction else 0
        for match in stage.matches:
            found[f"weight {match.name}"] = match.weight_at(now)
            slopes = torch.autograd.grad(terms[match.name], leaves, retain_graph=True, allow_unused=True)
            found[f"gradient {match.name}"] = [round(g.norm().item(), 6) for g in slopes if g is not None]
        for match_name, projection in projections.items():
            trained = [key for key, weights in projection.named_parameters() if weights.requires_grad]
            found[f"trained {match_name}"] = trained
        for match_name, flow in flows.items():
            flow.update(new_epoch=False)
            found[f"flow {match_name}"] = (flow.shared, flow.each_epoch, flow.student.tolist(), flow.teacher.tolist())
        if stage.mixing is not None:
            how = stage.mixing
            found["mixing"] = [mix.draw(9, how.alpha, how.pairing, (seed,), larger=how.larger) for seed in range(5)]
    return found


def changed(name: str, at: Case, option: str, value: object, **others: object) -> set[str]:
    """The names of what an option changes; a term's gradient and weights only where its value stays."""
    assert value != others.get(option, methods.find(name).options[option])
    before, after = snapshot(name, at, others), snapshot(name, at, others | {option: value})
    names = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    follows = {f"{kind} {term}" for term in names for kind in ("gradient", "trained", "flow")}
    return names - follows


class Options:
    """A table of a method's options: another value of each, and what exactly it changes."""

    def __init__(self, name: str, at: Case, rows: dict[str, tuple[object, set[str]]], **others: object) -> None:
        self.name, self.at, self.rows, self.others = name, at, rows, others

    def check(self) -> None:
        """Each option changes what the table says, and no option is missing from it."""
        assert set(self.rows) == set(methods.find(self.name).options)
        for option, (value, expected) in self.rows.items():
            assert changed(self.name, self.at, option, value, **self.others) == expected, option
