"""A classifier's last layer works on the first token alone where nobody looks at another, and shows the same of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.load_model import Loaded
from stillery.models.model_inputs import accepted_inputs
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Trace, Wanted

DEPTH, INNER = 4, 48
WHOLE = ("albert", "modernbert")
"""ALBERT's layers are one module; ModernBERT adds the states before its attention to those after it."""


def watched(model: PreTrainedModel, inputs: Mapping[str, Tensor], wanted: Wanted) -> tuple[Trace, list[int]]:
    """A trace, and on how many tokens the feed-forward part of each layer worked."""
    seen: list[int] = []
    inner = [module for module in model.modules() if isinstance(module, nn.Linear) and module.in_features == INNER]
    handles = [module.register_forward_hook(lambda *called: seen.append(called[2].shape[1])) for module in inner]
    try:
        return trace(model, inputs, {"encoder": wanted}), seen
    finally:
        for handle in handles:
            handle.remove()


def gradients(model: PreTrainedModel, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("hidden", [(), (0, 3)])
def test_logits_and_gradients_are_the_models_own(
    teacher: Loaded, batch: dict[str, Tensor], hidden: tuple[int, ...]
) -> None:
    model, tokens = teacher.model, batch["input_ids"].shape[1]
    shown, seen = watched(model, batch, Wanted(hidden=hidden))
    assert seen == [tokens] * (DEPTH - 1) + [tokens if model.config.model_type in WHOLE else 1]
    whole = model(**accepted_inputs(model, batch)).logits
    torch.testing.assert_close(shown.logits, whole)
    ours, theirs = gradients(model, shown.logits.square().sum()), gradients(model, whole.square().sum())
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-4 * float(gradient.abs().max()) + 1e-6, rtol=0)


@torch.no_grad()
def test_the_last_state_is_whole_unless_its_first_token_is_enough(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    whole, seen = watched(teacher.model, batch, Wanted(hidden=[DEPTH]))
    assert seen == [batch["input_ids"].shape[1]] * DEPTH
    first, _ = watched(teacher.model, batch, Wanted(hidden=[DEPTH], query=[DEPTH], first_of_last=True))
    torch.testing.assert_close(first.stack().hidden[DEPTH][:, 0], whole.stack().hidden[DEPTH][:, 0])
    assert first.stack().query[DEPTH].shape[1] == batch["input_ids"].shape[1]


@torch.no_grad()
def test_what_follows_the_only_layer_sees_all_tokens(make: Any) -> None:
    model = make("deberta-v2-conv", num_hidden_layers=1)
    inputs = {"input_ids": torch.arange(5, 12)[None], "attention_mask": torch.ones(1, 7, dtype=torch.long)}
    torch.testing.assert_close(trace(model, inputs).logits, model(**inputs).logits)
