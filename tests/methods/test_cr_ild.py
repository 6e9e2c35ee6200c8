"""L-ILD, U-ILD, EMD-ILD and CR-ILD against numpy: attention by KL, states by squared error, mixed and consistent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from changed_options import CLOCK, Options, changed
from fixed_traces import PARTNER, Case, case, mask_of
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_numpy import (
    attention,
    first,
    hard,
    linear,
    mean_square,
    pooled,
    relation,
    row_kl,
    same,
    score_square,
    seen,
    soft,
    softmax,
    unit,
    words,
)
from scipy.optimize import linprog

from stillery import methods
from stillery.errors import UserError
from stillery.losses import Mixed
from stillery.models.load_model import load_classifier
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Stack, Trace, Wanted
from stillery.outputs import StackOutputs
from stillery.parts.mix import draw, mixed_mask, mixup
from stillery.recipe import Clock

NAMES = ("l-ild", "u-ild", "emd-ild", "cr-ild")
ROWS = {"tokens": words, "pool": pooled, "patience": first}


def pairs_of(name: str, size: tuple[int, int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    student, teacher = size
    if name in ("l-ild", "cr-ild"):
        return [(student, teacher)], [(student, teacher)]
    if name == "u-ild":
        stride = teacher // student
        inner = [(i, stride * i) for i in range(1, student + 1)]
        return inner, [(0, 0), *inner]
    every = [(i, j) for i in range(1, student + 1) for j in range(1, teacher + 1)]
    return every, every


def added_up(name: str, size: tuple[int, int], values: list[float]) -> float:
    """The sum over pairs, or the least cost of transport between equal weights."""
    if name != "emd-ild":
        return sum(values)
    student, teacher = size
    conditions = [np.kron(np.eye(student), np.ones(teacher)), np.kron(np.ones(student), np.eye(teacher))]
    marginals = [np.full(student, 1 / student), np.full(teacher, 1 / teacher)]
    return float(linprog(values, A_eq=np.vstack(conditions), b_eq=np.concatenate(marginals)).fun)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(2, 4, 12), (2, 4, 8), (3, 6, 12)])
@pytest.mark.parametrize("how", ["kl", "mse"])
@pytest.mark.parametrize("states", ["tokens", "pool", "patience"])
@pytest.mark.parametrize("always", [False, True])
def test_layers(name: str, size: tuple[int, int, int], how: str, states: str, always: bool) -> None:
    at = case(*size)
    found, projections, _ = at.terms(name, attention=how, states=states, always_project=always)
    view = "mixed" if name == "cr-ild" else "plain"
    ours, theirs = seen(at.student[view]), seen(at.teacher[view])
    inner, outer = pairs_of(name, size[:2])
    measure = row_kl if how == "kl" else score_square
    attentions = [measure(attention(ours, i), attention(theirs, j)) for i, j in inner]
    hidden = []
    for i, j in outer:
        student, teacher = ROWS[states](ours.hidden[i]), ROWS[states](theirs.hidden[j])
        if always or size[2] == 8:
            student = linear(student, projections["hidden"].student[0])
        if states == "patience":
            student, teacher = unit(student), unit(teacher)
        hidden.append(mean_square(student, teacher))
    assert bool(projections) == (always or size[2] == 8)
    matched = {key: value for key, value in found.items() if not key.startswith("consistency")}
    same(
        matched,
        {"attention": added_up(name, size[:2], attentions), "hidden": added_up(name, size[:2], hidden)},
    )


@pytest.mark.parametrize("name", NAMES)
def test_prediction(name: str) -> None:
    at = case()
    ours, theirs = seen(at.student["plain"]).logits, seen(at.teacher["plain"]).logits
    found, _, _ = at.terms(name, Clock(stage=1), hard_weight=0.3)
    same(found, {"soft": soft(ours, theirs, 2), "hard": hard(ours)})


def padded_maps(stack: StackOutputs, layer: int) -> np.ndarray:
    """Attention probabilities over an example's own real keys, of all positions, [batch, heads, tokens, tokens]."""
    maps = np.zeros((3, 4, 7, 7))
    for example, length in enumerate(stack.mask.sum(1).tolist()):
        query, key = (side[layer][example].detach().numpy() for side in (stack.query, stack.key))
        maps[example, :, :, :length] = softmax(relation(query, key, 4)[:, :, :length])
    return maps


