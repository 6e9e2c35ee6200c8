"""Pairs that are measured in one go come to what each comes to alone, gradients too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from stillery.losses import BatchFacts, StageModules, stage_pairs, stage_terms
from stillery.models.trace import Stack, Trace
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Clock, Match, Stage

BATCH, TOKENS, OURS, THEIRS = 5, 7, 8, 12


def shown(layers: int, width: int, seed: int) -> Trace:
    random = torch.Generator().manual_seed(seed)
    mask = (torch.arange(TOKENS) < torch.tensor([7, 5, 3, 0, 6])[:, None]).long()
    hidden = {
        layer: torch.randn(BATCH, TOKENS, width, generator=random, dtype=torch.float64).requires_grad_()
        for layer in range(layers + 1)
    }
    stack = Stack(hidden=hidden, mask=mask, heads=2, depth=layers)
    return Trace(logits=torch.zeros(BATCH, 2), encoder=stack)


def terms_of(stage: Stage, student: Trace, teacher: Trace, projections=None) -> dict[str, torch.Tensor]:
    views = {"plain": student}, {"plain": teacher}
    pairs, modules = stage_pairs(stage, *views, Clock()), StageModules(projections=projections or {})
    return stage_terms(stage, pairs, *views, BatchFacts(), Clock(), modules)


@pytest.mark.parametrize(
    "widths", ["equal", "projected", "shared", "both", "bias", "both equal", "bias equal", "shared equal"]
)
@pytest.mark.parametrize("how", ["mse", "normalised_mse", "cosine"])
@pytest.mark.parametrize("over_pairs", ["sum", "mean"])
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "rowmean", "sum", "batchmean_twice"])
def test_all_pairs_at_once_are_the_pairs_one_by_one(widths: str, how: str, reduction: str, over_pairs: str) -> None:
    theirs = OURS if "equal" in widths else THEIRS
    student, teacher = shown(3, OURS, 1), shown(6, theirs, 2)
    pairs = [(1, 2), (2, 4), (3, 6)]
    torch.manual_seed(3)
    sides = [OURS] * 3, [theirs] * 3
    projection = {
        "equal": lambda: None,
        "projected": lambda: project.to_teacher(*sides),
        "shared": lambda: project.to_teacher(*sides, shared=True),
        "both": lambda: project.both(*sides, width=4),
        "bias": lambda: project.both(*sides, width=4, bias=True),
        "both equal": lambda: project.both(*sides, width=4),
        "bias equal": lambda: project.both(*sides, width=4, bias=True),
        "shared equal": lambda: project.both(*sides, width=4, shared=True),
    }[widths]()
    projections = {} if projection is None else {"m": projection.double()}
    measure = getattr(distance, how)
    for what in (represent.cls, represent.pool):
        match = Match(
            name="m", represent=what, pair=lambda *_: pairs, project=None, distance=measure, reduction=reduction,
            over_pairs=over_pairs,
        )  # fmt: skip
        # A distance of one's own is never measured at once.
        alone = replace(match, distance=partial(measure))
        found = []
        for one in (match, alone):
            stage = Stage(matches=(one,), hard_weight=0.0)
            term = terms_of(stage, student, teacher, projections)
            inputs = [*student.stack().hidden.values(), *(projection.parameters() if projection else ())]
            gradients = torch.autograd.grad(term["m"], inputs, allow_unused=True)
            found.append((term["m"], gradients))
        torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-12, atol=1e-14)
        for ours, other in zip(found[0][1], found[1][1], strict=True):
            assert (ours is None) == (other is None)
            if ours is not None:
                torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-13)


def test_uniform_pairs_of_a_single_layer_are_not_stacked() -> None:
    student, teacher = shown(1, OURS, 1), shown(2, OURS, 2)
    match = Match(name="m", represent=represent.cls, pair=pair.uniform, distance=distance.mse)
    terms = terms_of(Stage(matches=(match,), hard_weight=0.0), student, teacher)
    expected = (student.stack().hidden[1][:, 0] - teacher.stack().hidden[2][:, 0]).square().mean()
    torch.testing.assert_close(terms["m"], expected)
