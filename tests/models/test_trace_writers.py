"""What models that generate text show of both stacks, against what transformers itself gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.family import kind_of, layer_modules, layout_of, sizes, stacks_of
from stillery.models.load_model import Loaded
from stillery.models.model_inputs import accepted_inputs
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Stack, Wanted
from stillery.parts import distance
from stillery.parts import represent_relations as relations


def every(model: PreTrainedModel, **options: Any) -> dict[str, Wanted]:
    return {name: Wanted(hidden=range(sizes(model.config, name).layers + 1), **options)
            for name in stacks_of(model.config)}  # fmt: skip


@torch.no_grad()
def own(model: PreTrainedModel, inputs: dict[str, Tensor], what: str) -> dict[str, tuple[Tensor, ...]]:
    """`hidden_states` or `attentions` of each stack as transformers gives them, cross attention included."""
    output = model(**accepted_inputs(model, inputs), **{f"output_{what}": True})
    if kind_of(model.config) == "decoder":
        return {"decoder": getattr(output, what)}
    found = {name: getattr(output, f"{name}_{what}") for name in ("encoder", "decoder")}
    return found | ({"cross": output.cross_attentions} if what == "attentions" else {})


@torch.no_grad()
def test_every_state_of_every_stack_is_the_models_own(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model = writer.model
    plain = model(**accepted_inputs(model, texts)).logits
    shown = trace(model, texts, every(model))
    assert torch.equal(shown.logits, plain)
    expected = own(model, texts, "hidden_states")
    assert (shown.encoder is None) == (kind_of(model.config) == "decoder")
    for name, states in expected.items():
        stack = shown.stack(name)
        assert stack.depth == len(states) - 1 and sorted(stack.hidden) == list(range(len(states)))
        for layer, state in enumerate(states):
            assert torch.equal(stack.hidden[layer], state), (name, layer)


@torch.no_grad()
def test_the_raw_last_state_becomes_the_last_state_through_the_final_norm(
    writer: Loaded, texts: dict[str, Tensor]
) -> None:
    model = writer.model
    plain, raw = trace(model, texts, every(model)), trace(model, texts, every(model, raw_last=True))
    for name in stacks_of(model.config):
        path, depth = layout_of(model.config, name).norm, sizes(model.config, name).layers
        before, after = raw.stack(name).hidden[depth], plain.stack(name).hidden[depth]
        assert (path is None) == (model.config.model_type == "bart")
        if path is None:
            assert torch.equal(before, after)
        else:
            assert not torch.allclose(before, after)
            assert torch.equal(model.base_model.get_submodule(path)(before), after)
        assert torch.equal(raw.stack(name).hidden[depth - 1], plain.stack(name).hidden[depth - 1])


@torch.no_grad()
def test_scores_give_the_attention_of_each_stack(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model = writer.model
    layers = {name: range(1, sizes(model.config, name).layers + 1) for name in stacks_of(model.config)}
    shown = trace(model, texts, {name: Wanted(query=layers[name], key=layers[name]) for name in layers})
    model.set_attn_implementation("eager")
    try:
        expected = own(model, texts, "attentions")
    finally:
        model.set_attn_implementation("sdpa")
    for name in layers:
        stack = shown.stack(name)
        assert stack.causal == (name == "decoder")
        for layer in layers[name]:
            maps, real = relations.attention_maps.extract(stack, layer), stack.mask.bool()
            for row in range(len(real)):
                ours, theirs = (found[row][:, real[row]] for found in (maps.values, expected[name][layer - 1]))
                torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_cross_attention_is_of_the_decoders_tokens_to_the_encoders(make_writer: Any) -> None:
    for name in ("t5", "t5-gated", "mt5", "bart"):
        model = make_writer(name)
        inputs = {
            "input_ids": torch.tensor(
                [[5, 6, 7, 8, 9], [9, 8, 7, model.config.pad_token_id, model.config.pad_token_id]]
            ),
            "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
            "labels": torch.tensor([[11, 12, 13], [14, 15, -100]]),
        }
        stack = trace(model, inputs, {"decoder": Wanted(cross_query=[1, 3], cross_key=[1, 3], cross_value=[2])}).decoder
        assert stack is not None and not stack.hidden and not stack.query
        assert set(stack.cross_query) == set(stack.cross_key) == {1, 3} and set(stack.cross_value) == {2}
        assert torch.equal(stack.cross_mask, inputs["attention_mask"])
        model.set_attn_implementation("eager")
        expected = own(model, inputs, "attentions")["cross"]
        for layer in (1, 3):
            torch.testing.assert_close(cross_maps(stack, layer), expected[layer - 1], atol=1e-6, rtol=1e-5)


def cross_maps(stack: Stack, layer: int) -> Tensor:
    """The attention to the encoder, written out."""
    query, key = (found[layer].unflatten(-1, (stack.heads, -1)).transpose(1, 2)
                  for found in (stack.cross_query, stack.cross_key))  # fmt: skip
    scale = query.shape[-1] ** -0.5 if stack.scale is None else stack.scale
    scores = query @ key.transpose(-1, -2) * scale
    return scores.masked_fill(stack.cross_mask[:, None, None, :] == 0, float("-inf")).softmax(-1)


@torch.no_grad()
def test_what_a_token_does_not_look_at_does_not_count(make_writer: Any) -> None:
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 4, 4]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    stack = trace(
        make_writer("llama"), {"input_ids": ids, "attention_mask": mask}, Wanted(query=[1], key=[1], value=[1])
    ).stack()
    view = relations.attention.extract(stack, 1)
    looked_at = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    assert torch.equal(view.key_mask[0, 0], looked_at) and torch.equal(view.key_mask[1, 0, 1], mask[1].bool())
    behind = view.values.masked_fill(~view.key_mask.expand_as(view.values), 30.0)
    for measure in (distance.kl, distance.mse):
        assert measure(behind, view.values, view.mask, key_mask=view.key_mask) == 0
        assert measure(behind, view.values, view.mask, key_mask=mask) > 1
    # Relations are made between as many heads as there are of keys and values.
    heads = {"query_relations": 4, "key_relations": 2, "value_relations": 2}
    for name, count in heads.items():
        assert getattr(relations, name).extract(stack, 1).values.shape == (2, count, 4, 4)


@torch.no_grad()
def test_queries_keys_and_values_are_what_a_layers_maps_give(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model = writer.model
    for name in stacks_of(model.config):
        shown = trace(model, texts, {name: Wanted(query=[2], key=[2], value=[2], hidden=[1])}).stack(name)
        has, module = sizes(model.config, name), layer_modules(model, name)[1]
        norm = {
            "t5": "layer.0.layer_norm",
            "mt5": "layer.0.layer_norm",
            "gpt2": "ln_1",
            "bart": None,
            "olmo2": None,
        }.get(model.config.model_type, "input_layernorm")
        state = shown.hidden[1] if norm is None else module.get_submodule(norm)(shown.hidden[1])
        paths = layout_of(model.config, name).projections
        for place, found in enumerate((shown.query, shown.key, shown.value)):
            given = module.get_submodule(paths[place])(state)
            expected = given[..., 32 * place : 32 * place + 32] if model.config.model_type == "gpt2" else given
            torch.testing.assert_close(found[2], expected)
        size = has.head_size or has.width // has.heads
        assert shown.query[2].shape[-1] == has.heads * size
        assert shown.key[2].shape[-1] == shown.value[2].shape[-1] == (has.key_heads or has.heads) * size
        assert shown.key_heads == has.key_heads


@torch.no_grad()
def test_padding_changes_nothing(writer: Loaded, texts: dict[str, Tensor]) -> None:
    """The last text alone, and in a batch of longer ones: the same states and logits; decoders padded left as well."""
    model, pad = writer.model, int(writer.model.config.pad_token_id or 0)
    real = int(texts["attention_mask"][2].sum())
    single = {name: tensor[2:, :real] for name, tensor in texts.items() if name != "labels"}
    batches = [texts]
    if "labels" in texts:
        single["labels"] = texts["labels"][2:, :3]
    else:
        left = {"input_ids": torch.cat([torch.full((1, 4), pad), single["input_ids"]], 1),
                "attention_mask": torch.tensor([[0] * 4 + [1] * real])}  # fmt: skip
        batches.append(left)
    alone = trace(model, single, every(model, key=[1, 2], query=[1, 2]))
    for batch in batches:
        shown = trace(model, batch, every(model, key=[1, 2], query=[1, 2]))
        for name in stacks_of(model.config):
            ours, theirs = shown.stack(name), alone.stack(name)
            counts = ours.mask[-1].bool()
            assert counts.sum() == theirs.mask.sum() == theirs.mask.numel()
            for layer, state in theirs.hidden.items():
                torch.testing.assert_close(ours.hidden[layer][-1][counts], state[0], atol=1e-5, rtol=1e-4)
            maps, expected = (relations.attention_maps.extract(stack, 2).values for stack in (ours, theirs))
            torch.testing.assert_close(maps[-1][:, counts][:, :, counts], expected[0], atol=1e-5, rtol=1e-4)
        tokens = shown.stack("decoder").mask[-1].bool()
        torch.testing.assert_close(shown.logits[-1][tokens], alone.logits[0], atol=1e-4, rtol=1e-4)


def test_labels_become_decoder_inputs_and_targets(make_writer: Any) -> None:
    for name in ("t5", "bart"):
        model = make_writer(name)
        start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
        labels = torch.tensor([[11, 12, 13, 14], [15, 16, -100, -100]])
        inputs = {"input_ids": labels.clamp_min(5), "attention_mask": torch.ones_like(labels), "labels": labels}
        expected = [[start, 11, 12, 13], [start, 15, 16, pad]]
        assert accepted_inputs(model, inputs)["decoder_input_ids"].tolist() == expected
        shown = trace(model, inputs)
        assert torch.equal(shown.targets, labels)
        # What transformers makes of the labels, and its loss.
        own = model(**inputs)
        torch.testing.assert_close(shown.logits, own.logits)
        loss = torch.nn.functional.cross_entropy(shown.logits.flatten(0, 1), shown.targets.flatten())
        torch.testing.assert_close(loss, own.loss)


def test_a_decoders_targets_are_its_next_tokens(make_writer: Any) -> None:
    for name in ("gpt2", "llama"):
        model = make_writer(name)
        ids, mask = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 4]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
        labels = torch.tensor([[-100, -100, 7, 8], [-100, 10, 11, -100]])
        shown = trace(model, {"input_ids": ids, "attention_mask": mask, "labels": labels})
        assert shown.targets.tolist() == [[-100, 7, 8, -100], [10, 11, -100, -100]]
        loss = torch.nn.functional.cross_entropy(shown.logits.flatten(0, 1), shown.targets.flatten())
        torch.testing.assert_close(loss, model(input_ids=ids, attention_mask=mask, labels=labels).loss)
        assert trace(model, {"input_ids": ids, "attention_mask": mask}).targets is None


def test_the_start_token_is_real_unless_it_is_dropped(make_writer: Any) -> None:
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    t5, bart = make_writer("t5"), make_writer("bart")
    targets = torch.tensor([[0, 11, 12, 1], [0, 13, 0, 0]])
    given = inputs | {"decoder_input_ids": targets}
    assert trace(t5, given).decoder.mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert trace(t5, given, drop_start=True).decoder.mask.tolist() == [[0, 1, 1, 1], [0, 1, 0, 0]]
    asked = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    shown = trace(t5, given | {"decoder_attention_mask": asked})
    assert shown.decoder.mask.tolist() == asked.tolist()
    # By labels: the position that shows the end token predicts nothing, however long the other targets are.
    labels = torch.tensor([[11, 12, 14, 1], [13, 1, -100, -100]])
    assert trace(t5, inputs | {"labels": labels}).decoder.mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert trace(t5, inputs | {"labels": labels}, drop_start=True).decoder.mask.tolist() == [[0, 1, 1, 1], [0, 1, 0, 0]]
    dropped = trace(t5, given | {"decoder_attention_mask": asked}, drop_start=True).decoder.mask.tolist()
    assert dropped == [[0, 1, 1, 0], [0, 1, 0, 0]]
    begun = torch.tensor([[2, 11, 12, 2], [2, 13, 1, 1]])
    for drop in (False, True):
        found = trace(bart, inputs | {"decoder_input_ids": begun}, drop_start=drop).decoder.mask
        assert found.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


@torch.no_grad()
def test_changed_embeddings_reach_the_layers_of_their_stack(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model, wanted = writer.model, every(writer.model)
    plain = trace(model, texts, wanted)
    assert torch.equal(trace(model, texts, wanted, change=lambda states: states.clone()).logits, plain.logits)
    first = stacks_of(model.config)[0]
    swapped = trace(model, texts, wanted, change=lambda states: states.flip(0))
    assert torch.equal(swapped.stack(first).hidden[0], plain.stack(first).hidden[0].flip(0))
    assert not torch.allclose(swapped.stack(first).hidden[1], plain.stack(first).hidden[1])
    assert not torch.allclose(swapped.logits, plain.logits)
    if first == "encoder":
        assert torch.equal(swapped.decoder.hidden[0], plain.decoder.hidden[0])
        both = trace(model, texts, wanted, change={"decoder": lambda states: states.flip(0)})
        assert torch.equal(both.decoder.hidden[0], plain.decoder.hidden[0].flip(0))
        assert torch.equal(both.encoder.hidden[4], plain.encoder.hidden[4])


@torch.no_grad()
def test_the_first_stack_is_meant_where_none_is_named(writer: Loaded, texts: dict[str, Tensor]) -> None:
    shown = trace(writer.model, texts, Wanted(hidden=[0, 4], value=[2]))
    first = stacks_of(writer.model.config)[0]
    assert set(shown.stack().hidden) == {0, 4} and shown.stack() is shown.stack(first)
    named = trace(writer.model, texts, {first: Wanted(hidden=[0, 4], value=[2])}).stack(first)
    assert torch.equal(named.hidden[4], shown.stack().hidden[4]) and torch.equal(named.value[2], shown.stack().value[2])


def test_what_a_model_cannot_show_is_refused(make_writer: Any, make: Any) -> None:
    ids = torch.tensor([[5, 6, 7]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    gpt2, t5, bert = make_writer("gpt2"), make_writer("t5"), make("bert")
    refused = [
        (gpt2, {"wanted": {"encoder": Wanted(hidden=[1])}}, "has no encoder"),
        (gpt2, {"wanted": {"decoder": Wanted(cross_key=[1])}}, "no cross attention"),
        (t5, {"wanted": {"encoder": Wanted(cross_query=[1])}}, "no cross attention"),
        (t5, {"wanted": {"decoder": Wanted(feature=[3])}}, "no classifier"),
        (bert, {"change": {"decoder": torch.neg}}, "has no decoder"),
        (t5, {"wanted": {"middle": Wanted(hidden=[1])}}, "has no middle"),
    ]
    for model, asked, said in refused:
        with pytest.raises(ValueError, match=said):
            trace(model, inputs, **asked)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_gradients_flow_through_the_decoder_to_the_encoder(make_writer: Any) -> None:
    ids = torch.tensor([[5, 6, 7]])
    for name in ("t5", "bart"):
        model = make_writer(name)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
        trace(model, inputs, {"decoder": Wanted(hidden=[2])}).decoder.hidden[2].square().sum().backward()
        moved = {stack: [any(p.grad is not None and bool(p.grad.any()) for p in layer.parameters())
                         for layer in layer_modules(model, stack)] for stack in ("encoder", "decoder")}  # fmt: skip
        assert moved == {"encoder": [True] * 4, "decoder": [True, True, False]}
