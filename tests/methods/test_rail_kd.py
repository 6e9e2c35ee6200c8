"""RAIL-KD against numpy: pooled states, projected on both sides, normalised; squared, summed over width and layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from changed_options import Options
from fixed_traces import case
from plain_numpy import hard, linear, pooled, same, seen, soft, unit

from stillery.losses import BatchFacts, StageModules, stage_pairs, stage_terms
from stillery.parts import distance, pair, represent
from stillery.parts.project import Projection, both
from stillery.recipe import Clock, Match, Stage

SIZES = [(2, 4, 12), (2, 4, 8), (3, 6, 8)]


def rows_of(model, layer: int, unmasked: bool) -> np.ndarray:
    return model.padded[layer].mean(1) if unmasked else pooled(model.hidden[layer])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("unmasked", [False, True])
@pytest.mark.parametrize("epoch", [0, 3])
def test_layer_wise(size: tuple[int, int, int], shared: bool, unmasked: bool, epoch: int) -> None:
    at, clock = case(*size), Clock(seed=1, epoch=epoch)
    found, projections, _ = at.terms("rail-kd", clock, shared=shared, unmasked=unmasked, width=5)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    maps, expected = projections["random_layers"], 0.0
    assert len(maps.student) == len(maps.teacher) == (1 if shared else size[0] - 1)
    for slot, (student, teacher) in enumerate(pair.random_each_epoch(size[0], size[1], clock)):
        which = 0 if shared else slot
        left = unit(linear(rows_of(ours, student, unmasked), maps.student[which]))
        right = unit(linear(rows_of(theirs, teacher, unmasked), maps.teacher[which]))
        assert left.shape == (3, 5) and maps.student[which].bias is None
        expected += ((left - right) ** 2).sum() / 3
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 2), "random_layers": float(expected)},
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("unmasked", [False, True])
def test_concatenated(size: tuple[int, int, int], unmasked: bool) -> None:
    at, clock = case(*size), Clock(seed=1, epoch=2)
    found, projections, _ = at.terms("rail-kd-concat", clock, unmasked=unmasked)
    ours, theirs = seen(at.student["plain"]), seen(at.teacher["plain"])
    pairs = pair.random_each_epoch(size[0], size[1], clock)
    student = np.concatenate([rows_of(ours, i, unmasked) for i, _ in pairs], axis=1)
    teacher = np.concatenate([rows_of(theirs, j, unmasked) for _, j in pairs], axis=1)
    maps = projections["random_layers"]
    left, right = unit(linear(student, maps.student[0])), unit(linear(teacher, maps.teacher[0]))
    assert left.shape == (3, 128) and len(maps.student) == len(maps.teacher) == 1
    expected = float(((left - right) ** 2).sum() / 3)
    same(
        found,
        {"hard": hard(ours.logits), "soft": soft(ours.logits, theirs.logits, 2), "random_layers": expected},
    )


def test_options() -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_weight": (10.0, {"weight random_layers"}),
        "width": (64, {"random_layers"}),
        "shared": (True, {"random_layers"}),
        "frozen_teacher": (False, {"trained random_layers"}),
        "unmasked": (True, {"random_layers"}),
    }
    narrow = {"projection_start": ("orthogonal", {"random_layers"})}
    Options("rail-kd", case(3, 6, 8), rows | narrow).check()
    # Where the widths agree, one matrix can serve both sides.
    Options("rail-kd", case(3, 6), rows | {"projection_start": ("literal", {"random_layers"})}).check()
    del rows["shared"]
    Options("rail-kd-concat", case(3, 6, 8), rows | narrow).check()


def test_both_projections_begin_alike_and_the_teachers_stays() -> None:
    for name in ("rail-kd", "rail-kd-concat"):
        maps = case(3, 6).terms(name, Clock())[1]["random_layers"]
        for ours, theirs in zip(maps.student, maps.teacher, strict=True):
            assert torch.equal(ours.weight, theirs.weight)
            assert ours.weight.requires_grad and not theirs.weight.requires_grad
        literal = {"projection_start": "literal", "frozen_teacher": False}
        maps = case(3, 6).terms(name, Clock(), **literal)[1]["random_layers"]
        for ours, theirs in zip(maps.student, maps.teacher, strict=True):
            assert not torch.equal(ours.weight, theirs.weight)
            assert ours.weight.requires_grad and theirs.weight.requires_grad


def identity(width: int, slots: int) -> Projection:
    def maps() -> torch.nn.ModuleList:
        made = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False).double() for _ in range(slots))
        for layer in made:
            torch.nn.init.eye_(layer.weight)
        return made

    return Projection(maps(), maps(), shared=False)


def layer_term(match: Match, at, clock: Clock, projection: torch.nn.Module | None = None) -> float:
    stage = Stage(matches=(match,), hard_weight=0.0)
    modules = StageModules(projections={match.name: projection} if projection is not None else {})
    pairs = stage_pairs(stage, at.student, at.teacher, clock)
    return stage_terms(stage, pairs, at.student, at.teacher, BatchFacts(), clock, modules)[match.name].item()


def cls_match(which, **changes) -> Match:
    made = {"name": "m", "represent": represent.cls, "pair": which, "distance": distance.normalised_mse}
    return Match(**(made | {"reduction": "batchmean"} | changes))


@pytest.mark.parametrize("layers", [2, 3, 5])
def test_golden_15_all_layers_with_identities_is_pkds_sum(layers: int) -> None:
    at, clock = case(layers, layers), Clock(seed=2, epoch=5)
    assert pair.random_each_epoch(layers, layers, clock) == [(i, i) for i in range(1, layers)]
    rail = layer_term(cls_match(pair.random_each_epoch), at, clock, identity(12, layers - 1))
    patience = at.terms("pkd", clock)[0]["patience"].item()
    # PKD's mean over width and layers, as the sum its paper prints.
    assert rail == pytest.approx(patience * 12 * (layers - 1), rel=1e-5)


def test_golden_15_the_method_itself_on_texts_of_one_token() -> None:
    """Of one token the pool is the first token's state, so the named method gives PKD's sum too."""
    at = case(3, 3)
    for views in (at.student, at.teacher):
        views["plain"].encoder.mask[:, 1:] = 0
    found = at.terms("rail-kd", Clock(), {"random_layers": identity(12, 2)})[0]["random_layers"].item()
    patience = at.terms("pkd", Clock())[0]["patience"].item()
    assert found == pytest.approx(patience * 12 * 2, rel=1e-5)


def test_golden_15_one_layer_side_by_side_is_layer_wise() -> None:
    at, clock = case(2, 4, 8), Clock(seed=4, epoch=1)
    single, maps, _ = at.terms("rail-kd", clock)
    together, _, _ = at.terms("rail-kd-concat", clock, maps)
    assert together["random_layers"].item() == single["random_layers"].item()


def test_golden_15_fixed_candidates_are_pkds_map() -> None:
    for epoch in range(5):
        clock = Clock(seed=7, epoch=epoch)
        assert pair.random_each_epoch(6, 12, clock, candidates=(2, 4, 6, 8, 10)) == pair.skip(6, 12, clock)


def test_golden_17_a_bias_admits_collapse() -> None:
    at = case(3, 6, 8)
    maps = both([8, 8], [12, 12], width=5, bias=True).double()
    for layer in [*maps.student, *maps.teacher]:  # type: ignore[misc]
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.constant_(layer.bias, 0.7)
    assert at.terms("rail-kd", Clock(), {"random_layers": maps})[0]["random_layers"].item() == 0
