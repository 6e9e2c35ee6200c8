"""The result of a comparison of models: table, paired differences, and a summary of what they show."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any

from stillery.evaluation.table import cells, heads, notes, table
from stillery.lines import markdown_text

__all__ = ["Comparison", "Difference"]

_FEW = 10
"""Minimum number of examples for conclusions: bootstrap resamples of fewer hardly differ from each other."""


_MOST_NAMED = 12
"""Maximum number of models that a sentence names; the table has all of them."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The metric of a model minus that of the baseline, and its 95% interval by a paired bootstrap over examples."""

    model: str
    value: float
    interval: tuple[float, float]

    @property
    def is_clear(self) -> bool:
        """Whether zero is outside the interval."""
        low, high = self.interval
        return low > 0 or high < 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """Models scored on the same examples: a row for each, and the difference of each from one of them, the baseline.

    It prints as a table, also as the result of a notebook cell.

    Attributes:
        task: the data they were scored on.
        split: the name of the split; None for a whole file.
        examples: the number of examples.
        metric: the metric that is compared.
        baseline: the name of the model that the others are compared with.
        rows: for each model its `name`, its description (`how`), `folder`, size, speed and score.
        differences: the metric of each other model minus the baseline's.
        note: the reason why there are no differences, if there are none.
        queries: of pairs that are ranked by query the number of queries, which resamples draw.
    """

    task: str
    split: str | None
    examples: int
    metric: str
    baseline: str
    rows: Sequence[Mapping[str, Any]]
    differences: Sequence[Difference]
    note: str | None = None
    queries: int | None = None

    @property
    def too_few(self) -> bool:
        """Whether there are too few examples, or queries, for conclusions."""
        return (self.queries or self.examples) < _FEW

    @property
    def summary(self) -> list[str]:
        """Sentences on what the differences show, and on their limits."""
        if self.note is not None or not self.differences:
            return [self.note] if self.note is not None else []
        scored = f"{self.queries or self.examples} {f'{self.split} ' if self.split else ''}{self._drawn}"
        if self.too_few:
            return [f"{scored} are too few to tell models apart."]
        clear = [one for one in self.differences if one.is_clear]
        higher = [one.model for one in clear if one.value > 0]
        lower = [one.model for one in clear if one.value < 0]
        open_ = [one.model for one in self.differences if not one.is_clear]
        said = [
            f"the {self.metric} of {_listed(names)} is {what} than that of {self.baseline} by more than the choice of "
            f"{self._drawn} explains"
            for names, what in ((higher, "higher"), (lower, "lower"))
            if names
        ]
        if open_:
            differ = f"differences of {_listed(open_)}" if len(open_) > 1 else f"difference of {open_[0]}"
            said.append(f"the {differ} from {self.baseline} cannot be distinguished from zero")
        limits = f"The intervals cover the choice of {self._drawn}, not the seed of training"
        if len(self.differences) > 1:
            limits += "; each is for its own difference, and the more there are, the likelier one of them is wrong"
        return [f"On these {scored} {'; '.join(said)}.", f"{limits}."]

    @property
    def _drawn(self) -> str:
        return "examples" if self.queries is None else "queries"

    def text(self, width: int = 80) -> str:
        """Return the table, the differences and their summary, for a terminal of that width."""
        from rich.console import Console

        paper = StringIO()
        Console(file=paper, width=max(width, 80), highlight=False, color_system=None).print(table(self._named(), width))
        lines = [line.rstrip() for line in paper.getvalue().splitlines()]
        return "\n".join([*lines, *self.lines(width)])

    def lines(self, width: int = 80) -> list[str]:
        """Return the differences and their summary as lines."""
        import textwrap

        found = []
        if self.differences:
            found = ["", f"{self.metric} minus that of {self.baseline} (paired, 95%):"]
            room = min(max(len(one.model) for one in self.differences), max(width - 40, 20))
            for one in self.differences:
                low, high = one.interval
                mark = "" if one.is_clear or self.too_few else "  not distinguished from zero"
                found.append(f"  {one.model:<{room}} {one.value:+7.2f} ({low:+.2f} to {high:+.2f}){mark}")
        summary = [line for text in self.summary for line in textwrap.wrap(text, width, break_on_hyphens=False)]
        return [*found, *summary]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON-compatible dictionary."""
        return {
            "task": self.task,
            "split": self.split,
            "examples": self.examples,
            **({} if self.queries is None else {"queries": self.queries}),
            "metric": self.metric,
            "baseline": self.baseline,
            "models": [dict(row) for row in self.rows],
            "differences": [asdict(one) | {"is_clear": one.is_clear} for one in self.differences],
            "summary": self.summary,
        }

    def records(self) -> list[dict[str, Any]]:
        """Return a flat row for each model, with its difference, for tabular files."""
        apart = {one.model: one for one in self.differences}
        found = []
        for row in self.rows:
            values = {name: value for name, value in row.items() if name != "interval"}
            low, high = row["interval"] or (None, None)
            one = apart.get(row["name"])
            values |= {"low": low, "high": high, "difference": one.value if one else None}
            low, high = one.interval if one else (None, None)
            values |= {"difference_low": low, "difference_high": high}
            found.append(values)
        return found

    def markdown(self) -> str:
        """Return the comparison as a table in Markdown."""
        differs = f"minus {self.baseline}"
        names = [*heads(self._named()), differs]
        lines = [names, ["---", *["---:"] * (len(names) - 1)], *self._with_differences()]
        text = ["| " + " | ".join(markdown_text(cell).replace("|", "\\|") for cell in line) + " |" for line in lines]
        return "\n".join([*text, "", notes(self.rows), *map(markdown_text, self.summary)]) + "\n"

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Return the comparison as HTML for a notebook."""
        names = [*heads(self._named()), f"minus {self.baseline}"]
        head = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self._with_differences()
        )
        said = "".join(f"<br>{html.escape(line)}" for line in self.summary)
        return f"<table><tr>{head}</tr>{body}</table><p>{html.escape(notes(self.rows))}{said}</p>"

    def _named(self) -> list[dict[str, Any]]:
        """Return the rows as shown in the table: each name with the model's description."""
        return [
            dict(row) | {"name": f"{row['name']}: {row['how']}" if row["how"] else row["name"]} for row in self.rows
        ]

    def _with_differences(self) -> list[list[str]]:
        """Return the cells of each row, followed by its difference."""
        apart = {
            one.model: f"{one.value:+.2f} ({one.interval[0]:+.2f} to {one.interval[1]:+.2f})"
            for one in self.differences
        }
        filled = cells(self._named())
        return [[*line, apart.get(row["name"], "-")] for line, row in zip(filled, self.rows, strict=True)]


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
