"""The cached arrays of teacher outputs that a stage needs, with a row per example or per token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from stillery.models.wanted_outputs import Stack, Trace, Wanted
from stillery.pair_distances import flat_layers
from stillery.parts import represent
from stillery.parts._wide import wide
from stillery.train.step_plan import Needs, StepPlan

__all__ = [
    "LOGITS",
    "CacheContents",
    "CachedArray",
    "array_rows",
    "contents_of",
    "frame_of",
    "layers_in",
    "shortened",
    "trace_of",
    "wanted_for",
]

LOGITS = ("logits", "token_logits")
"""The kinds of logits: with a row per example, or per token for token classification."""

_STATES_OF_TOKENS = ("hidden", "query", "key", "value")
_POOLED = ("first", "mean")


@dataclass(frozen=True, order=True)
class CachedArray:
    """An array of the teacher cache: logits, feature, or hidden states, queries, keys or values of a layer's tokens.

    `logits` have a row per example, `token_logits` one per token.

    States of the first token (`first`), or means over real tokens (`mean`), are cached for all layers side by side, the
    embedding output first, so that methods that choose or draw other layers can use them too.
    """

    kind: Literal["logits", "token_logits", "feature", "first", "mean", "hidden", "query", "key", "value"]
    layer: int = 0

    @property
    def of_tokens(self) -> bool:
        """True for an array with a row per token instead of per example."""
        return self.of_token_states or self.kind == "token_logits"

    @property
    def of_token_states(self) -> bool:
        """True for an array with a row of a layer's outputs per token."""
        return self.kind in _STATES_OF_TOKENS

    @property
    def pooled(self) -> bool:
        """True for an array with a row per example with the states of all layers."""
        return self.kind in _POOLED

    def __str__(self) -> str:
        if self.kind in (*LOGITS, "feature"):
            return self.kind.replace("_", " ")
        if self.pooled:
            return f"{'first tokens' if self.kind == 'first' else 'means'} of all layers"
        return f"{'tokens' if self.kind == 'hidden' else self.kind} of layer {self.layer}"


@dataclass(frozen=True, kw_only=True)
class CacheContents:
    """The cached arrays of a stage, and the layers' outputs they cover.

    Where none of them is `of_token_states`, a layer is restored as a text of one token, whose first or mean state is
    bit-identical to the cached row.
    """

    arrays: frozenset[CachedArray]
    layers: frozenset[tuple[str, int]]

    @property
    def attends(self) -> bool:
        """True if the arrays include queries, keys or values of attention."""
        return any(array.kind in ("query", "key", "value") for array in self.arrays)

    @property
    def pooled(self) -> CachedArray | None:
        """The array with rows of all layers, for layers without an array of tokens."""
        return next((array for array in self.arrays if array.pooled), None)

    def covers(self, needs: Needs) -> bool:
        """Return whether it includes all needed outputs."""
        return layers_in(needs) <= self.layers


def layers_in(needs: Needs) -> set[tuple[str, int]]:
    """The needed outputs as (name, layer), for a model with one stack."""
    return {(name, layer) for wanted in needs.values() for name, layers in wanted.layers.items() for layer in layers}


def contents_of(plans: Sequence[StepPlan], *, by_token: bool = False) -> CacheContents | str:
    """Return the arrays that a stage with these plans needs on plain examples, or why they cannot be cached.

    `by_token` is true for a model with predictions per token.
    """
    stage = plans[0].stage
    states: dict[int, set[str]] = {}
    arrays = {CachedArray("token_logits" if by_token else "logits")} if stage.prediction is not None else set()
    for number, match in enumerate(stage.matches):
        if match.against == "student" or match.view != "plain":
            continue
        represent = match.represent
        if represent.raw_last:
            return f"{match.name} compares a state that is not cached, {represent.name}"
        for layer in {layer for plan in plans for _, theirs in plan.pairs[number] for layer in flat_layers(theirs)}:
            for need in represent.needs:
                if need == "feature":
                    arrays.add(CachedArray("feature", layer))
                elif represent.reads == "all":
                    return f"{match.name} compares padding too ({represent.name}), which depends on who shares a batch"
                elif need == "hidden":
                    states.setdefault(layer, set()).add(represent.reads)
                elif need in ("query", "key", "value"):
                    arrays.add(CachedArray(need, layer))
                else:
                    return f"{match.name} compares {need}, which is not cached"
    layers = {(array.kind, array.layer) for array in arrays if array.kind not in LOGITS}
    layers |= {("hidden", layer) for layer in states}
    of_tokens = any(array.of_token_states for array in arrays)
    return CacheContents(arrays=frozenset(arrays | _state_arrays(states, of_tokens)), layers=frozenset(layers))


