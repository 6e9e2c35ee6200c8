"""A search for settings by trials, each proposed from what the trials before it scored on what was held out.

A search needs no coordinator: trial n waits for all before it and is then a function of their scores, so that every
worker proposes the same; the first to write it down is held to. The first few trials are random and wait for none.
"""

from __future__ import annotations

import json
import math
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from stillery.errors import UserError

__all__ = ["RANDOM", "Range", "Search", "Space", "combinations", "nested", "proposed", "range_of", "settle"]

RANDOM = 5
"""How many trials are random before TPE has something to go by. It is no share of all, so that more can be added."""

_DRAWS = 64


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from low to high, both included; by their logarithms if `log`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


Space = Mapping[str, Range | tuple[Any, ...]]
"""What is searched: by setting a range, or values to choose from."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The trials of a row on a task, of all seeds together or of one.

    Attributes:
        name: a hash of the space and of all that the trials have in common.
        space: what is searched.
        values: the other settings, without the seed.
        trials: the cells of each trial.
        seed: what its random numbers come from.
    """

    name: str
    space: Space
    values: Mapping[str, Any]
    trials: tuple[tuple[str, ...], ...]
    seed: int

    def file(self, number: int) -> str:
        """The file of a trial, counted from 0, among the proposals of a study."""
        return f"{self.name}-{number + 1}.json"


def range_of(name: str, value: Mapping[str, Any], whole: bool) -> Range:
    """The range that a table of a plan gives; raises an error where it is none."""
    unknown = sorted(value.keys() - {"low", "high", "log"})
    if unknown or not {"low", "high"} <= value.keys():
        raise UserError(f"{name} is {dict(value)!r}: a range is {{low = ..., high = ..., log = true}}, log if wanted")
    low, high, log = value["low"], value["high"], value.get("log", False)
    numbers = all(type(one) in (int, float) and math.isfinite(one) for one in (low, high))
    if not numbers or low >= high or not isinstance(log, bool):
        raise UserError(f"{name} is {dict(value)!r}: low and high are numbers, low is less, and log is true or false")
    if whole and not all(float(one).is_integer() for one in (low, high)):
        raise UserError(f"{name} is {dict(value)!r}: it is a whole number, so low and high are as well")
    if log and low <= 0:
        raise UserError(f"{name} is {dict(value)!r}: with log = true low is more than 0")
    kind = int if whole else float
    return Range(low=kind(low), high=kind(high), log=log, whole=whole)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a run file has them, with the options of the method, `options.NAME`, in a table.

    >>> nested({"lr": 1e-4, "options.beta": 2})
    {'lr': 0.0001, 'options': {'beta': 2}}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name.startswith("options."):
            found.setdefault("options", {})[name.removeprefix("options.")] = value
        else:
            found[name] = value
    return found


def combinations(space: Space) -> float:
    """How many different trials there can be."""
    sizes = (
        len(one) if isinstance(one, tuple) else one.high - one.low + 1 if one.whole else math.inf
        for one in space.values()
    )
    return math.prod(sizes)


def proposed(place: Path) -> dict[str, Any] | None:
    """The settings of a trial that has been proposed."""
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        return dict(found["settings"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{place}: this proposal cannot be read; remove it, and it is made again") from None


def settle(folder: Path, search: Search, number: int, scores: Sequence[float | None]) -> dict[str, Any]:
    """The settings of a trial; where nobody has proposed it, from the scores of those before it, None for failed ones.

    Trials that are random need no scores.
    """
    place = folder / search.file(number)
    found = proposed(place)
    if found is not None:
        return found
    before = [settle(folder, search, one, scores[:one]) for one in range(number)]
    known = [] if number < RANDOM else list(zip(before, scores, strict=True))
    settings = _proposal(search, number, before, known)
    note = {"trial": number + 1, "settings": settings, "scores": [score for _, score in known]}
    _write_first(place, json.dumps(note, indent=1) + "\n")
    return proposed(place) or settings


def _proposal(
    search: Search, number: int, before: Sequence[Mapping[str, Any]], known: Sequence[tuple[Any, float | None]]
) -> dict[str, Any]:
    """A trial that is none of those before it."""
    # Independent of the method: the random trials of all rows have the same learning rates, and so on.
    seed = search.seed * 10_007 + number
    for attempt in range(_DRAWS):
        settings = _drawn(search.space, seed + attempt * 1_000_003, known)
        if settings not in before:
            return settings
    # TPE insists on one of few values.
    values = (
        one if isinstance(one, tuple) else range(int(one.low), int(one.high) + 1) for one in search.space.values()
    )
    every = [dict(zip(search.space, some, strict=True)) for some in product(*values)]
    return random.Random(seed).choice([one for one in every if one not in before])


def _drawn(space: Space, seed: int, known: Sequence[tuple[Any, float | None]]) -> dict[str, Any]:
    """What Optuna proposes after these trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    choices = {name: _distribution(one) for name, one in space.items()}
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
    )
    for settings, score in known:
        # One that was given up counts as worse than all that were not.
        how = {"state": optuna.trial.TrialState.PRUNED} if score is None else {"value": score}
        study.add_trial(optuna.trial.create_trial(params=dict(settings), distributions=choices, **how))
    found = study.ask(choices).params
    return {name: _rounded(found[name], one) for name, one in space.items()}


def _distribution(one: Range | tuple[Any, ...]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(one, tuple):
        return CategoricalDistribution(one)
    if one.whole:
        return IntDistribution(int(one.low), int(one.high), log=one.log)
    return FloatDistribution(one.low, one.high, log=one.log)


def _rounded(value: Any, one: Range | tuple[Any, ...]) -> Any:
    """A number of a range to four digits, as a report shows it."""
    if isinstance(one, tuple) or one.whole:
        return value
    return min(max(float(f"{value:.4g}"), one.low), one.high)


def _write_first(place: Path, text: str) -> None:
    """Write a file, unless there is one: it appears whole, and never changes."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.parent / f".{uuid.uuid4().hex}.part"
    try:
        part.write_text(text, encoding="utf-8")
        try:
            os.link(part, place)
        except FileExistsError:
            pass
        except OSError:
            # A file system without hard links; whoever else writes at this moment writes the same.
            if not place.exists():
                part.replace(place)
    finally:
        part.unlink(missing_ok=True)
