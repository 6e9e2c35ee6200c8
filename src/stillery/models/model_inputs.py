"""The inputs of a model from a batch, its padding masks, and the target token of each position."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.ignored import IGNORED
from stillery.models.family import kind_of
from stillery.models.head_type import head_type

__all__ = ["accepted_inputs", "decoder_inputs", "masks_of", "starts_with_padding", "targets_of"]


@cache
def _known(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def accepted_inputs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs that a model's forward pass takes from a batch.

    Families without segments (DistilBERT, MPNet, RoBERTa) get no token_type_ids. Missing decoder_input_ids of an
    encoder-decoder are derived from its labels. Missing position_ids of a decoder-only model are derived from its mask,
    so that padding on either side has no effect. No model gets labels, because only its logits are used.
    """
    known = _known(type(model).forward)
    segments = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    given = {name: value for name, value in inputs.items() if name in known and (name != "token_type_ids" or segments)}
    labels, kind = given.pop("labels", None), kind_of(model.config)
    if kind == "encoder":
        return given
    if kind == "encoder-decoder" and "decoder_input_ids" not in given:
        if labels is None:
            raise ValueError("an encoder-decoder needs decoder_input_ids, or labels to make them from")
        given["decoder_input_ids"] = decoder_inputs(model, labels)
    if kind == "decoder" and "position_ids" not in given:
        given["position_ids"] = (given["attention_mask"].long().cumsum(-1) - 1).clamp_min(0)
    return given


def decoder_inputs(model: PreTrainedModel, labels: Tensor) -> Tensor:
    """Return the decoder's inputs: labels [batch, tokens] shifted right by the start token, padded where unscored."""
    start, pad = _start_of(model), model.config.pad_token_id
    if start is None or pad is None:
        missing = "decoder_start_token_id" if start is None else "pad_token_id"
        raise UserError(
            f"{type(model).__name__}: its configuration has no {missing}, so it cannot be given a target text"
        )
    begin = torch.full_like(labels[:, :1], start)
    return torch.cat([begin, labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, pad)], dim=1)


def starts_with_padding(model: PreTrainedModel) -> bool:
    """Return whether the decoder start token of an encoder-decoder is its padding token, as in T5."""
    if kind_of(model.config) != "encoder-decoder":
        return False
    start = _start_of(model)
    return start is not None and start == model.config.pad_token_id


def _start_of(model: PreTrainedModel) -> int | None:
    stated = [getattr(config, "decoder_start_token_id", None) for config in (model.config, model.generation_config)]
    return next((token for token in stated if token is not None), None)


def targets_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """Return the target token of each position, [batch, tokens], `IGNORED` where unscored; None without labels.

    The labels of a token classifier and of an encoder-decoder are these targets. A decoder-only model's labels are its
    input tokens, so the target of a position is the label of the next one.
    """
    labels, kind = inputs.get("labels"), kind_of(model.config)
    by_token = kind == "encoder" and head_type(model).by_token
    if labels is None or (kind == "encoder" and not by_token):
        return None
    if by_token or kind == "encoder-decoder":
        return labels
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)


def masks_of(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], accepted: Mapping[str, Tensor], drop_start: bool = False
) -> dict[str, Tensor]:
    """Return the mask of real tokens of each stack, [batch, tokens].

    For an encoder and a decoder-only model it is the attention mask. For the decoder of an encoder-decoder it is the
    decoder_attention_mask; without one, the positions with a scored label; without labels, those that are not padding,
    and the first one, because T5's start token is its padding token. With `drop_start` the first one is masked if it is
    the padding token, as in the released layer-selection code.
    """
    kind = kind_of(model.config)
    if kind != "encoder-decoder":
        return {kind: inputs["attention_mask"]}
    pad = -1 if model.config.pad_token_id is None else model.config.pad_token_id
    given, ids = inputs.get("decoder_attention_mask"), accepted["decoder_input_ids"]
    first = torch.zeros_like(ids, dtype=torch.bool)
    first[:, 0] = True
    if given is not None:
        real = given.bool()
    elif "labels" in inputs:
        real = inputs["labels"] != IGNORED
    else:
        real = (ids != pad) | first
    if drop_start:
        real = real & ~(first & (ids == pad))
    return {"encoder": inputs["attention_mask"], "decoder": real.long()}
