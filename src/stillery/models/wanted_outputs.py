"""Containers for requesting and returning a model's intermediate outputs: Wanted, Stack, Trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from torch import Tensor

__all__ = ["Stack", "Trace", "Wanted"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The intermediate outputs to keep from one stack, each with its layers.

    `hidden` are hidden states, 0 being the embedding output. `query`, `key` and `value` are the projections of the
    self-attention, the `cross` ones those of a decoder's cross-attention. `feature`, of a classifier's last layer, is
    the input of the final linear classifier, [batch, width].

    In families with a norm after the last layer (all text generators but BART) the last hidden state is that norm's
    output; with `raw_last` it is the norm's input, like all earlier hidden states. With `first_of_last` the last hidden
    state may be that of the first token only.
    """

    hidden: Collection[int] = ()
    query: Collection[int] = ()
    key: Collection[int] = ()
    value: Collection[int] = ()
    feature: Collection[int] = ()
    cross_query: Collection[int] = ()
    cross_key: Collection[int] = ()
    cross_value: Collection[int] = ()
    raw_last: bool = False
    first_of_last: bool = False

    def __bool__(self) -> bool:
        return any(self.layers.values())

    @property
    def layers(self) -> dict[str, Collection[int]]:
        """The layers from which each kind of output is kept."""
        return {name: getattr(self, name) for name in _OUTPUTS}

    @property
    def last(self) -> int:
        """The last layer from which an output is kept."""
        return int(max(layer for layers in self.layers.values() for layer in layers))


_OUTPUTS = tuple(each.name for each in fields(Wanted) if each.name not in ("raw_last", "first_of_last"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """The outputs of one stack (encoder or decoder), by layer: hidden states and the projections of the attention.

    Hidden states, queries, keys and values are [batch, tokens, width], all heads side by side, before any rotary
    embedding; 0 is the embedding output. With grouped-query attention keys and values have `key_heads` heads. The
    attention scores are QK^T * `scale` (1 / sqrt(head size) where None) plus `bias`, over the keys up to the token
    itself if `causal`. With rotary embeddings the scores are computed from `rotated_query` and `rotated_key`, which are
    present wherever queries and keys were both requested.

    The `cross` ones are of a decoder's cross-attention: queries of the decoder's tokens, keys and values of the
    encoder's, of which those in `cross_mask` are real. Only requested outputs are present.
    """

    hidden: Mapping[int, Tensor]
    mask: Tensor
    heads: int
    depth: int
    query: Mapping[int, Tensor] = field(default_factory=dict)
    key: Mapping[int, Tensor] = field(default_factory=dict)
    value: Mapping[int, Tensor] = field(default_factory=dict)
    feature: Mapping[int, Tensor] = field(default_factory=dict)
    bias: Mapping[int, Tensor] = field(default_factory=dict)
    rotated_query: Mapping[int, Tensor] = field(default_factory=dict)
    rotated_key: Mapping[int, Tensor] = field(default_factory=dict)
    cross_query: Mapping[int, Tensor] = field(default_factory=dict)
    cross_key: Mapping[int, Tensor] = field(default_factory=dict)
    cross_value: Mapping[int, Tensor] = field(default_factory=dict)
    cross_mask: Tensor | None = None
    key_heads: int | None = None
    scale: float | None = None
    causal: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A model's outputs on one batch: its logits and, for each stack, the requested intermediate outputs.

    Logits are [batch, classes], or [batch, tokens, vocabulary] for a model that generates text. `targets` are then the
    tokens to predict, -100 where a position is not scored; None without labels. A stack that a model lacks is None.
    """

    logits: Tensor
    encoder: Stack | None = None
    decoder: Stack | None = None
    targets: Tensor | None = None

    def stack(self, name: str | None = None) -> Stack:
        """Return the stack of that name, by default the model's first."""
        found = (
            (self.encoder or self.decoder) if name is None else {"encoder": self.encoder, "decoder": self.decoder}[name]
        )
        if found is None:
            raise ValueError(f"this model has no {name or 'stack'}")
        return found
