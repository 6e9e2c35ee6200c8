"""Run a model on a batch and keep what a recipe needs of it: a Trace."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import family_of, sizes

__all__ = ["Stack", "Trace", "accepted_inputs", "trace"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """One stack's hidden states by layer, [batch, tokens, width], 0 being the embedding output, and its token mask."""

    hidden: Mapping[int, Tensor]
    mask: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What a model showed on one batch: logits [batch, classes] and the layers that were asked for."""

    logits: Tensor
    encoder: Stack


def accepted_inputs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs this model takes: families without segments (DistilBERT, MPNet, RoBERTa) get no token_type_ids."""
    known = inspect.signature(type(model).forward).parameters
    segments = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return {name: value for name, value in inputs.items() if name in known and (name != "token_type_ids" or segments)}


@contextmanager
def _kept(model: PreTrainedModel, layers: Collection[int]) -> Iterator[dict[int, Tensor]]:
    """Hooks that keep the states of the asked layers while the block runs.

    State i is read as the input of layer i + 1, the last one as the encoder's result: that is what the family itself
    calls its hidden states, whatever it does between its embedding module and its first layer, or after a layer.
    """
    family, depth = family_of(model.config, type(model).__name__), sizes(model.config).layers
    states: dict[int, Tensor] = {}
    calls = 0

    def before_layer(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal calls
        if calls in layers:
            states[calls] = args[0] if args else kwargs["hidden_states"]
        calls += 1

    def after_encoder(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        states[depth] = output[0]

    handles = [
        module.register_forward_pre_hook(before_layer, with_kwargs=True)
        for module in dict.fromkeys(family.layer_modules(model))
    ]
    if depth in layers:
        handles.append(family.encoder_module(model).register_forward_hook(after_encoder))
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def trace(model: PreTrainedModel, inputs: Mapping[str, Tensor], layers: Collection[int] = ()) -> Trace:
    """Run the model and keep its logits and the hidden states of the given layers (0 = embedding), nothing else."""
    accepted = accepted_inputs(model, inputs)
    if layers:
        with _kept(model, layers) as states:
            logits = model(**accepted).logits
    else:
        states, logits = {}, model(**accepted).logits
    return Trace(logits=logits, encoder=Stack(hidden=states, mask=inputs["attention_mask"]))
