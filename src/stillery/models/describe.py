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
    embedding = sum(map(_count, family.embedding_modules(model)))
    rows = [{"layer": 0, "name": "embedding", "parameters": embedding}]
    names, seen = {module: name for name, module in model.base_model.named_modules()}, set[nn.Module]()
    for layer, module in enumerate(family.layer_modules(model), 1):
        # A module that several layers share is counted where it is first used.
        rows.append({"layer": layer, "name": names[module], "parameters": 0 if module in seen else _count(module)})
        seen.add(module)
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
