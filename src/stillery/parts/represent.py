"""What of a layer is compared."""

from __future__ import annotations

from torch import Tensor

from stillery.recipe import Representation, Shown

__all__ = ["cls", "tokens"]


def _cls(stack: Shown, layer: int) -> tuple[Tensor, Tensor | None]:
    return stack.hidden[layer][:, 0], None


def _tokens(stack: Shown, layer: int) -> tuple[Tensor, Tensor | None]:
    return stack.hidden[layer], stack.mask


cls = Representation(name="cls", show=_cls, rows="examples")
"""The first token's state, [batch, width] (PKD's "patience")."""

tokens = Representation(name="tokens", show=_tokens, rows="tokens")
"""Every real token's state, [batch, tokens, width], padding masked out."""
