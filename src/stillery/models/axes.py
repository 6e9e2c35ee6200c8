"""Names for the axes of a model's weights: hidden width, heads, inner width."""

from __future__ import annotations

from transformers import PreTrainedConfig, PreTrainedModel

from stillery.models.family import FAMILIES, inside, kind_of, layout_of, sizes, stacks_of
from stillery.models.stack_layout import Layout

__all__ = ["axes_of", "head_size", "place_of"]

Axes = tuple[str | None, ...]
"""A name for each axis; None for one that has the same size in a narrower student: vocabulary, positions."""


def place_of(config: PreTrainedConfig, name: str) -> tuple[str, int]:
    """Return the stack and the layer (counted from 0) of a tensor; the first of both if it is in no layer."""
    for stack in stacks_of(config):
        layers = layout_of(config, stack).layers
        if inside(name, layers):
            return stack, int(name.removeprefix(f"{layers}.").partition(".")[0])
    return stacks_of(config)[0], 0


def axes_of(model: PreTrainedModel, name: str, count: int) -> Axes:
    """Return the names of a tensor's `count` axes; `name` is relative to the base model, for a head to the model.

    `width` is the hidden width. `query`, `key`, `value`, `attended` are the dimensions of all heads side by side,
    `fused` the first three in one, `heads` one value per head; `inner and gate` is the inner width twice. Those of a
    decoder's cross-attention have the prefix `cross `. An unknown axis is None.
    """
    config = model.config
    stack, layer = place_of(config, name)
    layout = layout_of(config, stack)
    start = f"{layout.layers}.{layer}."
    if name.startswith(start):
        return _in_layer(name.removeprefix(start), layout, count)
    if layout.head_bias is not None and inside(name, layout.head_bias):
        return None, "heads"
    if kind_of(config) == "encoder":
        family = FAMILIES[config.model_type]
        if family.projection is not None and inside(name, family.projection):
            return ("width", None)[:count]
        pooler = family.pooler.removeprefix(f"{model.base_model_prefix}.")
        grouped = getattr(config, "conv_groups", 1) > 1
        if inside(name, pooler) or (family.square is not None and inside(name, family.square) and not grouped):
            return ("width", "width", None)[:count]
    # The last axis of embedding tables, norms and the language model head is the width.
    return (*(None for _ in range(count - 1)), "width")


def _in_layer(rest: str, layout: Layout, count: int) -> Axes:
    """The axes of a layer's tensor, whose name is relative to the layer."""
    path, _, leaf = rest.rpartition(".")
    if layout.bias is not None and path == layout.bias:
        return None, "heads"
    if layout.head_norms is not None and path in layout.head_norms:
        return (("query", "key")[layout.head_norms.index(path)] if layout.joint_norms else "size",)
    maps = _maps(layout)
    if path not in maps:
        return ("width",) if count == 1 else (None,) * count
    if leaf == "bias":
        return maps[path][:1]
    return maps[path][::-1] if layout.transposed else maps[path]


def _maps(layout: Layout) -> dict[str, Axes]:
    """The output and input axes of the linear maps of a layer."""
    parts = ("fused",) * 3 if layout.fused else ("query", "key", "value")
    maps: dict[str | None, Axes] = {
        path: (part, "width") for path, part in zip(layout.projections, parts, strict=True)
    }  # fmt: skip
    maps |= {layout.more_queries: ("query", "width"), layout.more_keys: ("key", "width")}
    maps |= {layout.attended: ("width", "attended"), layout.cross_attended: ("width", "cross attended")}
    maps |= {path: (f"cross {part}", "width") for path, part in zip(layout.cross or (), parts, strict=False)}
    maps |= dict.fromkeys(layout.to_inner, ("inner and gate" if layout.gated else "inner", "width"))
    maps[layout.from_inner] = ("width", "inner")
    return {path: axes for path, axes in maps.items() if path is not None}


def head_size(model: PreTrainedModel, stack: str) -> int:
    """The size of an attention head."""
    layout = layout_of(model.config, stack)
    layer = next(model.base_model.get_submodule(layout.layers).children())
    weight = layer.get_submodule(layout.attended).get_parameter("weight")
    return int(weight.shape[0 if layout.transposed else 1]) // sizes(model.config, stack).heads
