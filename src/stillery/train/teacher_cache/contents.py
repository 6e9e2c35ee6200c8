"""What of a teacher a stage looks at, as arrays that can be kept: a row for each example, or for each of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from stillery.losses import Between, flat_layers
from stillery.models.outputs import Stack, Trace, Wanted
from stillery.parts import represent
from stillery.parts._wide import wide
from stillery.recipe import Clock, StackName, Stage
from stillery.train.step_plan import Needs, pairs_of

__all__ = ["Plan", "What", "frame_of", "layers_in", "plan_of", "shortened", "shown_again", "taken", "wanted_for"]

_OF_TOKENS = ("hidden", "query", "key", "value")
_POOLED = ("first", "mean")


@dataclass(frozen=True, order=True)
class What:
    """One array: logits, the classifier's feature or, of a layer, states, queries, keys or values of its tokens.

    States of the first token alone (`first`), or the mean of the real ones (`mean`), are kept of all layers side by
    side, the embedding output first: so methods that choose others, or draw them, find them too.
    """

    kind: Literal["logits", "feature", "first", "mean", "hidden", "query", "key", "value"]
    layer: int = 0

    @property
    def of_tokens(self) -> bool:
        """Whether it has a row for each token, and not for each example."""
        return self.kind in _OF_TOKENS

    @property
    def pooled(self) -> bool:
        """Whether it has a row for each example that holds all layers."""
        return self.kind in _POOLED

    def __str__(self) -> str:
        if self.kind in ("logits", "feature"):
            return self.kind
        if self.pooled:
            return f"{'first tokens' if self.kind == 'first' else 'means'} of all layers"
        return f"{'tokens' if self.kind == 'hidden' else self.kind} of layer {self.layer}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arrays of a stage, and what of which layer they stand for.

    Where none of them is `of_tokens`, a layer is shown again as a text of one token: the first one of it, or the mean
    one, is then the row that was kept, bit for bit.
    """

    arrays: frozenset[What]
    layers: frozenset[tuple[str, int]]

    @property
    def attends(self) -> bool:
        """Whether it holds more than states: what attention is made from."""
        return any(what.kind in ("query", "key", "value") for what in self.arrays)

    @property
    def pooled(self) -> What | None:
        """The array that has a row of all layers, for those that none of tokens is for."""
        return next((what for what in self.arrays if what.pooled), None)

    def covers(self, needs: Needs) -> bool:
        """Whether everything that is needed is in it."""
        return layers_in(needs) <= self.layers


def layers_in(needs: Needs) -> set[tuple[str, int]]:
    """What is needed and of which layer, of a model of one stack."""
    return {(name, layer) for wanted in needs.values() for name, layers in wanted.layers.items() for layer in layers}


def plan_of(stage: Stage, between: Mapping[StackName | None, Between], clocks: Iterable[Clock]) -> Plan | str:
    """The arrays a stage needs of plain examples at any of these times, or why they cannot be kept."""
    states: dict[int, set[str]] = {}
    arrays = {What("logits")} if stage.prediction is not None else set()
    clocks = list(clocks)
    for match in stage.matches:
        if match.against == "student" or match.view != "plain":
            continue
        shown = match.represent
        if shown.raw_last:
            return f"{match.name} looks at a state that is not kept, {shown.name}"
        pairs = [pair for clock in clocks for pair in pairs_of(match, *between[match.stack].depths, clock)]
        for layer in {layer for _, theirs in pairs for layer in flat_layers(theirs)}:
            for need in shown.needs:
                if need == "feature":
                    arrays.add(What("feature", layer))
                elif shown.reads == "all":
                    return f"{match.name} looks at padding too ({shown.name}), which depends on who shares a batch"
                elif need == "hidden":
                    states.setdefault(layer, set()).add(shown.reads)
                elif need in ("query", "key", "value"):
                    arrays.add(What(need, layer))
                else:
                    return f"{match.name} looks at {need}, which is not kept"
    layers = {(what.kind, what.layer) for what in arrays if what.kind != "logits"}
    layers |= {("hidden", layer) for layer in states}
    return Plan(
        arrays=frozenset(arrays | _rows(states, any(what.of_tokens for what in arrays))), layers=frozenset(layers)
    )