@pytest.mark.parametrize("lam", [0.3, 0.75])
@pytest.mark.parametrize("direction", ["from-mixed", "from-target"])
@pytest.mark.parametrize("states", ["tokens", "pool", "patience"])
@pytest.mark.parametrize("size", [(2, 4, 12), (3, 6, 8)])
def test_consistency(lam: float, direction: str, states: str, size: tuple[int, int, int]) -> None:
    """R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))) of the last layer, over the tokens of either example."""
    at = case(*size, lam=lam)
    found, _, _ = at.terms("cr-ild", kl_direction=direction, states=states)
    layer, plain, mixed = size[0], at.student["plain"].encoder, at.student["mixed"].encoder
    # Of example i (7, 4, 2 tokens) mixed with j = 1, 2, 0 either's tokens count.
    assert mixed.mask.sum(1).tolist() == [7, 4, 7]
    mixed_maps, plain_maps = padded_maps(mixed, layer), padded_maps(plain, layer)
    target_maps = lam * plain_maps + (1 - lam) * plain_maps[list(PARTNER)]
    values = []
    for example, length in enumerate((7, 4, 7)):
        f, target = (maps[example, :, :length, :length] for maps in (mixed_maps, target_maps))
        p, q = (f, target) if direction == "from-mixed" else (target, f)
        values.append((p * (np.log(p) - np.log(np.maximum(q, 1e-12)))).sum(-1).ravel())
    if states == "tokens":
        target_states = plain.hidden[layer].numpy()
        target_states = lam * target_states + (1 - lam) * target_states[list(PARTNER)]
        target = np.concatenate([target_states[e, :n] for e, n in enumerate((7, 4, 7))])
    else:
        rows = ROWS[states](seen(at.student["plain"]).hidden[layer])
        target = lam * rows + (1 - lam) * rows[list(PARTNER)]
    student = ROWS[states](seen(at.student["mixed"]).hidden[layer])
    assert found["consistency_attention"].item() == pytest.approx(np.concatenate(values).mean(), rel=1e-9)
    assert found["consistency_hidden"].item() == pytest.approx(mean_square(student, target), rel=1e-9)


def test_without_consistency_it_is_ild_with_mixup() -> None:
    at = case()
    assert set(at.terms("cr-ild", consistency_weight=0)[0]) == {"attention", "hidden"}


def test_stop_gradient_keeps_the_plain_view_out_of_the_gradient() -> None:
    for stopped in (True, False):
        at = case()
        hidden = at.student["plain"].encoder.hidden[2].requires_grad_()
        value = at.terms("cr-ild", stop_gradient=stopped)[0]["consistency_hidden"]
        assert value.requires_grad != stopped
        if not stopped:
            value.backward()
            assert hidden.grad is not None and hidden.grad.abs().sum() > 0


def test_mixed_views_have_to_be_given() -> None:
    at = case()
    with pytest.raises(UserError, match="mixed examples"):
        methods.terms("cr-ild", at.student["plain"], at.teacher["plain"], at.batch, Clock())
    with pytest.raises(UserError, match="how they are mixed"):
        methods.terms("cr-ild", at.student, at.teacher, at.batch, Clock(), hidden_weight=0)


