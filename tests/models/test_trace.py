"""A trace shows what the model itself calls its hidden states, and leaves the model as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.models.family import family_of
from stillery.models.load_model import Loaded, load_classifier
from stillery.models.model_inputs import accepted_inputs
from stillery.models.trace import trace


def hooks(model: PreTrainedModel) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@torch.no_grad()
def own_states(model: PreTrainedModel, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return model(**accepted_inputs(model, inputs), output_hidden_states=True).hidden_states


def assert_traced(model: PreTrainedModel, inputs: dict[str, Tensor]) -> None:
    expected = own_states(model, inputs)
    with torch.no_grad():
        plain = model(**accepted_inputs(model, inputs)).logits
        traced = trace(model, inputs, range(len(expected)))
    assert sorted(traced.encoder.hidden) == list(range(len(expected)))
    for layer, state in enumerate(expected):
        assert torch.equal(traced.encoder.hidden[layer], state), layer
    assert torch.equal(traced.logits, plain)
    assert torch.equal(traced.encoder.mask, inputs["attention_mask"])


def test_every_state_is_the_models_own(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    assert len(own_states(teacher.model, batch)) == 5
    assert_traced(teacher.model, batch)


def test_every_state_is_minilms_own(tokenizer: PreTrainedTokenizerBase) -> None:
    model = load_classifier("minilm-l6", labels=2).model
    texts = ["a gripping, funny and wholly original film", "dull", ""]
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    assert len(own_states(model, inputs)) == 7
    assert_traced(model, inputs)


@pytest.mark.parametrize("layers", [(), (0,), (4,), (1, 3), {0, 2, 4}])
def test_only_the_asked_layers_are_kept(teacher: Loaded, batch: dict[str, Tensor], layers: set[int]) -> None:
    before = hooks(teacher.model)
    with torch.no_grad():
        traced = trace(teacher.model, batch, layers)
    assert set(traced.encoder.hidden) == set(layers)
    assert hooks(teacher.model) == before


def test_no_hook_stays_when_the_model_fails(
    teacher: Loaded, batch: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    before = hooks(teacher.model)
    third = family_of(teacher.model.config, teacher.name).layer_modules(teacher.model)[2]
    monkeypatch.setattr(third, "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        trace(teacher.model, batch, [0, 2, 4])
    assert hooks(teacher.model) == before


def test_gradients_flow_through_a_state_and_no_further(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    model, family = teacher.model, family_of(teacher.model.config, teacher.name)
    trace(model, batch, [2]).encoder.hidden[2].square().sum().backward()
    layers = family.layer_modules(model)
    moved = [any(p.grad is not None and p.grad.any() for p in layer.parameters()) for layer in layers]
    words = model.get_input_embeddings().weight.grad
    model.zero_grad(set_to_none=True)
    assert words is not None and words.any()
    assert moved == [True, True, family.shared, family.shared]


def test_states_of_training_are_those_of_the_same_dropout(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    model = teacher.model
    try:
        model.train()
        torch.manual_seed(5)
        traced = trace(model, batch, range(5)).encoder.hidden
        torch.manual_seed(5)
        expected = own_states(model, batch)
    finally:
        model.eval()
    assert all(torch.equal(traced[layer], state) for layer, state in enumerate(expected))


def test_segments_reach_only_families_that_have_them(teacher: Loaded, batch: dict[str, Tensor], kind: Any) -> None:
    accepted = accepted_inputs(teacher.model, batch | {"special_tokens_mask": batch["attention_mask"]})
    assert ("token_type_ids" in accepted) == kind.segments
    assert set(accepted) - {"token_type_ids"} == {"input_ids", "attention_mask"}
    without = {name: value for name, value in batch.items() if name != "token_type_ids"}
    with torch.no_grad():
        same = torch.equal(trace(teacher.model, batch).logits, trace(teacher.model, without).logits)
    assert same != kind.segments
