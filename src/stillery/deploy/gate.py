"""The gate: an exported model has to predict what its checkpoint predicts, on real examples."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.deploy.quantise import Setting

__all__ = ["Check", "Tried", "first_that_passes"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """An exported model beside its checkpoint, on the same examples.

    Attributes:
        difference: the largest absolute difference of a logit.
        agreement: the percentage of equal predictions; for scores 100 times their correlation.
        metric: the name of the score.
        value: the score in percent.
        interval: its 95% interval.
    """

    difference: float
    agreement: float
    metric: str
    value: float
    interval: tuple[float, float] | None

    def passes(self, least: float) -> bool:
        """Return whether the agreement is at least this percentage; False if it is not a number."""
        return self.agreement >= least

    def __str__(self) -> str:
        between = "" if self.interval is None else " (95%: {:.2f} to {:.2f})".format(*self.interval)
        return (
            f"agreement {self.agreement:.2f}%, largest logit difference {self.difference:.2g}, "
            f"{self.metric} {self.value:.2f}{between}"
        )

    def record(self) -> dict[str, Any]:
        """Return the numbers for a JSON file."""
        return {
            "largest_difference": self.difference,
            "agreement": round(self.agreement, 4),
            "metric": self.metric,
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
        }


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A setting of the quantiser, the file it gave, in a folder of its own, and its comparison with the checkpoint."""

    setting: Setting
    file: Path
    check: Check


def first_that_passes(
    settings: Iterable[Setting], attempt: Callable[[Setting], Tried], least: float, before: Sequence[Tried] = ()
) -> tuple[Tried, list[Tried]]:
    """Try settings until one passes the gate; return that one, else the best one, and all that were tried.

    The best one agrees most; of equals the one with the smallest difference. The folders of the others are removed.
    `before` are attempts that did not pass, one of which may still be the best.
    """
    tried = list(before)
    for setting in settings:
        tried.append(attempt(setting))
        if tried[-1].check.passes(least):
            break
    passed = tried[-1].check.passes(least)
    best = tried[-1] if passed else max(tried, key=lambda one: (_number(one.check.agreement), -one.check.difference))
    for one in tried:
        if one is not best:
            shutil.rmtree(one.file.parent, ignore_errors=True)
    return best, tried


def _number(value: float) -> float:
    return value if value == value else float("-inf")
