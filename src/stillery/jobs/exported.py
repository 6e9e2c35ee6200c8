"""The result of an export: its folder, its record, and the table of checkpoint, ONNX and int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        agreement: the percentage of predictions equal to the checkpoint's; None for the checkpoint.
        difference: the largest difference of a logit; None for the checkpoint.
    """

    name: str
    megabytes: float
    latency: Mapping[tuple[int, int], str]
    score: str
    agreement: float | None = None
    difference: float | None = None


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
        return [
            f"Score and agreement on {self.examples}; intervals are 95%.",
            *(["Latency in ms of a batch: median / 95th percentile."] if self.rows[0].latency else []),
        ]

    def _lines(self) -> list[list[str]]:
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
            ["agreement", *(_DASH if row.agreement is None else f"{row.agreement:.2f}%" for row in self.rows)],
            [
                "largest logit difference",
                *(_DASH if row.difference is None else f"{row.difference:.2g}" for row in self.rows),
            ],
        ]