def _state_arrays(states: Mapping[int, set[str]], others: bool) -> set[CachedArray]:
    """The arrays of hidden states, by layer and the tokens that are compared: with a row per example if possible."""
    every: set[str] = set().union(*states.values())
    if not others and every == {"mean"}:
        return {CachedArray("mean")}
    # A first token can stand beside all tokens of other layers. A mean cannot: it is restored as a text of one token.
    plain = {layer for layer, kinds in states.items() if kinds == {"first"}}
    firsts = {CachedArray("first")} if plain else set()
    return {CachedArray("hidden", layer) for layer in states.keys() - plain} | firsts


def wanted_for(arrays: Iterable[CachedArray], depth: int) -> Wanted:
    """Return the outputs that a teacher with `depth` layers must keep for these arrays."""
    layers: dict[str, set[int]] = {}
    first = True
    for array in arrays:
        first = first and array.kind != "mean" and (array.kind, array.layer) != ("hidden", depth)
        if array.pooled:
            layers.setdefault("hidden", set()).update(range(depth + 1))
        elif array.kind not in LOGITS:
            layers.setdefault(array.kind, set()).add(array.layer)
    return Wanted(**layers, first_of_last=first)  # type: ignore[arg-type]


def shortened(arrays: Iterable[CachedArray], mask: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return a function that reduces states [batch, tokens, width] to [batch, width]; None if all tokens are needed.

    The full states of all layers may be larger than everything else in a teacher's forward pass.
    """
    kinds = {array.kind for array in arrays if array.pooled or array.kind == "hidden"}
    if kinds == {"first"}:
        # A copy, because a view would keep the full state in memory.
        return lambda states: states[:, 0].clone()
    return partial(_mean, represent.real(mask, torch.float32)) if kinds == {"mean"} else None


def array_rows(array: CachedArray, trace: Trace) -> Tensor:
    """Return an array's rows from the teacher's outputs on a batch: one per example, or per real token, in order.

    States may be `shortened`.
    """
    stack = trace.stack()
    if array.kind == "logits":
        return trace.logits
    if array.kind == "token_logits":
        return trace.logits[stack.mask.to(torch.bool)]
    if array.kind == "feature":
        return stack.feature[array.layer]
    if array.pooled:
        return torch.cat([_pooled(array, stack, layer) for layer in range(stack.depth + 1)], dim=-1)
    rows: Tensor = getattr(stack, array.kind)[array.layer][stack.mask.to(torch.bool)]
    return rows


def _pooled(array: CachedArray, stack: Stack, layer: int) -> Tensor:
    states = stack.hidden[layer]
    if states.ndim == 2:
        return states
    return states[:, 0] if array.kind == "first" else _mean(represent.real(stack.mask, torch.float32), states)


def _mean(real: tuple[Tensor, Tensor], states: Tensor) -> Tensor:
    return represent.mean(wide(states), *real)


def frame_of(stack: Stack) -> Stack:
    """Return a copy of a stack without outputs: its sizes and its attention settings."""
    return Stack(
        hidden={}, mask=stack.mask[:0], heads=stack.heads, depth=stack.depth, key_heads=stack.key_heads,
        scale=stack.scale, causal=stack.causal,
    )  # fmt: skip


def trace_of(cached: Mapping[CachedArray, Tensor], frame: Stack, mask: Tensor) -> Trace:
    """Return the trace of a batch from its cached rows; token rows are padded as the `mask` [batch, tokens] is."""
    whole = any(array.of_token_states for array in cached)
    layers: dict[str, dict[int, Tensor]] = {"hidden": {}}
    for array, values in cached.items():
        if array.kind not in LOGITS:
            need = "hidden" if array.pooled else array.kind
            layers.setdefault(need, {})[array.layer] = values.unsqueeze(1) if array.pooled else values
    # The first token of a text is real, and so is the one token that represents a text.
    stack = replace(frame, mask=mask if whole else mask[:, :1], **layers)  # type: ignore[arg-type]
    logits = next((values for array, values in cached.items() if array.kind in LOGITS), None)
    return Trace(logits=logits if logits is not None else torch.empty(len(mask), 0, device=mask.device), encoder=stack)
