"""Importance measures of a model's layers, hidden dimensions, heads and inner neurons on a few texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from stillery.models.family import layout_of, sizes, stacks_of
from stillery.models.model_inputs import accepted_inputs, masks_of
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Stack, Wanted

__all__ = ["Activity", "Importance", "measure"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Activity:
    """The activity of the attention heads of each layer, as masked means over tokens.

    `heads` are the norms of their outputs, [layers, heads]; `values` the magnitudes of the single dimensions,
    [layers, heads, size].
    """

    heads: Tensor
    values: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Importance:
    """Importance measures of a model on some texts, all means over real tokens.

    `influence` (block influence), by stack, is 1 - cosine of each layer's input and output states. `width` is the
    activity of the hidden dimensions, summed over all modules that read them. `inner`, by stack, is that of the inner
    (feed-forward) neurons of each layer, [layers, inner]. `heads` and `cross` are those of the heads of a stack's
    self-attention and cross-attention. Where layers share their modules (ALBERT) there is one row per module.
    """

    texts: int
    influence: Mapping[str, tuple[float, ...]]
    width: Tensor
    inner: Mapping[str, Tensor]
    heads: Mapping[str, Activity]
    cross: Mapping[str, Activity]

    def layers(self, stack: str, count: int) -> list[int]:
        """Return the `count` layers of a stack with the largest influence, 1-based, in ascending order."""
        influence = self.influence[stack]
        # The earlier of two layers with the same influence is kept.
        strongest = sorted(range(len(influence)), key=lambda layer: (-influence[layer], layer))[:count]
        return sorted(layer + 1 for layer in strongest)


@torch.no_grad()
def measure(model: PreTrainedModel, batches: Iterable[Mapping[str, Tensor]]) -> Importance:
    """Measure the importance of a model's layers, dimensions, heads and neurons, by one forward pass per batch.

    The model runs in eval mode on its own device. Padding is excluded; batching or order of the texts affects only
    rounding.
    """
    sums, texts = _Sums(), 0
    with _evaluating(model):
        for batch in batches:
            inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
            _pass(model, inputs, sums)
            texts += len(inputs["input_ids"])
    if not texts:
        raise ValueError("nothing can be measured without texts")
    return sums.importance(model, texts)


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Set eval mode inside the block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class _Sums:
    """Named sums over real tokens, in double precision, so that the order of summation hardly matters."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, ...], Tensor] = {}

    def add(self, *of: str, rows: Tensor) -> None:
        """Add rows [tokens, ...] to a sum."""
        total = rows.sum(0, dtype=torch.float64).cpu()
        self.found[of] = self.found[of] + total if of in self.found else total

    def importance(self, model: PreTrainedModel, texts: int) -> Importance:
        """Compute the importance measures from the sums."""
        stacks = stacks_of(model.config)
        tokens = {stack: self.found["tokens", stack] for stack in stacks}

        def layers(what: str, stack: str) -> Tensor:
            count = len(_modules(model, stack))
            return torch.stack([self.found[what, stack, str(layer)] for layer in range(count)]) / tokens[stack]

        def activity(what: str, stack: str) -> Activity:
            return Activity(heads=layers(what, stack), values=layers(f"{what} values", stack))

        crossing = [stack for stack in stacks if layout_of(model.config, stack).cross is not None]
        return Importance(
            texts=texts,
            influence={stack: tuple((self.found["influence", stack] / tokens[stack]).tolist()) for stack in stacks},
            width=torch.stack([self.found["width", stack] / tokens[stack] for stack in stacks]).sum(0),
            inner={stack: layers("inner", stack) for stack in stacks},
            heads={stack: activity("heads", stack) for stack in stacks},
            cross={stack: activity("cross", stack) for stack in crossing},
        )


def _modules(model: PreTrainedModel, stack: str) -> list[nn.Module]:
    """The modules of a stack's layers; a shared module is listed once."""
    return list(model.base_model.get_submodule(layout_of(model.config, stack).layers).children())


