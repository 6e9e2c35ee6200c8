"""Run a model on a batch and keep what a recipe needs of it: a Trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import family_of, sizes
from stillery.models.projected import final_linear

__all__ = ["Stack", "Trace", "accepted_inputs", "trace"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """What one stack showed, by layer: states, 0 being the embedding output, and the attention's projections.

    States, queries, keys and values are [batch, tokens, width], all heads side by side; `bias` is what the family adds
    to its scores. Only what was asked for is there.
    """

    hidden: Mapping[int, Tensor]
    mask: Tensor
    heads: int
    depth: int
    query: Mapping[int, Tensor] = field(default_factory=dict)
    key: Mapping[int, Tensor] = field(default_factory=dict)
    value: Mapping[int, Tensor] = field(default_factory=dict)
    feature: Mapping[int, Tensor] = field(default_factory=dict)
    bias: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What a model showed on one batch: logits [batch, classes] and the layers that were asked for."""

    logits: Tensor
    encoder: Stack


def accepted_inputs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs this model takes: families without segments (DistilBERT, MPNet, RoBERTa) get no token_type_ids."""
    known = inspect.signature(type(model).forward).parameters
    segments = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return {name: value for name, value in inputs.items() if name in known and (name != "token_type_ids" or segments)}


class _Hooks:
    """Hooks that keep what is asked for while a model runs, and change the embedding output on its way if asked to.

    State i is read as the input of layer i + 1, the last one as the encoder's result: that is what the family itself
    calls its hidden states, whatever it does between its embedding module and its first layer, or after a layer.
    """

    def __init__(
        self, model: PreTrainedModel, wanted: Mapping[str, Collection[int]], change: Callable[[Tensor], Tensor] | None
    ) -> None:
        self.wanted, self.change = wanted, change
        self.kept: dict[str, dict[int, Tensor]] = {
            name: {} for name in ("hidden", "query", "key", "value", "bias", "feature")
        }
        self.layer = 0
        family, depth = family_of(model.config, type(model).__name__), sizes(model.config).layers
        modules = dict.fromkeys(family.layer_modules(model))
        self.handles = [module.register_forward_pre_hook(self._before_layer, with_kwargs=True) for module in modules]
        if depth in wanted["hidden"]:
            encoder = family.encoder_module(model)
            self.handles.append(
                encoder.register_forward_hook(lambda _, __, output: self._keep("hidden", depth, output[0]))
            )
        if wanted["feature"]:
            linear = final_linear(model)
            self.handles.append(linear.register_forward_pre_hook(lambda _, args: self._keep("feature", depth, args[0])))
        for name, path in zip(("query", "key", "value"), family.projections, strict=True):
            if wanted[name]:
                keep = partial(self._after_projection, name)
                self.handles += [module.get_submodule(path).register_forward_hook(keep) for module in modules]

    def _keep(self, name: str, layer: int, tensor: Tensor) -> None:
        self.kept[name][layer] = tensor

    def _before_layer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
        state: Tensor = given.arguments["hidden_states"]
        changed = None
        if self.layer == 0 and self.change is not None:
            state = given.arguments["hidden_states"] = self.change(state)
            changed = given.args[1:], given.kwargs
        if self.layer in self.wanted["hidden"]:
            self._keep("hidden", self.layer, state)
        self.layer += 1
        if self.layer in self.wanted["key"] and given.arguments.get("position_bias") is not None:
            self._keep("bias", self.layer, given.arguments["position_bias"])
        return changed

    def _after_projection(self, name: str, _: nn.Module, __: tuple[Any, ...], output: Tensor) -> None:
        # The first call of a layer is on its states; DeBERTa then calls its maps on the relative positions too.
        if self.layer in self.wanted[name] and self.layer not in self.kept[name]:
            self._keep(name, self.layer, output)


def trace(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    layers: Collection[int] = (),
    *,
    query: Collection[int] = (),
    key: Collection[int] = (),
    value: Collection[int] = (),
    feature: Collection[int] = (),
    change: Callable[[Tensor], Tensor] | None = None,
) -> Trace:
    """Run the model and keep its logits and, of the given layers, states (0 = embedding), queries, keys and values.

    `feature`, of the last layer only, is what the final linear classifier receives, [batch, width]. `change` is applied
    to the embedding output before the first layer sees it (MixUp). Attention stays fused: scores are made from queries
    and keys afterwards, by whoever compares them.
    """
    accepted = accepted_inputs(model, inputs)
    wanted = {"hidden": layers, "query": query, "key": key, "value": value, "feature": feature}
    kept: Mapping[str, Mapping[int, Tensor]] = {name: {} for name in (*wanted, "bias")}
    if change is None and not any(wanted.values()):
        logits = model(**accepted).logits
    else:
        hooks = _Hooks(model, wanted, change)
        try:
            logits = model(**accepted).logits
        finally:
            for handle in hooks.handles:
                handle.remove()
        kept = hooks.kept
    has = sizes(model.config)
    stack = Stack(mask=inputs["attention_mask"], heads=has.heads, depth=has.layers, **kept)
    return Trace(logits=logits, encoder=stack)
