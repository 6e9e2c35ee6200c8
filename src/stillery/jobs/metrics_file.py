"""Reading of a run's `metrics.json`: of the shape that a run writes, or refused in one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.small_files import read_json

__all__ = ["SHOWN", "read_metrics"]

_NUMBER = (int, float)
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "task": (str,), "examples": (int,), "split": (str,), "metrics": (dict,), "intervals": (dict,),
    "per_class": (dict,), "teacher_metrics": (dict,), "teacher_intervals": (dict,), "agreement": (*_NUMBER, type(None)),
    "difference": (dict,), "cost": (dict,), "training": (dict,), "warnings": (list,), "start": (dict,), "also": (dict,),
    "versions": (dict,),
}  # fmt: skip
"""The types of the keys that are read; other keys are left as they are."""

SHOWN = ("task", "examples", "split", "metrics", "intervals", "cost")
"""The keys that the result of a run is shown from."""


def read_metrics(out: Path, needed: Collection[str] = ()) -> dict[str, Any]:
    """Read the metrics of a finished run; raise UserError if they are damaged, or a needed key is missing."""
    file = out / "metrics.json"
    try:
        metrics = read_json(file)
    except ValueError as error:
        raise UserError(f"{file}: not as a run writes it ({error}); copy the run again") from None
    if not isinstance(metrics, dict):
        raise UserError(f"{file}: not as a run writes it (no {', '.join(needed or ('table',))}); copy the run again")
    wrong = [name for name, kinds in _SHAPES.items() if name in metrics and not isinstance(metrics[name], kinds)]
    wrong += [name for name in ("metrics", "teacher_metrics") if name not in wrong and not _of_numbers(metrics, name)]
    wrong += [name for name in needed if name not in metrics]
    if wrong:
        raise UserError(f"{file}: not as a run writes it (no {', '.join(wrong)}); copy the run again")
    return metrics


def _of_numbers(metrics: Mapping[str, Any], name: str) -> bool:
    return all(isinstance(value, (*_NUMBER, type(None))) for value in metrics.get(name, {}).values())