def _pass(model: PreTrainedModel, inputs: Mapping[str, Tensor], sums: _Sums) -> None:
    """Run one forward pass with hooks that add to the sums."""
    real = {name: mask.bool() for name, mask in masks_of(model, inputs, accepted_inputs(model, inputs)).items()}
    wanted: dict[str, Any] = {
        stack: Wanted(hidden=range(sizes(model.config, stack).layers + 1), raw_last=True) for stack in real
    }
    handles: list[RemovableHandle] = []
    try:
        for stack, mask in real.items():
            handles += _Watch(model, stack, mask, sums).handles
        outputs = trace(model, inputs, wanted, logits=False)
    finally:
        for handle in handles:
            handle.remove()
    for stack, mask in real.items():
        sums.add("tokens", stack, rows=mask[mask].double())
        _add_states(model, stack, outputs.stack(stack), mask, sums)


def _add_states(model: PreTrainedModel, stack: str, outputs: Stack, mask: Tensor, sums: _Sums) -> None:
    """Add the influence of each layer, and the activity of the last states where no norm follows them."""
    states = [outputs.hidden[layer][mask].float() for layer in range(outputs.depth + 1)]
    changes = [1 - functional.cosine_similarity(before, after, dim=-1) for before, after in itertools.pairwise(states)]
    sums.add("influence", stack, rows=torch.stack(changes, dim=1))
    if layout_of(model.config, stack).norm is None:
        sums.add("width", stack, rows=states[-1].abs())


class _Watch:
    """Hooks on a stack that sum the inputs of its linear maps over real tokens, during one forward pass.

    Hidden states are measured where modules read them, which is always after a norm.
    """

    def __init__(self, model: PreTrainedModel, stack: str, mask: Tensor, sums: _Sums) -> None:
        self.stack, self.mask, self.sums = stack, mask, sums
        self.handles: list[RemovableHandle] = []
        layout, heads = layout_of(model.config, stack), sizes(model.config, stack).heads
        for layer, module in enumerate(_modules(model, stack)):
            # DeBERTa calls its query map again on relative positions; a shared module is called once for each layer.
            self._before(module.get_submodule(layout.projections[0]), self._read, once=not layout.shared)
            self._before(module.get_submodule(_held(module, layout.to_inner)), self._read)
            self._before(module.get_submodule(layout.from_inner), self._inner(layer))
            self._before(module.get_submodule(layout.attended), self._attended("heads", layer, heads))
            if layout.cross is not None and layout.cross_attended is not None:
                self._before(module.get_submodule(layout.cross[0]), self._read)
                self._before(module.get_submodule(layout.cross_attended), self._attended("cross", layer, heads))
        if layout.norm is not None:
            norm = model.base_model.get_submodule(layout.norm)
            self.handles.append(norm.register_forward_hook(lambda _, __, output: self._read(output[self.mask].float())))

    def _before(self, module: nn.Module, add: Callable[[Tensor], None], *, once: bool = False) -> None:
        calls: list[None] = []

        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            calls.append(None)
            if not once or len(calls) == 1:
                add(args[0][self.mask].float())

        self.handles.append(module.register_forward_pre_hook(hook))

    def _read(self, rows: Tensor) -> None:
        self.sums.add("width", self.stack, rows=rows.abs())

    def _inner(self, layer: int) -> Callable[[Tensor], None]:
        return lambda rows: self.sums.add("inner", self.stack, str(layer), rows=rows.abs())

    def _attended(self, what: str, layer: int, heads: int) -> Callable[[Tensor], None]:
        def add(rows: Tensor) -> None:
            outputs = rows.unflatten(-1, (heads, -1))
            self.sums.add(what, self.stack, str(layer), rows=outputs.norm(dim=-1))
            self.sums.add(f"{what} values", self.stack, str(layer), rows=outputs.abs())

        return add


def _held(module: nn.Module, paths: tuple[str, ...]) -> str:
    """Return the first of these paths that exists in a module."""
    names = {name for name, _ in module.named_modules()}
    return next(path for path in paths if path in names)
