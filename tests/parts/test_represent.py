"""Representations do not see padding, and are what their formulas say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stillery.models.wanted_outputs import Stack
from stillery.parts import distance, represent
from stillery.parts import represent_relations as relations
from stillery.recipe import Representation, View

LENGTHS = (5, 3, 1)
ONE_LAYER = [
    represent.cls,
    represent.tokens,
    represent.pool,
    relations.attention,
    relations.attention_maps,
    relations.query_relations,
    relations.key_relations,
    relations.value_relations,
    relations.with_relation_heads(relations.value_relations, 3),
    represent.samples,
    relations.word_relations,
    relations.layer_relations,
]
UNMASKED = [represent.unmasked_pool, represent.unmasked_tokens]


def stack_of(seed: int, tokens: int = 5, filler: float = 0.0) -> Stack:
    made = torch.Generator().manual_seed(seed)
    mask = (torch.arange(tokens)[None] < torch.tensor(LENGTHS)[:, None]).long()

    def states() -> dict[int, torch.Tensor]:
        real = {layer: torch.randn(3, 5, 12, generator=made) for layer in range(4)}
        padded = {layer: F.pad(values, (0, 0, 0, tokens - 5)) for layer, values in real.items()}
        return {layer: torch.where(mask.bool()[..., None], v, filler) for layer, v in padded.items()}

    return Stack(hidden=states(), query=states(), key=states(), value=states(), mask=mask, heads=4, depth=3)


def shown(what: Representation, stack: Stack) -> View:
    return what.extract(stack, (0, 1, 2) if what.joint else 2)


def measured(what: Representation, measure, student: Stack, teacher: Stack) -> torch.Tensor:
    ours, theirs = shown(what, student), shown(what, teacher)
    keys = {} if ours.key_mask is None else {"key_mask": ours.key_mask}
    return measure(ours.values, theirs.values, mask=ours.mask, **keys)


@pytest.mark.parametrize("what", ONE_LAYER, ids=lambda what: what.name)
@pytest.mark.parametrize("measure", [distance.mse, distance.kl])
def test_padding_is_not_seen(what: Representation, measure) -> None:
    plain = measured(what, measure, stack_of(0), stack_of(1))
    for tokens, filler in ((5, 7.0), (9, 0.0), (9, -40.0)):
        more = measured(what, measure, stack_of(0, tokens, filler), stack_of(1, tokens, 2 * filler))
        torch.testing.assert_close(more, plain, rtol=1e-5, atol=1e-6)
    assert measured(what, measure, stack_of(0), stack_of(0)).item() == pytest.approx(0, abs=1e-6)
    assert plain.item() > 1e-3


@pytest.mark.parametrize("what", UNMASKED, ids=lambda what: what.name)
def test_the_unmasked_ones_see_it(what: Representation) -> None:
    plain = measured(what, distance.mse, stack_of(0), stack_of(1))
    assert measured(what, distance.mse, stack_of(0, 9), stack_of(1, 9)).item() != pytest.approx(plain.item())


@pytest.mark.parametrize("what", ONE_LAYER, ids=lambda what: what.name)
def test_gradients_reach_the_states_and_not_the_padding(what: Representation) -> None:
    stack = stack_of(0, 7, 3.0)
    leaves = {name: {k: v.clone().requires_grad_() for k, v in getattr(stack, name).items()} for name in what.needs}
    measured(what, distance.kl if not what.sized else distance.mse, replace(stack, **leaves), stack_of(1, 7)).backward()
    for name in what.needs:
        slope = leaves[name][2].grad
        assert slope is not None and torch.isfinite(slope).all() and slope.abs().sum() > 0
        assert slope[stack.mask == 0].abs().sum() == 0


def test_golden_16_pooling() -> None:
    states = torch.tensor([[[1.0, 1], [3, 3], [9, 9]]])
    stack = Stack(hidden={1: states}, mask=torch.tensor([[1, 1, 0]]), heads=1, depth=1)
    assert represent.pool.extract(stack, 1).values.tolist() == [[2, 2]]
    assert represent.unmasked_pool.extract(stack, 1).values[0].tolist() == pytest.approx([4.3333, 4.3333], abs=1e-4)
    assert represent.cls.extract(stack, 1).values.tolist() == [[1, 1]]


def test_attention_is_the_scaled_product_per_head_and_the_familys_bias() -> None:
    stack = stack_of(0)
    view = relations.attention.extract(stack, 1)
    assert view.values.shape == (3, 4, 5, 5)
    query, key = (side[1][0].double().numpy() for side in (stack.query, stack.key))
    head = query[:, 3:6] @ key[:, 3:6].T / np.sqrt(3)
    np.testing.assert_allclose(view.values[0, 1].numpy(), head, rtol=1e-5, atol=1e-6)
    bias = torch.randn(1, 4, 5, 5)
    torch.testing.assert_close(
        relations.attention.extract(replace(stack, bias={1: bias}), 1).values, view.values + bias
    )


def test_attention_maps_are_probabilities_over_real_keys() -> None:
    maps = relations.attention_maps.extract(stack_of(0), 1).values
    torch.testing.assert_close(maps.sum(-1), torch.ones(3, 4, 5))
    assert maps[1, :, :, 3:].abs().sum() == 0 and maps[2, :, :, 0].eq(1).all()


def test_relation_heads_merge_and_cut() -> None:
    """As many maps as relation heads, from the merged states: one head is the plain product of whole states."""
    stack = stack_of(0)
    one = relations.with_relation_heads(relations.value_relations, 1).extract(stack, 2).values
    value = stack.value[2]
    torch.testing.assert_close(one[:, 0], value @ value.transpose(1, 2) / 12**0.5)
    own = relations.with_relation_heads(relations.value_relations, 4).extract(stack, 2).values
    torch.testing.assert_close(own, relations.value_relations.extract(stack, 2).values)


def test_samples_are_cosines_between_pooled_examples() -> None:
    stack = stack_of(0)
    pooled = np.stack([stack.hidden[2][e, :n].double().numpy().mean(0) for e, n in enumerate(LENGTHS)])
    pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
    np.testing.assert_allclose(represent.samples.extract(stack, 2).values.numpy(), pooled @ pooled.T, atol=1e-6)
