"""The gate: an exported model has to predict what its checkpoint predicts, on real examples."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.deploy.quantise import Setting

__all__ = ["Agreement", "Check", "Tried", "first_that_passes"]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well an exported model agrees with its checkpoint, 100 at best.

    Attributes:
        value: the percentage, or 100 times a cosine or correlation.
        name: what is measured.
        share: whether it is a percentage.
        about: a sentence that explains it, where its name does not.
    """

    value: float
    name: str = "agreement"
    share: bool = True
    about: str = ""

    def __str__(self) -> str:
        return f"{self.value:.2f}%" if self.share else f"{self.value / 100:.4f}"

    def least(self, value: float) -> str:
        """Return a threshold between 0 and 100 in the same form."""
        return f"{value:g}%" if self.share else f"{value / 100:g}"


@dataclass(frozen=True, kw_only=True)
class Check:
    """An exported model beside its checkpoint, on the same examples.

    Attributes:
        difference: the largest absolute difference of an output.
        agreement: the percentage of equal predictions, or what stands for it in models without classes.
        metric: the name of the score.
        value: the score in percent.
        interval: its 95% interval.
        output: what an output of the model is called.
    """

    difference: float
    agreement: Agreement
    metric: str
    value: float
    interval: tuple[float, float] | None
    output: str = "logit"

    def passes(self, least: float) -> bool:
        """Return whether the agreement is at least this percentage; False if it is not a number."""
        return self.agreement.value >= least

    def __str__(self) -> str:
        between = "" if self.interval is None else " (95%: {:.2f} to {:.2f})".format(*self.interval)
        return (
            f"{self.agreement.name} {self.agreement}, largest {self.output} difference {self.difference:.2g}, "
            f"{self.metric} {self.value:.2f}{between}"
        )

    def record(self) -> dict[str, Any]:
        """Return the numbers for a JSON file."""
        return {
            "largest_difference": self.difference,
            "measure": self.agreement.name,
            "agreement": round(self.agreement.value, 4),
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
    best = tried[-1] if passed else max(tried, key=lambda one: _goodness(one.check))
    for one in tried:
        if one is not best:
            shutil.rmtree(one.file.parent, ignore_errors=True)
    return best, tried


def _goodness(check: Check) -> tuple[float, float]:
    value = check.agreement.value
    return (value if value == value else float("-inf"), -check.difference)
