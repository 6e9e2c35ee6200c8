"""Summary of a model as plain data: stacks, layers, widths, heads and parameters."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from stillery.errors import UserError
from stillery.models.family import family_of, kind_of, layer_modules, layout_of, sizes, stacks_of
from stillery.models.load_model import Loaded, load_encoder, load_generator, load_head, model_kind

__all__ = ["describe"]


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _embedding_modules(model: PreTrainedModel, stack: str) -> list[nn.Module]:
    if kind_of(model.config) == "encoder":
        return family_of(model.config, "model").embedding_modules(model)
    return [model.base_model.get_submodule(path) for path in layout_of(model.config, stack).embeddings]


def _stack(model: PreTrainedModel, stack: str, seen: set[nn.Parameter]) -> dict[str, Any]:
    """Summarise one stack; shared weights are counted where they are first used."""

    def count(*modules: nn.Module) -> int:
        new = {parameter for module in modules for parameter in module.parameters()} - seen
        seen.update(new)
        return sum(parameter.numel() for parameter in new)

    has, names = sizes(model.config, stack), {module: name for name, module in model.base_model.named_modules()}
    rows = [{"layer": 0, "name": "embedding", "parameters": count(*_embedding_modules(model, stack))}]
    rows += [
        {"layer": layer, "name": names[module], "parameters": count(module)}
        for layer, module in enumerate(layer_modules(model, stack), 1)
    ]
    return {"name": stack, "layers": has.layers, "width": has.width, "heads": has.heads,
            "key_heads": has.key_heads or has.heads, "inner": has.inner, "rows": rows}  # fmt: skip


def _load(name: str) -> tuple[Loaded, str]:
    """Load a model; return it and what its head predicts (labels, tokens or nothing)."""
    if model_kind(name) != "encoder":
        return load_generator(name), "tokens"
    try:
        return load_head(name), "labels"
    except UserError:
        return load_encoder(name), "nothing"


def describe(name: str) -> dict[str, Any]:
    """Summarise a model's stacks, layers, sizes and parameters for `stillery layers`; layer 0 is the embedding."""
    loaded, head = _load(name)
    model, config, seen = loaded.model, loaded.model.config, set[nn.Parameter]()
    output = model.get_output_embeddings() if head == "tokens" else None
    return {
        "model": name,
        "type": config.model_type,
        "kind": kind_of(config),
        "parameters": _count(model),
        "vocabulary": config.vocab_size,
        "labels": [str(name) for name in (config.id2label or {}).values()] if head == "labels" else [],
        "tied_head": None if output is None else output.weight is model.get_input_embeddings().weight,
        "stacks": [_stack(model, stack, seen) for stack in stacks_of(config)],
    }
