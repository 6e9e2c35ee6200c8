"""The denominator of each loss term, and a check before the first step that its micro-batches add up.

Every match is evaluated on a small synthetic batch: whole, divided, and with extra padding. The weights with which its
micro-batches add up to the whole determine its denominator. So nothing has to be known about a distance or a
representation, and one whose value changes with padding or with the division of a step is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stillery import declare
from stillery.errors import UserError
from stillery.models.wanted_outputs import Stack
from stillery.pair_distances import mean_of, pair_distance
from stillery.parts.distance import REDUCTIONS
from stillery.recipe import MIXED_ROWS, Combine, Distance, Match, Representation, Rows, View, part_name
from stillery.train.trainable import counted

__all__ = ["Denominator", "rows_of"]

Denominator = Rows | Literal["sum", "counted"]
"""A kind of rows; `sum` where micro-batches are simply added up; `counted` where the distance returns its own count."""

_ENCODER, _DECODER = np.array([7, 5, 2, 4]), np.array([6, 3, 5, 2])
_CUTS = ((0, 1, 2, 3), (0,), (1, 2, 3))
_CLOSE = 1e-5
_LAYERS = 3


def rows_of(match: Match, first: str = "encoder") -> Denominator:
    """Return the denominator of a match; `first` is the models' first stack, for a match that names none.

    Raise UserError for a match whose micro-batches do not add up to the whole step.
    """
    if match.criterion is not None:
        return "examples"
    found = _found(_Compared.of(match), (match.stack or first) == "decoder")
    if isinstance(found, UserError):
        raise UserError(f"match {match.name}: {found}")
    mixed: Mapping[str, Rows] = MIXED_ROWS  # type: ignore[assignment]
    return mixed.get(found, found) if match.view == "mixed" else found


@dataclass(frozen=True)
class _Compared:
    """The parts of a match that determine its denominator."""

    represent: Representation
    distance: Distance
    reduction: str
    combine: Combine | None

    @classmethod
    def of(cls, match: Match) -> _Compared:
        return cls(match.represent, match.distance, match.reduction, match.combine)

    def match(self, **changes: object) -> Match:
        """A match that compares one layer with one, or as many as its parts need."""
        given: dict[str, Any] = {**vars(self), **changes}
        return Match(name="tried", pair=lambda ours, theirs, clock: [], **given)


@lru_cache(maxsize=512)
def _found(compared: _Compared, decoder: bool) -> Denominator | UserError:
    with torch.random.fork_rng(devices=[]):
        return _find(compared, decoder)


def _find(compared: _Compared, decoder: bool) -> Denominator | UserError:
    match = compared.match()
    try:
        if _together(match):
            # It is declared to depend on its batch; that it runs at all has not been checked yet.
            whole = _Tried(match, _CUTS[0], decoder)
            if _needs_keys(match, decoder) and not np.isclose(whole.padded, whole.value, rtol=_CLOSE):
                return UserError(_why_not(compared, decoder))
            return _declared(match, decoder)
        return _adds_up(match, decoder) or UserError(_why_not(compared, decoder))
    except UserError as error:
        return error
    except Exception as error:  # user code may raise anything; it is reported in one line
        if _needs_keys(match, decoder):
            return UserError(_why_not(compared, decoder))
        line = (str(error).strip().splitlines() or [""])[0]
        return UserError(
            f"{part_name(match.distance)} on {match.represent.name} fails on a small batch: "
            f"{type(error).__name__}: {line}"
        )


def _needs_keys(match: Match, decoder: bool) -> bool:
    """Return whether its rows have padded keys and its distance takes no `key_mask` to exclude them."""
    if declare.takes(match.distance, "key_mask"):
        return False
    try:
        return _view(match, decoder).key_mask is not None
    except Exception:  # user code again; its error has been reported above
        return False


def _view(match: Match, decoder: bool) -> View:
    """The student's representation on the synthetic texts."""
    return match.represent.extract(
        _stack(match, _CUTS[0], decoder, 0, 0),
        tuple(range(1, _LAYERS + 1)) if match.represent.joint else 1,
        **({"heads": 2} if match.represent.heads == "teacher" else {}),
    )


def _together(match: Match) -> bool:
    """Return whether it is declared to depend on which examples share a batch, so that dividing a step changes it."""
    distance, reduction = declare.facts_of(match.distance), declare.known("reduction", match.reduction)
    return match.represent.together or bool(distance and distance.together) or bool(reduction and reduction.together)


def _declared(match: Match, decoder: bool) -> Denominator:
    """The denominator that its parts declare."""
    distance, reduction = declare.facts_of(match.distance), declare.known("reduction", match.reduction)
    if distance is not None and distance.over == "examples":
        return "examples"
    if reduction is not None and reduction.over is None:
        return "sum"
    rows = match.represent.rows
    return "decoder tokens" if decoder and rows == "tokens" else rows


