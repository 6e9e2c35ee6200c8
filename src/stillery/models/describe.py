"""A model's stacks, layers, widths, heads and parameters as plain data."""

from __future__ import annotations

from typing import Any

from torch import nn

from stillery.faults import Fault
from stillery.models.family import family_of, sizes
from stillery.models.load import load_classifier, load_encoder

__all__ = ["describe"]


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def describe(name: str) -> dict[str, Any]:
    """What `stillery layers` shows: layer 0 is the embedding, layers are numbered as everywhere else."""
    try:
        loaded, labels = load_classifier(name), True
    except Fault:
        loaded, labels = load_encoder(name), False
    model, config = loaded.model, loaded.model.config
    family, has = family_of(config, name), sizes(config)
    modules = family.layer_modules(model)
    embedding = sum(_count(model.base_model.get_submodule(path)) for path in family.embeddings
                    if hasattr(model.base_model, path.split(".")[0]))  # fmt: skip
    rows = [{"layer": 0, "name": "embedding", "parameters": embedding}]
    for index in range(has.layers):
        # Shared layers are one module: its parameters are counted where it is first used.
        module = modules[0] if family.shared else modules[index]
        count = _count(module) if index == 0 or not family.shared else 0
        path = f"{family.layers}.{0 if family.shared else index}"
        rows.append({"layer": index + 1, "name": path, "parameters": count})
    stack = {"name": "encoder", "layers": has.layers, "width": has.width, "heads": has.heads, "inner": has.inner,
             "rows": rows}  # fmt: skip
    return {
        "model": name,
        "type": config.model_type,
        "parameters": _count(model),
        "vocabulary": config.vocab_size,
        "labels": [str(name) for name in (config.id2label or {}).values()] if labels else [],
        "stacks": [stack],
    }