def _rows(states: Mapping[int, set[str]], others: bool) -> set[What]:
    """A row per example wherever that is enough."""
    every: set[str] = set().union(*states.values())
    if not others and every == {"mean"}:
        return {What("mean")}
    # A first token can stand beside texts of all their tokens. A mean cannot: it is made again from a text of one.
    plain = {layer for layer, kinds in states.items() if kinds == {"first"}}
    return {What("hidden", layer) for layer in states.keys() - plain} | ({What("first")} if plain else set())


def wanted_for(arrays: Iterable[What], depth: int) -> Wanted:
    """What a teacher of so many layers has to show for these arrays."""
    layers: dict[str, set[int]] = {}
    first = True
    for what in arrays:
        first = first and what.kind != "mean" and (what.kind, what.layer) != ("hidden", depth)
        if what.pooled:
            layers.setdefault("hidden", set()).update(range(depth + 1))
        elif what.kind != "logits":
            layers.setdefault(what.kind, set()).add(what.layer)
    return Wanted(**layers, first_of_last=first)  # type: ignore[arg-type]


def shortened(arrays: Iterable[What], mask: Tensor) -> Callable[[Tensor], Tensor] | None:
    """What is enough of a state [batch, tokens, width] for these arrays, [batch, width]; None where all of it is.

    States of all layers together may be more than everything else that a teacher holds while it runs.
    """
    kinds = {what.kind for what in arrays if what.pooled or what.kind == "hidden"}
    if kinds == {"first"}:
        # A copy, or it would keep the whole state.
        return lambda states: states[:, 0].clone()
    return partial(_mean, represent.real(mask, torch.float32)) if kinds == {"mean"} else None


def taken(what: What, shown: Trace) -> Tensor:
    """The rows of one array out of what a teacher showed on a batch: its examples', or all their tokens', in order.

    States may be `shortened`.
    """
    stack = shown.stack()
    if what.kind == "logits":
        return shown.logits
    if what.kind == "feature":
        return stack.feature[what.layer]
    if what.pooled:
        return torch.cat([_row(what, stack, layer) for layer in range(stack.depth + 1)], dim=-1)
    rows: Tensor = getattr(stack, what.kind)[what.layer][stack.mask.to(torch.bool)]
    return rows


def _row(what: What, stack: Stack, layer: int) -> Tensor:
    states = stack.hidden[layer]
    if states.ndim == 2:
        return states
    return states[:, 0] if what.kind == "first" else _mean(represent.real(stack.mask, torch.float32), states)


def _mean(real: tuple[Tensor, Tensor], states: Tensor) -> Tensor:
    return represent.mean(wide(states), *real)


def frame_of(stack: Stack) -> Stack:
    """A stack without anything it showed: its sizes, and how it makes scores."""
    return Stack(
        hidden={}, mask=stack.mask[:0], heads=stack.heads, depth=stack.depth, key_heads=stack.key_heads,
        scale=stack.scale, causal=stack.causal,
    )  # fmt: skip


def shown_again(kept: Mapping[What, Tensor], frame: Stack, mask: Tensor) -> Trace:
    """The trace of a batch from its rows of each layer; those of tokens are padded as the `mask` [batch, tokens] is."""
    whole = any(what.of_tokens for what in kept)
    layers: dict[str, dict[int, Tensor]] = {"hidden": {}}
    for what, values in kept.items():
        if what.kind != "logits":
            need = "hidden" if what.pooled else what.kind
            layers.setdefault(need, {})[what.layer] = values.unsqueeze(1) if what.pooled else values
    # The first token of a text is real, and so is the one that stands for all.
    stack = replace(frame, mask=mask if whole else mask[:, :1], **layers)  # type: ignore[arg-type]
    logits = kept.get(What("logits"))
    return Trace(logits=logits if logits is not None else torch.empty(len(mask), 0, device=mask.device), encoder=stack)
