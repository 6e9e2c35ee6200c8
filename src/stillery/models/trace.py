"""Run a model on a batch and keep what a recipe needs of it: a Trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from stillery.models.family import kind_of, layer_modules, layout_of, sizes, stacks_of
from stillery.models.head_type import head_type
from stillery.models.inputs import accepted_inputs, masks_of, targets_of
from stillery.models.projected_head import final_linear

__all__ = ["Stack", "Trace", "Wanted", "accepted_inputs", "trace"]

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """What one stack showed, by layer: states, 0 being the embedding output, and the attention's projections.

    States, queries, keys and values are [batch, tokens, width], all heads side by side, as the maps of a layer give
    them; where a family shares keys and values among heads they are of `key_heads` heads. The scores of its softmax are
    QK^T * `scale` (1 / sqrt of a head's size where None) plus `bias`, over the keys before a token where `causal`.
    Where a family turns queries and keys by their positions after the maps, the Q and K of its scores are
    `rotated_query` and `rotated_key`, there wherever both were asked for.

    The `cross` ones are of a decoder's attention to the encoder: queries of the decoder's tokens, keys and values of
    the encoder's, of which those in `cross_mask` are real. Only what was asked for is there.
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
    rotated_query: Mapping[int, Tensor] = field(default_factory=dict)
    rotated_key: Mapping[int, Tensor] = field(default_factory=dict)
    cross_query: Mapping[int, Tensor] = field(default_factory=dict)
    cross_key: Mapping[int, Tensor] = field(default_factory=dict)
    cross_value: Mapping[int, Tensor] = field(default_factory=dict)
    cross_mask: Tensor | None = None
    key_heads: int | None = None
    scale: float | None = None
    causal: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What a model showed on one batch: logits and, of its stacks, the layers that were asked for.

    Logits are [batch, classes], [batch, tokens, classes] of a model that classifies tokens, or [batch, tokens,
    vocabulary] of one that generates text. Of the last two `targets` are the tags or tokens they should predict, -100
    where none counts, where the batch has labels. A stack that a model does not have is None.
    """

    logits: Tensor
    encoder: Stack | None = None
    decoder: Stack | None = None
    targets: Tensor | None = None

    def stack(self, name: str | None = None) -> Stack:
        """A stack by its name; the model's first, which every model has, where none is named."""
        found = (
            (self.encoder or self.decoder) if name is None else {"encoder": self.encoder, "decoder": self.decoder}[name]
        )
        if found is None:
            raise ValueError(f"this model has no {name or 'stack'}")
        return found


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a stack has to show, and of which layers; `feature` is a classifier's only, `cross` an encoder-decoder's.

    A family with a norm behind its last layer (all that write text but BART) calls what that norm gives its last state;
    with `raw_last` the last state is what goes into it, as all states before it are. With `first_of_last` the last
    state may be that of the first token alone.
    """

    hidden: Collection[int] = ()
    query: Collection[int] = ()
    key: Collection[int] = ()
    value: Collection[int] = ()
    feature: Collection[int] = ()
    cross_query: Collection[int] = ()
    cross_key: Collection[int] = ()
    cross_value: Collection[int] = ()
    raw_last: bool = False
    first_of_last: bool = False

    def __bool__(self) -> bool:
        return any(self.layers.values())

    @property
    def layers(self) -> dict[str, Collection[int]]:
        """The layers of which each thing is wanted."""
        return {name: getattr(self, name) for name in _SHOWN}

    @property
    def last(self) -> int:
        """The last layer of which anything is wanted."""
        return int(max(layer for layers in self.layers.values() for layer in layers))


_SHOWN = tuple(each.name for each in fields(Wanted) if each.name not in ("raw_last", "first_of_last"))


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[batch, tokens, heads, size] turned by the angles of their positions, [batch, tokens, size], heads merged."""
    first, second = states.chunk(2, dim=-1)
    turned = states * cos.unsqueeze(2) + torch.cat([-second, first], dim=-1) * sin.unsqueeze(2)
    return turned.flatten(2)


@cache
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


class _Enough(Exception):
    """Everything that was asked for has been shown."""


class _Hooks:
    """Hooks that keep what is asked of a stack while a model runs, and change its embedding output on the way if asked.

    State i is read as the input of layer i + 1, the last one as the stack's result: that is what the family itself
    calls its hidden states, whatever it does between its embedding module and its first layer, or after a layer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        stack: str,
        wanted: Wanted,
        change: Change | None,
        *,
        stop: bool = False,
        shorten: Change | None = None,
    ) -> None:
        self.wanted, self.change, self.shorten = wanted, change, shorten
        # With nothing asked for behind a layer, the model need not go on; a feature is behind all of them.
        self.stop_behind = wanted.last if stop and not wanted.feature else None
        self.kept: dict[str, dict[int, Tensor]] = {}
        self.layer, self.angles = 0, None
        self.layout, self.depth = layout_of(model.config, stack), sizes(model.config, stack).layers
        self.handles: list[Any] = []
        modules = layer_modules(model, stack)
        for number, module in enumerate(dict.fromkeys(modules), 1):
            self._hook_layer(module, None if self.layout.shared else number)
        self._hook_end(model)
        if 1 in wanted.key and self.layout.bias is not None:
            # The first layer makes the bias, and hands it on.
            first = modules[0].register_forward_hook(lambda _, __, output: self._keep("bias", 1, output[1]))
            self.handles.append(first)

    def _hook_layer(self, module: nn.Module, number: int | None) -> None:
        before = partial(self._before_layer, number)
        self.handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        maps = dict(zip(("query", "key", "value"), self.layout.projections, strict=True))
        if self.layout.cross is not None:
            maps |= dict(zip(("cross_query", "cross_key", "cross_value"), self.layout.cross, strict=True))
        for place, (name, path) in enumerate(maps.items()):
            if getattr(self.wanted, name):
                keep = partial(self._after_projection, name, place, module)
                self.handles.append(module.get_submodule(path).register_forward_hook(keep))

    def _hook_end(self, model: PreTrainedModel) -> None:
        self._hook_last_state(model)
        if self.stop_behind == self.depth:
            end = model.base_model.get_submodule(self.layout.module)
            self.handles.append(end.register_forward_hook(self._enough))

    def _enough(self, *_: Any) -> None:
        raise _Enough

    def _hook_last_state(self, model: PreTrainedModel) -> None:
        base = model.base_model
        if self.depth in self.wanted.hidden and self.wanted.raw_last and self.layout.norm is not None:
            norm = base.get_submodule(self.layout.norm)
            self.handles.append(
                norm.register_forward_pre_hook(lambda _, args: self._keep("hidden", self.depth, args[0]))
            )
        elif self.depth in self.wanted.hidden:
            end = base.get_submodule(self.layout.module)
            self.handles.append(
                end.register_forward_hook(lambda _, __, output: self._keep("hidden", self.depth, output[0]))
            )
        if self.wanted.feature:
            linear = final_linear(model)
            self.handles.append(
                linear.register_forward_pre_hook(lambda _, args: self._keep("feature", self.depth, args[0]))
            )

    def _keep(self, name: str, layer: int, tensor: Tensor) -> None:
        if name == "hidden" and self.shorten is not None:
            tensor = self.shorten(tensor)
        self.kept.setdefault(name, {})[layer] = tensor

    def _before_layer(
        self, number: int | None, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        given = _signature(type(module).forward).bind(module, *args, **kwargs)
        state: Tensor = given.arguments["hidden_states"]
        changed = None
        self.layer = self.layer + 1 if number is None else number
        if self.layer == 1 and self.change is not None:
            state = given.arguments["hidden_states"] = self.change(state)
            changed = given.args[1:], given.kwargs
        if self.layer - 1 in self.wanted.hidden:
            self._keep("hidden", self.layer - 1, state)
        if self.layer - 1 == self.stop_behind:
            raise _Enough
        if self.layer in self.wanted.key and given.arguments.get("position_bias") is not None:
            self._keep("bias", self.layer, given.arguments["position_bias"])
        self.angles = given.arguments.get("position_embeddings")
        return changed

    def _after_projection(
        self, name: str, place: int, layer: nn.Module, _: nn.Module, __: tuple[Any, ...], output: Tensor
    ) -> None:
        # The first call of a layer is on its states; DeBERTa then calls its maps on the relative positions too.
        if self.layer not in getattr(self.wanted, name) or self.layer in self.kept.get(name, ()):
            return
        if self.layout.fused:
            output = output.chunk(3, dim=-1)[place]
        self._keep(name, self.layer, output)
        wanted_too = {"query": self.wanted.key, "key": self.wanted.query}.get(name, ())
        if self.layout.rotary and self.layer in wanted_too:
            assert self.angles is not None
            cos, sin = self.angles
            states = output.unflatten(-1, (-1, cos.shape[-1]))
            if self.layout.head_norms is not None:
                states = layer.get_submodule(self.layout.head_norms[place])(states)
            self._keep(f"rotated_{name}", self.layer, _rotated(states, cos, sin))


def trace(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    layers: Collection[int] = (),
    *,
    query: Collection[int] = (),
    key: Collection[int] = (),
    value: Collection[int] = (),
    feature: Collection[int] = (),
    change: Change | None = None,
    encoder: Wanted | None = None,
    decoder: Wanted | None = None,
    decoder_change: Change | None = None,
    drop_start: bool = False,
    logits: bool = True,
    shorten: Change | None = None,
) -> Trace:
    """Run the model and keep its logits and, of the given layers, states (0 = embedding), queries, keys and values.

    What is wanted of a stack is said by name with `encoder` and `decoder`; `layers` to `feature` say it of the model's
    first stack: the encoder, of a decoder-only model the decoder. `feature`, of the last layer only, is what the final
    linear classifier receives, [batch, width]. `change` is applied to the first stack's embedding output before its
    first layer sees it (MixUp), `decoder_change` to that of an encoder-decoder's decoder. `drop_start` leaves the
    decoder's start token out of its mask where it is the padding token (`inputs.masks_of`); by default it counts.
    Attention stays fused: scores are made from queries and keys afterwards, by whoever compares them. Without `logits`
    the model stops behind the last layer that is wanted, and the trace's logits are empty. What `shorten` makes of a
    state is kept in its place, so that a state of which little is wanted need not wait for the model's end. A
    classifier's last layer goes on behind its attention with the first token alone, which is all its head looks at,
    unless more is wanted.
    """
    names = stacks_of(model.config)
    wanted = {"encoder": encoder or Wanted(), "decoder": decoder or Wanted()}
    changes = {names[0]: change}
    plainly = Wanted(hidden=layers, query=query, key=key, value=value, feature=feature)
    if plainly:
        if wanted[names[0]]:
            raise ValueError(f"what is wanted of the {names[0]} is given twice")
        wanted[names[0]] = plainly
    if decoder_change is not None:
        changes["decoder"] = decoder_change
    for name in ("encoder", "decoder"):
        _check(model, name, wanted[name], changes.get(name))
    accepted = accepted_inputs(model, inputs)
    hooks: dict[str, _Hooks] = {}
    alone = _first_alone(model, wanted[names[0]])
    end = next((name for name in reversed(names) if wanted[name]), None)
    try:
        for name in names:
            if wanted[name] or changes.get(name):
                stop = not logits and name == end
                hooks[name] = _Hooks(model, name, wanted[name], changes.get(name), stop=stop, shorten=shorten)
        # Nothing is generated here, so what a decoder would remember for its next token is not kept.
        uncached: dict[str, Any] = {} if names == ("encoder",) else {"use_cache": False}
        shown = _logits(model, accepted | uncached)
    except _Enough:
        shown = inputs["input_ids"].new_empty((len(inputs["input_ids"]), 0), dtype=torch.float32)
    finally:
        for handle in (*alone, *(handle for hook in hooks.values() for handle in hook.handles)):
            handle.remove()
    masks = masks_of(model, inputs, accepted, drop_start)
    stacks = {name: _stack(model, name, masks, hooks[name].kept if name in hooks else {}) for name in names}
    return Trace(logits=shown, targets=targets_of(model, inputs), **stacks)


def _first_alone(model: PreTrainedModel, wanted: Wanted) -> list[RemovableHandle]:
    """Let a classifier's last layer go on with the first token alone, if it may and nobody looks at another."""
    alone, depth = layout_of(model.config).alone, sizes(model.config).layers
    # A convolution may follow DeBERTa's first layer, and that looks at all tokens.
    if (
        head_type(model).by_token
        or alone is None
        or depth == 1
        or (depth in wanted.hidden and not wanted.first_of_last)
    ):
        return []
    module = layer_modules(model)[-1].get_submodule(alone)
    return [module.register_forward_pre_hook(lambda _, args: tuple(states[:, :1].contiguous() for states in args))]


def _logits(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Tensor:
    """The model's logits, in the precision of its head."""
    bias: Tensor | None = getattr(model, "final_logits_bias", None)
    if bias is None:
        logits: Tensor = model(**inputs).logits
        return logits
    # BART adds this buffer, which no autocast narrows: the sum would be the largest tensor there is, twice as wide.
    states: Tensor = model.base_model(**inputs)[0]
    scores: Tensor = model.get_output_embeddings()(states)
    return scores + bias.to(scores)


def _check(model: PreTrainedModel, name: str, wanted: Wanted, change: Change | None) -> None:
    """Refuse what a model cannot show, before any hook is on it."""
    which, stacks = model.config.model_type, stacks_of(model.config)
    if name not in stacks:
        if wanted or change is not None:
            raise ValueError(f"a {which} model has no {name}")
    elif layout_of(model.config, name).cross is None and (wanted.cross_query or wanted.cross_key or wanted.cross_value):
        raise ValueError(f"the {name} of a {which} model has no cross attention")
    elif wanted.feature and kind_of(model.config) != "encoder":
        raise ValueError(f"a {which} model has no classifier, so no feature")
    elif wanted.feature and head_type(model).by_token:
        raise ValueError(
            "a model that classifies tokens has no feature of a text; its last states are what it classifies"
        )


def _stack(
    model: PreTrainedModel, name: str, masks: Mapping[str, Tensor], kept: Mapping[str, Mapping[int, Tensor]]
) -> Stack:
    has, layout = sizes(model.config, name), layout_of(model.config, name)
    stack = Stack(
        hidden=kept.get("hidden", {}),
        mask=masks[name],
        heads=has.heads,
        depth=has.layers,
        key_heads=has.key_heads,
        scale=None if layout.scaled and getattr(model.config, "scale_attn_weights", True) else 1.0,
        causal=layout.causal,
        cross_mask=masks["encoder"] if layout.cross is not None else None,
    )
    return replace(stack, **{of: layers for of, layers in kept.items() if of != "hidden"})  # type: ignore[arg-type]
