"""Forward hooks that record a stack's intermediate outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.models.family import layer_modules, layout_of, sizes
from stillery.models.projected_head import final_linear
from stillery.models.wanted_outputs import Wanted

__all__ = ["Change", "Complete", "StackHooks"]

Change = Callable[[Tensor], Tensor]
"""A function of hidden states [batch, tokens, width]."""


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply a rotary embedding to [batch, tokens, heads, size], with cos and sin [batch, tokens, size].

    Where cos and sin are smaller than a head, only its first dimensions are rotated (Phi).
    """
    turned, kept = states[..., : cos.shape[-1]], states[..., cos.shape[-1] :]
    first, second = turned.chunk(2, dim=-1)
    rotated = turned * cos.unsqueeze(2) + torch.cat([-second, first], dim=-1) * sin.unsqueeze(2)
    return torch.cat([rotated, kept], dim=-1) if kept.shape[-1] else rotated


@cache
def _signature(forward: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(forward)


class Complete(Exception):
    """Raised by a hook to end the forward pass once all wanted outputs are recorded."""


class StackHooks:
    """Forward hooks that keep the wanted outputs of one stack, and apply `change` to its embedding output if given.

    Hidden state i is read as the input of layer i + 1, the last one as the stack's output. Those are the family's own
    hidden states, including any operations after its embedding module or after a layer. `stop` ends the forward pass
    after the last wanted layer. `shorten` is applied to each hidden state before it is kept.
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
        # A feature is computed after all layers, so wanting it rules out an early stop.
        self.stop_after = wanted.last if stop and not wanted.feature else None
        self.kept: dict[str, dict[int, Tensor]] = {}
        self.layer, self.angles = 0, None
        self.layout, self.sizes = layout_of(model.config, stack), sizes(model.config, stack)
        self.depth = self.sizes.layers
        rotated = self.layout.rotated
        self.rotates: Sequence[Any] = [True] * self.depth if rotated is None else getattr(model.config, rotated)
        self.handles: list[Any] = []
        modules = layer_modules(model, stack)
        for number, module in enumerate(dict.fromkeys(modules), 1):
            self._hook_layer(module, None if self.layout.shared else number)
        self._hook_end(model)
        if 1 in wanted.key and self.layout.bias is not None:
            # T5's first layer computes the position bias, and the others receive it.
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
        if self.stop_after == self.depth:
            end = model.base_model.get_submodule(self.layout.module)
            self.handles.append(end.register_forward_hook(self._stop))

    def _stop(self, *_: Any) -> None:
        raise Complete

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
        if self.layer - 1 == self.stop_after:
            raise Complete
        if self.layer in self.wanted.key and given.arguments.get("position_bias") is not None:
            self._keep("bias", self.layer, given.arguments["position_bias"])
        self.angles = given.arguments.get("position_embeddings")
        return changed

    def _after_projection(
        self, name: str, place: int, layer: nn.Module, _: nn.Module, __: tuple[Any, ...], output: Tensor
    ) -> None:
        # Only the first call of a projection is on hidden states; DeBERTa calls it again on relative positions.
        if self.layer not in getattr(self.wanted, name) or self.layer in self.kept.get(name, ()):
            return
        if self.layout.fused:
            output = output.chunk(3, dim=-1)[place]
        self._keep(name, self.layer, output)
        other = {"query": self.wanted.key, "key": self.wanted.query}.get(name, ())
        if self.layout.rotary and self.layer in other:
            self._keep(f"rotated_{name}", self.layer, self._turned(name, place, layer, output))

    def _turned(self, name: str, place: int, layer: nn.Module, states: Tensor) -> Tensor:
        """Return queries or keys as the scores are made from them: normed where the family does, and rotated."""
        norm: nn.Module | None = None
        if self.layout.head_norms is not None:
            path, _, leaf = self.layout.head_norms[place].rpartition(".")
            norm = getattr(layer.get_submodule(path), leaf, None)
        if norm is not None and self.layout.joint_norms:
            states = norm(states)
        heads = (self.sizes.key_heads or self.sizes.heads) if name == "key" else self.sizes.heads
        states = states.unflatten(-1, (heads, -1))
        if norm is not None and not self.layout.joint_norms:
            states = norm(states)
        if self.rotates[self.layer - 1]:
            assert self.angles is not None
            states = _rotated(states, *self.angles)
        return states.flatten(2)
