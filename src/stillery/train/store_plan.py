"""What of a teacher a stage looks at, as arrays that can be kept: a row for each example, or for each of its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor

from stillery.models.trace import Stack, Trace, Wanted
from stillery.parts import represent
from stillery.parts._wide import wide
from stillery.recipe import Clock, StackName, Stage
from stillery.terms import Between, flat_layers
from stillery.train.needs import Needs, pairs_of

__all__ = ["Plan", "What", "layers_in", "plan_of", "shown_again", "taken", "wanted_for"]

_OF_TOKENS = ("hidden", "query", "key", "value")
_HIDDEN = ("first", "mean", "hidden")


@dataclass(frozen=True, order=True)
class What:
    """One array: logits, the classifier's feature or, of a layer, states, queries, keys or values of its tokens.

    Of the states it may be the first token's alone (`first`), or the mean of the real ones (`mean`).
    """

    kind: Literal["logits", "feature", "first", "mean", "hidden", "query", "key", "value"]
    layer: int = 0

    @property
    def of_tokens(self) -> bool:
        """Whether it has a row for each token, and not for each example."""
        return self.kind in _OF_TOKENS

    @property
    def need(self) -> str:
        """What a teacher has to show for it."""
        return "hidden" if self.kind in _HIDDEN else self.kind

    def __str__(self) -> str:
        if self.kind in ("logits", "feature"):
            return self.kind
        names = {"first": "first token", "mean": "mean", "hidden": "tokens"}
        return f"{names.get(self.kind, self.kind)} of layer {self.layer}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arrays of a stage.

    Where none of them is `of_tokens`, a layer is shown again as a text of one token: the first one of it, or the mean
    one, is then the row that was kept, bit for bit.
    """

    arrays: frozenset[What]

    @property
    def of_tokens(self) -> bool:
        """Whether any array has a row for each token."""
        return any(what.of_tokens for what in self.arrays)

    @property
    def attends(self) -> bool:
        """Whether it holds more than states: what attention is made from."""
        return any(what.kind in ("query", "key", "value") for what in self.arrays)

    def covers(self, needs: Needs) -> bool:
        """Whether everything that is needed is in it."""
        return layers_in(needs) <= {(what.need, what.layer) for what in self.arrays}


def layers_in(needs: Needs) -> set[tuple[str, int]]:
    """What is needed and of which layer, of a model of one stack."""
    return {
        (each.name, layer)
        for wanted in needs.values()
        for each in fields(Wanted)
        if each.name != "raw_last"
        for layer in getattr(wanted, each.name)
    }


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
                elif shown.looks_at == "all":
                    return f"{match.name} looks at padding too ({shown.name}), which depends on who shares a batch"
                elif need == "hidden":
                    states.setdefault(layer, set()).add({"real": "hidden"}.get(shown.looks_at, shown.looks_at))
                elif need in ("query", "key", "value"):
                    arrays.add(What(need, layer))
                else:
                    return f"{match.name} looks at {need}, which is not kept"
    return Plan(arrays=frozenset(arrays | _rows(states, any(what.of_tokens for what in arrays))))


def _rows(states: Mapping[int, set[str]], others: bool) -> set[What]:
    """A row per example wherever that is enough."""
    # A mean is made again from a text of one token, so not beside texts of all their tokens.
    tokens = others or any("hidden" in kinds or len(kinds) > 1 for kinds in states.values())
    plain: set[What] = set()
    for layer, kinds in states.items():
        if kinds == {"first"} or (kinds == {"mean"} and not tokens):
            plain.add(What("first" if kinds == {"first"} else "mean", layer))
        else:
            plain.add(What("hidden", layer))
    return plain


def wanted_for(arrays: Iterable[What]) -> Wanted:
    """What a teacher has to show for these arrays."""
    layers: dict[str, set[int]] = {}
    for what in arrays:
        if what.kind != "logits":
            layers.setdefault(what.need, set()).add(what.layer)
    return Wanted(**layers)  # type: ignore[arg-type]


def taken(what: What, shown: Trace) -> Tensor:
    """The rows of one array out of what a teacher showed on a batch: its examples', or all their tokens', in order."""
    stack = shown.stack()
    if what.kind == "logits":
        return shown.logits
    if what.kind == "feature":
        return stack.feature[what.layer]
    if what.kind == "first":
        return stack.hidden[what.layer][:, 0]
    if what.kind == "mean":
        widened = replace(stack, hidden={what.layer: wide(stack.hidden[what.layer])})
        return represent.pool.show(widened, what.layer).values
    rows: Tensor = getattr(stack, what.kind)[what.layer][stack.mask.to(torch.bool)]
    return rows


def shown_again(kept: Mapping[What, Tensor], like: Stack, mask: Tensor) -> Trace:
    """The trace of a batch from its rows of each array; token rows are padded as the `mask` [batch, tokens] is."""
    whole = any(what.of_tokens for what in kept)
    layers: dict[str, dict[int, Tensor]] = {"hidden": {}}
    for what, values in kept.items():
        if what.kind != "logits":
            alone = what.kind in ("first", "mean")
            layers.setdefault(what.need, {})[what.layer] = values.unsqueeze(1) if alone else values
    stack = replace(like, mask=mask if whole else mask.new_ones(len(mask), 1), **layers)  # type: ignore[arg-type]
    logits = kept.get(What("logits"))
    return Trace(logits=logits if logits is not None else torch.empty(len(mask), 0, device=mask.device), encoder=stack)
