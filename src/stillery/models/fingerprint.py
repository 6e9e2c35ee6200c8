"""Fingerprints of models, as hashes of their weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["combined", "weight_digests", "weights_fingerprint"]


def weights_fingerprint(model: PreTrainedModel, without: Collection[str] = ()) -> str:
    """Return a hash of a model's weights, except those in `without`."""
    digests = weight_digests(model.state_dict())
    return combined({name: digest for name, digest in digests.items() if name not in without})


def weight_digests(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the sha256 of each weight by name, computed in parallel."""
    tensors = dict(sorted(weights.items()))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(tensors, pool.map(_digest, tensors.values()), strict=True))


def combined(digests: Mapping[str, str]) -> str:
    """Combine the hashes of all weights, by name, into one."""
    return hashlib.sha256("\n".join(f"{name} {digest}" for name, digest in digests.items()).encode()).hexdigest()[:32]


def _digest(tensor: Tensor) -> str:
    values = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    # As bytes, because NumPy lacks some dtypes.
    digest.update(values.view(-1).view(torch.uint8).numpy().data if values.numel() else b"")
    return digest.hexdigest()
