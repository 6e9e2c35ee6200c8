"""The outputs of one stack of a model, as representations and losses use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

__all__ = ["StackOutputs"]


class StackOutputs(Protocol):
    """The hidden states and attention projections of one stack (encoder or decoder) on a batch, by layer."""

    @property
    def hidden(self) -> Mapping[int, Tensor]:
        """Hidden states [batch, tokens, width]; 0 is the embedding output."""

    @property
    def query(self) -> Mapping[int, Tensor]:
        """Queries of all heads, concatenated, [batch, tokens, width]."""

    @property
    def key(self) -> Mapping[int, Tensor]:
        """Keys, in the shape of the queries."""

    @property
    def value(self) -> Mapping[int, Tensor]:
        """Values, in the shape of the queries."""

    @property
    def feature(self) -> Mapping[int, Tensor]:
        """The input of the final linear classifier, [batch, width], by the number of the last layer."""

    @property
    def bias(self) -> Mapping[int, Tensor]:
        """The bias added to the attention scores before the softmax, in families with one (positions in MPNet, T5)."""

    @property
    def rotated_query(self) -> Mapping[int, Tensor]:
        """Queries with rotary position embedding, in families that have one."""

    @property
    def rotated_key(self) -> Mapping[int, Tensor]:
        """Keys with rotary position embedding, in families that have one."""

    @property
    def cross_query(self) -> Mapping[int, Tensor]:
        """Queries of a decoder's attention to the encoder, [batch, tokens, width]."""

    @property
    def cross_key(self) -> Mapping[int, Tensor]:
        """Keys of a decoder's attention to the encoder, [batch, the encoder's tokens, width]."""

    @property
    def cross_mask(self) -> Tensor | None:
        """1 for the encoder's real tokens; None without attention to an encoder."""

    @property
    def heads(self) -> int:
        """The number of attention heads."""

    @property
    def key_heads(self) -> int | None:
        """The number of key and value heads with grouped-query attention, else None."""

    @property
    def scale(self) -> float | None:
        """The factor of QK^T; None means 1 / sqrt(head size)."""

    @property
    def causal(self) -> bool:
        """Whether each token attends only to itself and the tokens before it."""

    @property
    def depth(self) -> int:
        """The number of layers of the stack."""

    @property
    def mask(self) -> Tensor:
        """1 for real tokens, 0 for padding, [batch, tokens]."""