@pytest.mark.parametrize("name", NAMES)
def test_options(name: str) -> None:
    rows: dict[str, tuple[object, set[str]]] = {
        "hard_weight": (0.2, {"weight hard", "hard"}),
        "soft_weight": (0.9, {"weight soft"}),
        "temperature": (5.0, {"soft"}),
        "layer_share": (2.0, {"shares"}),
        "least_steps": (50, {"least steps"}),
        "attention": ("mse", {"attention"}),
        "states": ("pool", {"hidden"}),
        "attention_weight": (2.0, {"weight attention"}),
        "hidden_weight": (2.0, {"weight hidden"}),
        "always_project": (True, {"hidden"}),
        "relation_heads": (3, {"attention"}),
        "normalise": ("token", {"hidden", "consistency_hidden"} if name == "cr-ild" else {"hidden"}),
    }
    if name == "emd-ild":
        rows["reweighed"] = (False, {"flow attention", "flow hidden"})
    if name == "cr-ild":
        both = {"weight consistency_attention", "weight consistency_hidden"}
        rows |= {
            "states": ("pool", {"hidden", "consistency_hidden"}),
            "alpha": (0.4, {"mixing"}),
            "consistency_weight": (0.5, both),
            "hidden_consistency": (False, {"consistency_hidden", "weight consistency_hidden"}),
            "ramp": ("epochs", both),
            "ramp_steps": (60, both),
            "pairing": ("reverse", {"mixing"}),
            "larger": (True, {"mixing"}),
            "stop_gradient": (False, {"gradient consistency_attention", "gradient consistency_hidden"}),
            "kl_direction": ("from-target", {"consistency_attention"}),
        }
    Options(name, case(), rows).check()
    assert "hidden" in changed(name, case(), "states", "patience")


def test_golden_10_ramps_in_the_method() -> None:
    def weight(clock: Clock, **options: object) -> float:
        match = methods.build("cr-ild", options).stages[0].matches[-1]
        assert match.name == "consistency_hidden"
        return match.weight_at(clock)

    by_steps = [weight(Clock(stage_step=t, stage_steps=100)) for t in (0, 50, 100, 170)]
    assert by_steps == pytest.approx([0, 0.05, 0.1, 0.1])
    assert weight(Clock(stage_step=30, stage_steps=100), ramp_steps=60) == pytest.approx(0.05)
    by_epochs = [weight(Clock(epoch=e, stage_epochs=20), ramp="epochs", consistency_weight=1.0) for e in range(20)]
    assert by_epochs == pytest.approx(np.arange(20) / 20)
    assert CLOCK.stage_step == 30


# Golden 7, 8, 9: what MixUp and its consistency terms are.

vectors = st.lists(st.floats(-10, 10), min_size=4, max_size=4)


@given(st.floats(0, 1), vectors, vectors, vectors)
def test_golden_7_two_squared_errors_are_one_to_the_mix_and_a_constant(
    lam: float, a: list[float], b: list[float], c: list[float]
) -> None:
    x, pair = torch.tensor(a, dtype=torch.float64), torch.tensor([b, c], dtype=torch.float64)
    mixed = mixup(pair, lam, torch.tensor([1, 0]))[0]
    apart = lam * (x - pair[0]).square().sum() + (1 - lam) * (x - pair[1]).square().sum()
    rest = lam * (1 - lam) * (pair[0] - pair[1]).square().sum()
    torch.testing.assert_close(apart - (x - mixed).square().sum(), rest, atol=1e-9, rtol=1e-9)


@given(st.floats(0, 1), vectors, vectors, vectors)
def test_golden_7_two_cross_entropies_are_one_to_the_mix(
    lam: float, a: list[float], b: list[float], c: list[float]
) -> None:
    student = torch.tensor(a, dtype=torch.float64).log_softmax(-1)
    targets = torch.tensor([b, c], dtype=torch.float64).softmax(-1)
    apart = -lam * (targets[0] * student).sum() - (1 - lam) * (targets[1] * student).sum()
    mixed = mixup(targets, lam, torch.tensor([1, 0]))[0]
    torch.testing.assert_close(apart, -(mixed * student).sum(), atol=1e-9, rtol=1e-9)


@given(st.sampled_from((0.0, 1.0)) | st.floats(0.001, 0.999), st.integers(1, 9))
def test_golden_8_reversed_pairing(lam: float, size: int) -> None:
    values = torch.randn(size, 3, dtype=torch.float64)
    _, partners = draw(size, 1.0, "reverse", (0,))
    partner = torch.tensor(partners)
    torch.testing.assert_close(mixup(values, lam, partner), mixup(values, 1 - lam, partner).flip(0))
    mask = (torch.rand(size, 4) > 0.5).long()
    assert torch.equal(mixed_mask(mask, lam, partner), mixed_mask(mask, 1 - lam, partner).flip(0))


