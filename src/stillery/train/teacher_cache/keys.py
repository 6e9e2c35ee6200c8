"""The keys of the teacher cache's arrays: hashes of everything an array depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from accelerate import Accelerator
from transformers import PreTrainedModel

from stillery.data.schema.examples import hash_columns
from stillery.models.fingerprint import combined, weight_digests
from stillery.models.wanted_outputs import Wanted
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.contents import CachedArray
from stillery.train.teacher_cache.forward import FROM_LAST_STATE, dtype_of
from stillery.train.teacher_cache.order import FillOrder
from stillery.train.trainable import EncoderData

__all__ = ["ArrayKeys", "weight_fingerprints"]

FORMAT = 3


def weight_fingerprints(teacher: LiveTeacher) -> dict[bool, str]:
    """Fingerprints of all weights (True) and of those below the head (False), which may be new in every run."""
    model: PreTrainedModel = teacher.model
    base, digests = model.base_model, weight_digests(teacher.host_weights or model.state_dict())
    prefix = "" if base is model else f"{model.base_model_prefix}."
    below = {name: digests[prefix + name] for name in base.state_dict() if not name.startswith("pooler.")}
    return {True: combined(digests), False: combined(below)}


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayKeys:
    """The keys of one teacher's arrays on one training split; `weights` are the fingerprints of its weights."""

    teacher: LiveTeacher
    data: EncoderData
    order: FillOrder
    wanted: Wanted
    dtype: str
    accelerator: Accelerator
    weights: dict[bool, str]

    def of(self, array: CachedArray) -> str:
        """The sha256 of everything an array depends on."""
        whole = array.kind in FROM_LAST_STATE
        parts = self._base | {
            "teacher": self.weights[whole],
            "what": [array.kind, array.layer],
            "dtype": dtype_of(array, self.dtype),
            # A last layer that computes only one token rounds differently.
            "first_of_last": self.wanted.first_of_last and array.kind in ("first", *FROM_LAST_STATE),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def _base(self) -> dict[str, Any]:
        """The parts of the key that all arrays share."""
        tokens, digest = self.data.tokens, hashlib.sha256()
        hash_columns(digest, pa.array(self.data.ids, type=pa.large_string()))
        for values in (tokens.offsets, tokens.flat, tokens.types):
            digest.update(b"-" if values is None else f"{values.dtype}{values.shape}".encode())
            digest.update(b"" if values is None else np.ascontiguousarray(values).data)
        config = self.teacher.model.config.to_dict()
        for name in ("_name_or_path", "transformers_version"):
            config.pop(name, None)
        return {
            "format": [FORMAT, *self.order.rule],
            "versions": [torch.__version__, transformers.__version__],
            "examples": [digest.hexdigest(), self.data.pad_id],
            "config": config,
            "precision": [self.accelerator.mixed_precision, self.accelerator.device.type],
        }
