"""A model that need not predict stops behind the last layer that is looked at, and shows the same up to there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import layer_modules, sizes, stacks_of
from stillery.models.load_model import Loaded
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Trace, Wanted


def stopped(model: PreTrainedModel, inputs: Mapping[str, Tensor], **wanted: Wanted) -> tuple[Trace, int]:
    """A trace without logits, and how many calls of layers, of all stacks, it took."""
    layers = [module for stack in stacks_of(model.config) for module in dict.fromkeys(layer_modules(model, stack))]
    called: list[nn.Module] = []
    handles = [module.register_forward_hook(lambda module, *_: called.append(module)) for module in layers]
    try:
        return trace(model, inputs, wanted, logits=False), len(called)
    finally:
        for handle in handles:
            handle.remove()


def check(model: PreTrainedModel, inputs: Mapping[str, Tensor], stack: str, layer: int, expected_calls: int) -> None:
    for wanted in (Wanted(hidden=[layer]), Wanted(hidden=[layer], query=[layer], key=[layer], value=[layer])):
        if layer == 0 and wanted.query:
            continue
        whole = trace(model, inputs, {stack: wanted})
        shown, calls = stopped(model, inputs, **{stack: wanted})
        assert calls == expected_calls
        assert shown.logits.numel() == 0
        for name in ("hidden", "query", "key", "value"):
            ours, theirs = getattr(shown.stack(stack), name), getattr(whole.stack(stack), name)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[number], theirs[number]) for number in ours)
        assert torch.equal(shown.stack(stack).mask, whole.stack(stack).mask)


@torch.no_grad()
@pytest.mark.parametrize("behind", [0, 1, 3, 4])
def test_an_encoder_stops_behind_a_layer(teacher: Loaded, batch: dict[str, Tensor], behind: int) -> None:
    check(teacher.model, batch, "encoder", behind, behind)


@torch.no_grad()
def test_a_writer_stops_in_the_stack_that_is_looked_at(writer: Loaded, texts: dict[str, Tensor]) -> None:
    stacks, before = stacks_of(writer.model.config), 0
    for stack in stacks:
        depth = sizes(writer.model.config, stack).layers
        for layer in (1, depth):
            check(writer.model, texts, stack, layer, before + layer)
        before += depth


@torch.no_grad()
def test_a_classifiers_feature_is_behind_all_layers(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    shown, calls = stopped(teacher.model, batch, encoder=Wanted(hidden=[1], feature=[4]))
    assert calls == 4
    assert torch.equal(shown.stack().feature[4], trace(teacher.model, batch, Wanted(feature=[4])).stack().feature[4])
