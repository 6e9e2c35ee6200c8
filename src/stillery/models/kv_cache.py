"""The KV cache used during generation."""

from __future__ import annotations

from typing import Any

from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from stillery.models.family import sizes
from stillery.models.stack_layout import GENERATORS

__all__ = ["cache_is_too_shallow", "cache_of"]


def cache_is_too_shallow(model: PreTrainedModel) -> bool:
    """Return whether transformers creates a KV cache with fewer layers than the decoder, and fails at the first token.

    It counts the encoder's layers if a configuration has no `decoder_layers`, as T5's.
    """
    config = model.config
    if not config.is_encoder_decoder or config.model_type not in GENERATORS:
        return False
    return sizes(config, "decoder").layers > int(config.get_text_config(decoder=True).num_hidden_layers)


def cache_of(model: PreTrainedModel) -> dict[str, Any]:
    """Return extra arguments of `generate`: none, or a KV cache that grows with the layers that fill it."""
    if not cache_is_too_shallow(model):
        return {}
    return {"past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache())}
