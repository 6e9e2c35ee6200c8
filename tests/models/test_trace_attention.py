"""Queries, keys and values against the attention maps the models themselves give, and changed embeddings."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stillery.models.family import family_of, scores_are_plain
from stillery.models.load_model import Loaded
from stillery.models.model_inputs import accepted_inputs
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted
from stillery.parts import represent_relations as relations


@torch.no_grad()
def test_scores_give_the_models_own_attention_maps(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    model = teacher.model
    if not family_of(model.config, "teacher").plain_scores:
        pytest.skip("this family's scores hold more than queries and keys; it is refused")
    # ModernBERT's other layers attend within a window, by which methods that compare attention are refused.
    layers = [1, 2, 4] if scores_are_plain(model.config) else [1, 4]
    shown = trace(model, batch, Wanted(query=layers, key=layers)).encoder
    assert not shown.hidden and set(shown.query) == set(layers)
    model.set_attn_implementation("eager")
    try:
        own = model(**accepted_inputs(model, batch), output_attentions=True).attentions
    finally:
        model.set_attn_implementation("sdpa" if model.config.model_type != "mpnet" else "eager")
    real = batch["attention_mask"].bool()
    for layer in layers:
        maps = relations.attention_maps.extract(shown, layer)
        for row in range(len(real)):
            ours, theirs = (found[row][:, real[row]] for found in (maps.values, own[layer - 1]))
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_values_are_the_maps_of_the_layers_input(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    model = teacher.model
    family = family_of(model.config, "teacher")
    shown = trace(model, batch, Wanted(hidden=[1, 2], query=[2], key=[2], value=[2, 3])).encoder
    assert set(shown.value) == {2, 3}
    module = family.layer_modules(model)[1]
    for named, path, found in zip("qkv", family.projections, (shown.query, shown.key, shown.value), strict=True):
        given = module.get_submodule(path)(module.attn_norm(shown.hidden[1]) if family.fused else shown.hidden[1])
        torch.testing.assert_close(found[2], given.chunk(3, -1)["qkv".index(named)] if family.fused else given)


@torch.no_grad()
def test_a_change_of_the_embeddings_reaches_every_layer(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    plain = trace(teacher.model, batch, range(5))
    same = trace(teacher.model, batch, range(5), change=lambda states: states.clone())
    assert torch.equal(same.logits, plain.logits)
    swapped = trace(teacher.model, batch, range(5), change=lambda states: states.flip(0))
    assert torch.equal(swapped.encoder.hidden[0], plain.encoder.hidden[0].flip(0))
    for layer in range(1, 5):
        assert not torch.allclose(swapped.encoder.hidden[layer], plain.encoder.hidden[layer])


@torch.no_grad()
def test_the_feature_is_what_the_classifier_receives(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    from stillery.models.projected_head import final_linear

    shown = trace(teacher.model, batch, Wanted(feature=[4]))
    linear = final_linear(teacher.model)
    torch.testing.assert_close(linear(shown.encoder.feature[4]), shown.logits)


@torch.no_grad()
def test_padding_changes_nothing(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    """The second text alone, and in a batch of a longer one: the same states, values, scores and logits."""
    model, real = teacher.model, int(batch["attention_mask"][1].sum())
    layers = range(1, 5)
    wanted = Wanted(hidden=range(5), query=layers, key=layers, value=layers)
    padded = trace(model, batch, wanted)
    alone = trace(model, {name: tensor[1:2, :real] for name, tensor in batch.items()}, wanted)
    ours, theirs = padded.stack(), alone.stack()
    for kept, expected in ((ours.hidden, theirs.hidden), (ours.value, theirs.value)):
        for layer, states in expected.items():
            torch.testing.assert_close(kept[layer][1, :real], states[0], atol=1e-5, rtol=1e-4)
    for layer in layers:
        scores, expected = (relations.attention.extract(stack, layer).values for stack in (ours, theirs))
        torch.testing.assert_close(scores[1][:, :real, :real], expected[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(padded.logits[1], alone.logits[0], atol=1e-5, rtol=1e-4)
