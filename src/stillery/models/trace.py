"""Traced forward pass of a model, which keeps its logits and the requested intermediate outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from stillery.models.family import kind_of, layer_modules, layout_of, sizes, stacks_of
from stillery.models.head_type import head_type
from stillery.models.hooks import Change, Complete, StackHooks
from stillery.models.model_inputs import accepted_inputs, masks_of, targets_of
from stillery.models.wanted_outputs import Stack, Trace, Wanted

__all__ = ["trace"]


def trace(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    wanted: Collection[int] | Wanted | Mapping[str, Wanted] = (),
    *,
    change: Change | Mapping[str, Change] | None = None,
    drop_start: bool = False,
    logits: bool = True,
    shorten: Change | None = None,
) -> Trace:
    """Run one forward pass and return the logits and the wanted hidden states and attention projections.

    Hooks are registered for this pass only. Attention stays fused: callers compute scores from queries and keys
    afterwards. The last layer of a classifier computes its feed-forward part for the first token only, if no other
    token's output is wanted, since its head reads no other.

    Args:
        model: any supported model, in its current mode and on its current device.
        inputs: a batch of tensors by name; those that the model does not take are ignored.
        wanted: a `Wanted` for each stack by name, or one for the model's first stack (the encoder, or the decoder of a
            decoder-only model), or the layers whose hidden states are kept in that stack.
        change: applied to the embedding output of each named stack, or of the first, before its first layer (MixUp).
        drop_start: mask the decoder's start token if it is the padding token (`model_inputs.masks_of`).
        logits: if false, the model stops after the last wanted layer, and the trace's logits are empty.
        shorten: applied to each hidden state before it is kept, to reduce memory until the pass ends.
    """
    names = stacks_of(model.config)
    asked, changes = _by_stack(wanted, names[0]), _changes(change, names[0])
    for name in dict.fromkeys((*asked, *changes)):
        _check(model, name, asked.get(name, Wanted()), changes.get(name))
    accepted = accepted_inputs(model, inputs)
    hooks: dict[str, StackHooks] = {}
    first_only = _first_token_only(model, asked.get(names[0], Wanted()))
    last = next((name for name in reversed(names) if asked.get(name)), None)
    try:
        for name in names:
            if asked.get(name) or name in changes:
                stop = not logits and name == last
                of_stack = asked.get(name, Wanted())
                hooks[name] = StackHooks(model, name, of_stack, changes.get(name), stop=stop, shorten=shorten)
        # Nothing is generated here, so no KV cache is needed.
        uncached: dict[str, Any] = {} if names == ("encoder",) else {"use_cache": False}
        found = _logits(model, accepted | uncached)
    except Complete:
        found = inputs["input_ids"].new_empty((len(inputs["input_ids"]), 0), dtype=torch.float32)
    finally:
        for handle in (*first_only, *(handle for hook in hooks.values() for handle in hook.handles)):
            handle.remove()
    masks = masks_of(model, inputs, accepted, drop_start)
    stacks = {name: _stack(model, name, masks, hooks[name].kept if name in hooks else {}) for name in names}
    return Trace(logits=found, targets=targets_of(model, inputs), **stacks)


def _by_stack(wanted: Collection[int] | Wanted | Mapping[str, Wanted], first: str) -> Mapping[str, Wanted]:
    """Return the wanted outputs by stack name."""
    if isinstance(wanted, Mapping):
        return wanted
    return {first: wanted if isinstance(wanted, Wanted) else Wanted(hidden=wanted)}


def _changes(change: Change | Mapping[str, Change] | None, first: str) -> Mapping[str, Change]:
    """Return the changes of embedding outputs by stack name."""
    if change is None or isinstance(change, Mapping):
        return change or {}
    return {first: change}


def _first_token_only(model: PreTrainedModel, wanted: Wanted) -> list[RemovableHandle]:
    """Reduce a classifier's last layer, after its attention, to the first token if no other is read."""
    alone, depth = layout_of(model.config).alone, sizes(model.config).layers
    # A convolution over all tokens may follow DeBERTa's first layer.
    if (
        head_type(model).reads == "all"
        or alone is None
        or depth == 1
        or (depth in wanted.hidden and not wanted.first_of_last)
    ):
        return []
    module = layer_modules(model)[-1].get_submodule(alone)
    return [module.register_forward_pre_hook(lambda _, args: tuple(states[:, :1].contiguous() for states in args))]


def _logits(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Tensor:
    """The model's logits, in the precision of its head."""
    bias: Tensor | None = getattr(model, "final_logits_bias", None)
    if bias is None:
        logits: Tensor = model(**inputs).logits
        return logits
    # BART adds this float32 buffer, which autocast does not downcast: the sum would double the size of the logits.
    states: Tensor = model.base_model(**inputs)[0]
    scores: Tensor = model.get_output_embeddings()(states)
    return scores + bias.to(scores)


def _check(model: PreTrainedModel, name: str, wanted: Wanted, change: Change | None) -> None:
    """Raise ValueError for outputs that a model does not have, before any hook is registered."""
    which, stacks = model.config.model_type, stacks_of(model.config)
    if name not in stacks:
        if wanted or change is not None:
            raise ValueError(f"a {which} model has no {name}")
    elif layout_of(model.config, name).cross is None and (wanted.cross_query or wanted.cross_key or wanted.cross_value):
        raise ValueError(f"the {name} of a {which} model has no cross attention")
    elif wanted.feature and kind_of(model.config) != "encoder":
        raise ValueError(f"a {which} model has no classifier, so no feature")
    elif wanted.feature and head_type(model).reads == "all":
        raise ValueError(
            "only a classifier of texts has a feature of a text; of other models the last states are what is read"
        )


def _stack(
    model: PreTrainedModel, name: str, masks: Mapping[str, Tensor], kept: Mapping[str, Mapping[int, Tensor]]
) -> Stack:
    has, layout = sizes(model.config, name), layout_of(model.config, name)
    stack = Stack(
        hidden=kept.get("hidden", {}),
        mask=masks[name],
        heads=has.heads,
        depth=has.layers,
        key_heads=has.key_heads,
        scale=None if layout.scaled and getattr(model.config, "scale_attn_weights", True) else 1.0,
        causal=layout.causal,
        cross_mask=masks["encoder"] if layout.cross is not None else None,
    )
    return replace(stack, **{of: layers for of, layers in kept.items() if of != "hidden"})  # type: ignore[arg-type]
