"""Where two methods say the same, they give the same number."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch
from fixed_traces import Case, case
from plain_numpy import seen, soft

from stillery import methods
from stillery.losses import BatchFacts, stage_pairs, stage_terms
from stillery.models.trace import Trace
from stillery.recipe import Clock, Need

SIZES = [(2, 4), (3, 6), (2, 6)]


def term(at: Case, method: str, name: str, **options: object) -> float:
    return at.terms(method, **options)[0][name].item()


@pytest.mark.parametrize("size", SIZES)
def test_rtc_is_pkd_with_another_head(size: tuple[int, int]) -> None:
    at = case(*size)
    assert term(at, "ild-rtc", "layers") == term(at, "pkd", "patience")
    assert term(at, "ild-top", "layers") == term(at, "pkd", "patience", layers="last")


@pytest.mark.parametrize("size", SIZES)
def test_a_uniform_map_is_forward(size: tuple[int, int]) -> None:
    at = case(*size)
    assert term(at, "u-ild", "hidden") == term(at, "layer-forward", "hidden")
    assert term(at, "tinybert", "hidden", always_project=False) == term(at, "layer-forward", "hidden")
    assert term(at, "tinybert", "attention") == term(at, "u-ild", "attention", attention="mse")


@pytest.mark.parametrize("size", SIZES)
def test_the_last_layers_attention_and_relations(size: tuple[int, int]) -> None:
    at = case(*size)
    assert term(at, "minilm", "attention") == term(at, "l-ild", "attention")
    assert term(at, "minilm", "value_relations") == term(at, "minilm-v2", "value_relations")
    assert term(at, "minilm-v2", "key_relations") == term(at, "minilm-v2", "key_relations", relation_heads=4)


@pytest.mark.parametrize("how", ["kl", "mse"])
def test_one_layer_each_leaves_transport_nothing_to_choose(how: str) -> None:
    at = case(1, 1)
    for name in ("attention", "hidden"):
        assert term(at, "emd-ild", name, attention=how) == pytest.approx(term(at, "l-ild", name, attention=how))


@pytest.mark.parametrize("name", ["hidden", "attention"])
def test_transport_costs_less_than_spreading_evenly(name: str) -> None:
    """The flow that gives every pair 1 / (M N) is feasible, so the cheapest one costs no more."""
    at = case(2, 4)
    whole = methods.build("bert-emd", {"always_project": False}).stages[0]
    match = next(match for match in whole.matches if match.name == name)
    stage = replace(whole, matches=(replace(match, flow=None, over_pairs="mean"),), hard_weight=0.0)
    pairs = stage_pairs(stage, at.student, at.teacher, Clock())
    even = stage_terms(stage, pairs, at.student, at.teacher, BatchFacts(), Clock())[name].item()
    assert term(at, "bert-emd", name, always_project=False) < even


def test_ckd_of_blocks_of_one_layer_is_squared_error_behind_a_map() -> None:
    at = case(3, 3)
    maps = at.terms("ckd-combine")[1]
    for layer in maps["combined_layers"].teacher:
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    found = at.terms("ckd-combine", Clock(), maps)[0]["combined_layers"].item()
    plain = [
        at.student["plain"].encoder.hidden[i][:, 0] - at.teacher["plain"].encoder.hidden[i][:, 0] for i in (1, 2, 3)
    ]
    assert found == pytest.approx(torch.stack(plain).square().mean().item())


OWN_MAPS = ("ckd-combine", "codir", "universal-kd", "rail-kd", "rail-kd-concat")
OTHER_LAYERS = ("layer-reverse", "layer-all-to-one", "layer-random", "alp-kd")
MATCHING = [name for name in methods.names() if methods.build(name).stages[0].matches]


@pytest.mark.parametrize("name", [name for name in MATCHING if name not in (*OWN_MAPS, *OTHER_LAYERS)])
def test_a_teacher_is_matched_by_itself(name: str) -> None:
    """At equal depth, without maps that are there anyway, every distance to the teacher is zero."""
    at = case(4, 4)
    at = replace(at, student=at.teacher)
    options = {"always_project": False} if "always_project" in methods.find(name).options else {}
    found, _, _ = at.terms(name, **options)
    matched = {key: value for key, value in found.items() if key != "hard" and not key.startswith("consistency")}
    assert matched and all(value.item() == pytest.approx(0, abs=1e-12) for value in matched.values())


def single(views: dict[str, Trace]) -> dict[str, Trace]:
    """The same traces in single precision."""

    def cast(trace: Trace) -> Trace:
        parts = {
            name: {layer: values.float() for layer, values in getattr(trace.encoder, name).items()}
            for name in get_args(Need)
        }
        return replace(trace, logits=trace.logits.float(), encoder=replace(trace.encoder, **parts))

    return {view: cast(trace) for view, trace in views.items()}


STAGES = [(name, index) for name in methods.names() for index in range(len(methods.build(name).stages))]


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_single_precision_agrees_with_double(name: str, stage: int) -> None:
    at, clock = case(2, 4, 8), Clock(stage=stage)
    exact, projections, _ = at.terms(name, clock)
    rough = methods.terms(
        name, single(at.student), single(at.teacher), at.batch, clock, mixed=at.mixed,
        projections={key: module.float() for key, module in projections.items()},
        judges={key: judge.float() for key, judge in at.judges(methods.build(name).stages[stage], clock).items()},
    )  # fmt: skip
    for key, value in exact.items():
        assert rough[key].dtype == torch.float32
        assert rough[key].item() == pytest.approx(value.item(), rel=2e-4), key


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_modules_that_are_not_given_are_those_of_the_seed(name: str, stage: int) -> None:
    at = case(2, 4, 8)
    student, teacher = single(at.student), single(at.teacher)

    def terms(seed: int) -> dict[str, float]:
        clock = Clock(seed=seed, stage=stage)
        torch.manual_seed(0)
        found = methods.terms(name, student, teacher, at.batch, clock, mixed=at.mixed)
        return {key: value.item() for key, value in found.items()}

    assert terms(1) == terms(1)


def test_predictions_alone_are_kd() -> None:
    at = case()
    expected = soft(seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits, 2)
    for name in ("kd", "distilbert", "rail-kd", "alp-kd", "ckd-combine"):
        assert term(at, name, "soft") == pytest.approx(expected, rel=1e-9)