def views_of(model, inputs: dict[str, torch.Tensor], mixed: Mixed) -> dict[str, Trace]:
    layers = range(1, model.config.num_hidden_layers + 1)
    wanted = Wanted(hidden=[0, *layers], query=layers, key=layers, value=layers)
    with torch.no_grad():
        plain = trace(model, inputs, wanted)
        return {"plain": plain, "mixed": trace(model, mixed.inputs(inputs), wanted, change=mixed)}


@pytest.fixture
def ragged(tiny_teacher) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    made = torch.Generator().manual_seed(0)
    inputs = {"input_ids": torch.randint(1000, 2000, (3, 7), generator=made), "attention_mask": mask_of((7, 4, 2), 7)}
    return load_classifier(str(tiny_teacher)).model.eval(), inputs


def test_golden_8_lambda_1_is_no_mixup_on_a_ragged_batch_of_a_real_model(ragged) -> None:
    model, inputs = ragged
    mixed = Mixed(lam=1.0, partner=torch.tensor(PARTNER))
    teacher = views_of(model, inputs, mixed)
    assert torch.equal(teacher["mixed"].encoder.mask, inputs["attention_mask"])
    assert torch.equal(teacher["mixed"].logits, teacher["plain"].logits)
    for layer, states in teacher["plain"].encoder.hidden.items():
        assert torch.equal(teacher["mixed"].encoder.hidden[layer], states)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.02)
    student = views_of(model, inputs, mixed)
    batch = case().batch
    labels = replace(batch, labels=torch.tensor([0, 1, 0]))
    mixed_terms = methods.terms("cr-ild", student, teacher, labels, Clock(), mixed=mixed)
    plain_terms = methods.terms("l-ild", student["plain"], teacher["plain"], labels, Clock())
    assert plain_terms["hidden"] > 1e-4 and plain_terms["attention"] > 1e-6
    for name, value in plain_terms.items():
        assert torch.equal(mixed_terms[name], value)
    assert mixed_terms["consistency_hidden"].item() == 0
    assert mixed_terms["consistency_attention"].item() == pytest.approx(0, abs=1e-7)


def test_lambda_0_is_the_partners_batch(ragged) -> None:
    model, inputs = ragged
    views = views_of(model, inputs, Mixed(lam=0.0, partner=torch.tensor(PARTNER)))
    torch.testing.assert_close(views["mixed"].logits, views["plain"].logits[list(PARTNER)])
    assert views["mixed"].encoder.mask.tolist() == inputs["attention_mask"][list(PARTNER)].tolist()


def test_a_mixed_batch_is_neither(ragged) -> None:
    model, inputs = ragged
    views = views_of(model, inputs, Mixed(lam=0.3, partner=torch.tensor(PARTNER)))
    assert views["mixed"].encoder.mask.sum(1).tolist() == [7, 4, 7]
    embedding = views["plain"].encoder.hidden[0]
    torch.testing.assert_close(
        views["mixed"].encoder.hidden[0], 0.3 * embedding + 0.7 * embedding[list(PARTNER)], rtol=1e-5, atol=1e-6
    )
    assert not torch.allclose(views["mixed"].logits, views["plain"].logits, atol=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.99), st.integers(0, 1000))
def test_golden_9_a_linear_model_is_consistent(lam: float, seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    embedding = torch.randn(3, 7, 12, generator=made, dtype=torch.float64)
    weights = torch.randn(12, 12, generator=made, dtype=torch.float64)
    at, mixed = case(lam=lam), Mixed(lam=lam, partner=torch.tensor(PARTNER))

    def linear_model(view: str, states: torch.Tensor) -> Trace:
        encoder = at.student[view].encoder
        assert isinstance(encoder, Stack)
        stack = replace(encoder, hidden={**encoder.hidden, 2: states @ weights})
        return replace(at.student[view], encoder=stack)

    student = {"plain": linear_model("plain", embedding), "mixed": linear_model("mixed", mixed(embedding))}
    found, _, _ = Case(student=student, teacher=at.teacher, mixed=mixed).terms("cr-ild")
    assert found["consistency_hidden"].item() == pytest.approx(0, abs=1e-20)
