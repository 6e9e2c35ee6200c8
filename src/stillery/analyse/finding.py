"""The result of an analysis: its data, one sentence that the numbers carry, a picture, and a short table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Finding", "plain"]

_DIGITS = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """The result of an analysis.

    Attributes:
        analysis: the name of the analysis, such as `angles`.
        title: the title of its picture.
        sentence: one sentence that reads the numbers.
        spec: the picture as a Vega-Lite specification, without `$schema` and `config`.
        data: arrays and numbers by name, as documented for each analysis.
        table: the rows of a short table, with the same columns each.
        settings: what was analysed: models, data, number of examples, seed.
    """

    analysis: str
    title: str
    sentence: str
    spec: Mapping[str, Any]
    data: Mapping[str, Any]
    table: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def block(self) -> dict[str, Any]:
        """Return the analysis as plain JSON values: the contents of NAME.json, and a block of the report."""
        fields = ("analysis", "title", "sentence", "spec", "data", "table", "settings")
        return {name: plain(getattr(self, name)) for name in fields}

    def text(self) -> str:
        """Return the sentence and the table as text."""
        return "\n".join([self.sentence, *([""] if self.table else []), *_lines(self.table)])

    def __repr__(self) -> str:
        return self.text()


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, numbers with 6 digits, None for what is not a number.

    >>> plain({"mean": np.array([0.12345678, np.nan]), "layers": (1, 2)})
    {'mean': [0.123457, None], 'layers': [1, 2]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table as lines: the first column left, the others right."""
    if not rows:
        return []
    names = list(rows[0])
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    return [
        "  ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                  for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in cells
    ]  # fmt: skip
