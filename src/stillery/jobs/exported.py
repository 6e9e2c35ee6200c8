"""The result of an export: its folder, its record, and the table of checkpoint, ONNX and int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.deploy.gate import Check

__all__ = ["Exported", "Row"]

_DASH = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model of the table.

    Attributes:
        name: `checkpoint`, `ONNX` or `int8`.
        megabytes: the size of its weights, in 10^6 bytes.
        latency: the median and the 95th percentile in milliseconds, in words, by batch size and number of threads.
        score: the score with its interval, in words.
        check: its comparison with the checkpoint; None for the checkpoint.
    """

    name: str
    megabytes: float
    latency: Mapping[tuple[int, int], str]
    score: str
    check: Check | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Exported:
    """An exported model: its folder, the contents of its `export.json`, and a table that compares its files."""

    out: Path
    record: dict[str, Any]
    metric: str
    rows: Sequence[Row]
    examples: str

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the table as text."""
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(line, widths, strict=True)) for line in lines)
        ]
        rule = "─" * len(shown[0])
        return "\n".join([shown[0], rule, *shown[1:], *self.notes()])

    def markdown(self) -> str:
        """Return the table in Markdown."""
        head, *lines = self._lines()
        align = ["---", *("---:" for _ in head[1:])]
        table = "\n".join(f"| {' | '.join(line)} |" for line in (head, align, *lines))
        return "\n\n".join([table, " ".join(self.notes())])

    def notes(self) -> list[str]:
        """Return what the numbers are."""
        agreement = self._checked().agreement
        return [
            f"Score and {agreement.name} on {self.examples}; intervals are 95%.",
            *([agreement.about] if agreement.about else []),
            *(["Latency in ms of a batch: median / 95th percentile."] if self.rows[0].latency else []),
        ]

    def _lines(self) -> list[list[str]]:
        checks, one = [row.check for row in self.rows], self._checked()
        timed = sorted({key for row in self.rows for key in row.latency}, key=lambda key: key[::-1])
        return [
            ["", *(row.name for row in self.rows)],
            ["size", *(f"{row.megabytes:.1f} MB" for row in self.rows)],
            *(
                [
                    f"batch {size}, {threads} thread{'' if threads == 1 else 's'}",
                    *(row.latency[size, threads] for row in self.rows),
                ]
                for size, threads in timed
            ),
            [self.metric, *(row.score for row in self.rows)],
            [one.agreement.name, *(_DASH if check is None else str(check.agreement) for check in checks)],
            [
                f"largest {one.output} difference",
                *(_DASH if check is None else f"{check.difference:.2g}" for check in checks),
            ],
        ]

    def _checked(self) -> Check:
        """Return the comparison of one of the files, which says what was compared."""
        return next(row.check for row in self.rows if row.check is not None)
