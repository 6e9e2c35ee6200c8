"""The keys and values that a model keeps of what it wrote so far."""

from __future__ import annotations

from typing import Any

from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from stillery.models.family import sizes
from stillery.models.stack_layout import GENERATORS

__all__ = ["deeper_than_its_past", "past_of"]


def deeper_than_its_past(model: PreTrainedModel) -> bool:
    """Whether transformers gives the decoder too few layers to keep, and so fails at its first token.

    It counts the encoder's layers where a configuration does not say `decoder_layers`, as that of T5.
    """
    config = model.config
    if not config.is_encoder_decoder or config.model_type not in GENERATORS:
        return False
    return sizes(config, "decoder").layers > int(config.get_text_config(decoder=True).num_hidden_layers)


def past_of(model: PreTrainedModel) -> dict[str, Any]:
    """What `generate` needs beside its inputs: nothing, or a past that grows with the layers that fill it."""
    if not deeper_than_its_past(model):
        return {}
    return {"past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache())}