def _adds_up(match: Match, decoder: bool) -> Denominator | None:
    """The denominator whose micro-batch weights make them add up to the whole; None without one."""
    tried = [_Tried(match, cut, decoder) for cut in _CUTS]
    whole, *parts = tried
    found = [one.value for one in tried]
    if any(not np.isclose(one.padded, one.value, rtol=_CLOSE, atol=1e-9) for one in tried):
        return None

    def comes_to(weights: Sequence[float]) -> bool:
        together = sum(value * weight for value, weight in zip(found[1:], weights, strict=True))
        return bool(np.isclose(together, found[0], rtol=_CLOSE, atol=1e-9))

    kinds: list[Rows] = list(dict.fromkeys([_declared(match, decoder), *whole.rows]))  # type: ignore[list-item]
    if comes_to([1.0] * len(parts)):
        return "sum"
    for kind in kinds:
        if kind in whole.rows and comes_to([one.rows[kind] / whole.rows[kind] for one in parts]):
            return kind
    if whole.counts is not None:
        totals = [one.value * one.counts for one in tried if one.counts is not None]
        counts = [one.counts for one in tried if one.counts is not None]
        if all(np.isclose(sum(each[1:]), each[0], rtol=_CLOSE, atol=1e-9) for each in (totals, counts)):
            return "counted"
    return None


class _Tried:
    """A match on some synthetic texts: its value, that with extra padding, its count, and their numbers of rows."""

    def __init__(self, match: Match, texts: Sequence[int], decoder: bool) -> None:
        chosen = list(texts)
        self.rows: dict[Rows, int] = {"examples": len(chosen)}
        self.rows |= counted(_ENCODER[chosen], _DECODER[chosen] if decoder else None)
        self.value, self.counts = _measured(match, chosen, decoder, padding=0)
        self.padded, _ = _measured(match, chosen, decoder, padding=3)


@torch.no_grad()
def _measured(match: Match, texts: Sequence[int], decoder: bool, padding: int) -> tuple[float, float | None]:
    represent = match.represent
    student, teacher = (_stack(match, texts, decoder, padding, side) for side in (0, 1))
    layers: int | tuple[int, ...] = tuple(range(1, _LAYERS + 1)) if represent.joint else 1
    pair = (layers, (1, 2)) if match.combine is not None else (layers, layers)
    found = pair_distance(match, student, teacher, pair)
    count = None if isinstance(found, Tensor) else float(found[1])
    return float(mean_of(found)), count


def _stack(match: Match, texts: Sequence[int], decoder: bool, padding: int, side: int) -> Stack:
    """A stack with synthetic values for the representation's inputs, the same for a text in any batch."""
    represent, heads = match.represent, 2
    width = 2 * lcm(2 * heads, represent.heads if isinstance(represent.heads, int) else 1)
    own, other = (_DECODER, _ENCODER) if decoder else (_ENCODER, _DECODER)
    layers = range(1, _LAYERS + 1) if represent.joint or match.combine is not None else (1,)

    def values_of(lengths: np.ndarray, number: int, layer: int) -> Tensor:
        longest = int(lengths[list(texts)].max()) + padding
        rows = []
        for text in texts:
            random = np.random.default_rng([side, number, layer, text])
            real = random.normal(size=(int(lengths[text]), width))
            # Padding values differ between batches and paddings.
            waste = 9 * np.random.default_rng([len(texts), padding, side, number, layer, text]).normal(
                size=(longest - len(real), width)
            )
            rows.append(np.concatenate([real, waste]))
        return torch.from_numpy(np.stack(rows))

    def mask(lengths: np.ndarray) -> Tensor:
        chosen = lengths[list(texts)]
        return torch.from_numpy((np.arange(int(chosen.max()) + padding) < chosen[:, None]).astype(np.int64))

    states: dict[str, dict[int, Tensor]] = {}
    for number, need in enumerate(represent.needs):
        lengths = other if need == "cross_key" else own
        values = {layer: values_of(lengths, number, layer) for layer in layers}
        states[need] = {layer: one[:, 0] for layer, one in values.items()} if need == "feature" else values
    return Stack(
        **{"hidden": {}, **states},  # type: ignore[arg-type]
        mask=mask(own),
        heads=heads,
        depth=_LAYERS,
        cross_mask=mask(other) if decoder else None,
        causal=decoder,
    )


def _why_not(compared: _Compared, decoder: bool) -> str:
    """The reason why micro-batches do not add up to the whole, and a remedy."""
    match = compared.match()
    what, how = match.represent.name, part_name(match.distance)
    if _needs_keys(match, decoder):
        known = [one.word for one in declare.declared("distance") if one.word and declare.takes(one.part, "key_mask")]
        return f"{what} have padded keys to leave out; use the distance {' or '.join(known)}"
    if not all(np.isfinite(_Tried(match, cut, decoder).value) for cut in _CUTS):
        return f"{how} on {what} is not finite on a small batch"
    others = _other_reductions(compared, decoder)
    if others:
        return f"{what} of long texts have more elements than of short ones; use --reduction {' or '.join(others)}"
    return (
        f"{how} on {what} changes when a step is cut into micro-batches or padded: it has to be a mean over rows, "
        "elements or examples that leaves out what mask= and key_mask= say, or to give its sum and its count; where it "
        "is meant to depend on who shares a batch, declare that (together=True)"
    )


def _other_reductions(compared: _Compared, decoder: bool) -> list[str]:
    """The reductions over rows with which micro-batches would add up."""
    if not declare.takes(compared.distance, "reduction"):
        return []
    known = {word: declare.known("reduction", word) for word in REDUCTIONS}
    rows = [word for word, one in known.items() if one is not None and one.over == "rows" and not one.together]
    found = []
    for word in reversed(rows):
        # A user's distance may name its reductions differently.
        with suppress(Exception):
            found += [word] if _adds_up(compared.match(reduction=word), decoder) else []
    return found
