"""Where students and their teachers disagree: the examples that the page lets its reader look through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stillery.reports.source import RunFiles
from stillery.reports.texts import Texts

__all__ = ["Browser", "browse"]

_ROWS = 1500
_RUNS = 40
_LONGEST = 400
"""Examples and students on a page, and characters of a text: what keeps 200 runs below 5 MB."""

_COLUMNS = {
    "classes": ("label", "prediction", "teacher_prediction"),
    "tags": ("tags", "prediction", "teacher_prediction"),
    "texts": ("references", "output", "teacher_output"),
}


@dataclass
class Browser:
    """The examples of all students. `runs` are those that can be chosen; `rows` give places in `texts` and `answers`.

    A row is: run, text, right answer, teacher's, student's, and how sure each of the two is of its own (None without
    probabilities).
    """

    runs: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows)


def browse(runs: Sequence[tuple[str, RunFiles]]) -> Browser:
    """Return the examples on which students and teachers give different answers, of at most 40 runs.

    Of each run the same number is embedded; those come first of which both are surest.
    """
    found, texts = Browser(), Texts()
    taught = [(name, run) for name, run in runs if run.values.get("job") == "distill"]
    if len(taught) > _RUNS:
        found.notes.append(f"The first {_RUNS} of {len(taught)} students are here.")
        taught = taught[:_RUNS]
    most = max(20, _ROWS // max(len(taught), 1))
    places: dict[str, dict[str, int]] = {"texts": {}, "answers": {}}
    for name, run in taught:
        _add(found, places, name, run, texts, most)
    cut = [one for one in found.runs if one["shown"] < one["differ"]]
    if cut:
        found.notes.append(
            f"At most {most} examples of a student are in this page, first those of which teacher and student are "
            f"surest; {sum(one['differ'] - one['shown'] for one in cut):,} more are in the runs' predictions.parquet."
        )
    found.texts, found.answers = list(places["texts"]), list(places["answers"])
    return found


def _add(found: Browser, places: dict[str, dict[str, int]], name: str, run: RunFiles, texts: Texts, most: int) -> None:
    table = _predictions(run.folder / "predictions.parquet")
    if table is None:
        return
    ids, right, ours, theirs = (table[column] for column in ("id", "right", "given", "teacher"))
    scores = isinstance(ours[0], float) if ours else False
    differ = [
        row for row in range(len(ids)) if theirs[row] is not None and (scores or not _same(ours[row], theirs[row]))
    ]
    if not differ:
        return
    # Of scores all differ: those come first that lie furthest apart.
    sure = {
        row: abs(ours[row] - theirs[row]) if scores else _sum(table["teacher_sure"][row], table["sure"][row])
        for row in differ
    }
    kept = sorted(differ, key=lambda row: (-sure[row], str(ids[row])))[:most]
    read, why = texts.of(run.folder, run.values, run.split)
    if not why and any(str(ids[row]) not in read for row in kept):
        read, why = {}, f"the data of {name} has changed since it was scored, so its texts are not shown"
    if why and why not in found.notes:
        found.notes.append(f"{why[0].upper()}{why[1:]}; examples are shown by their ids.")
    number = len(found.runs)
    known = right[0] is not None
    found.runs.append(
        {
            "name": name, "of": len(ids), "differ": len(differ), "shown": len(kept), "scores": scores,
            "teacher_right": _count(differ, theirs, right) if known and not scores else None,
            "student_right": _count(differ, ours, right) if known and not scores else None,
        }
    )  # fmt: skip

    def place(kind: str, text: str) -> int:
        return places[kind].setdefault(text, len(places[kind]))

    for row in kept:
        text = _cut(read.get(str(ids[row]), f"id {ids[row]}"))
        answers = [place("answers", _cut(_shown(one[row]))) for one in (right, theirs, ours)]
        found.rows.append(
            [number, place("texts", text), *answers, _round(table["teacher_sure"][row]), _round(table["sure"][row])]
        )


def _predictions(path: Path) -> dict[str, list[Any]] | None:
    """Return the columns of a run's predictions; None if they cannot be read or have none of a teacher."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None
    names = set(table.column_names)
    kind = next((each for each in _COLUMNS.values() if {"id", *each[1:]} <= names), None)
    if kind is None or len(table) == 0:
        return None
    missing = [None] * len(table)
    right, given, teacher = (table[name].to_pylist() if name in names else missing for name in kind)
    return {
        "id": table["id"].to_pylist(), "right": right, "given": given, "teacher": teacher,
        "sure": _sure(table, "probabilities"), "teacher_sure": _sure(table, "teacher_probabilities"),
    }  # fmt: skip


def _sure(table: pa.Table, column: str) -> list[float | None]:
    """Return the probability of the answer that was given; none for scores, label sets, tags and texts."""
    answers = table.schema.field("prediction").type if "prediction" in table.column_names else None
    if column not in table.column_names or answers is None or not pa.types.is_string(answers):
        return [None] * len(table)
    return [max(one) if one else None for one in table[column].to_pylist()]


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)


def _sum(*values: float | None) -> float:
    return sum(one for one in values if one is not None)


def _count(rows: Sequence[int], given: Sequence[Any], right: Sequence[Any]) -> int:
    return sum(_is_right(given[row], right[row]) for row in rows)


def _is_right(given: Any, right: Any) -> bool:
    # A generated text may have several references.
    return given in right if isinstance(right, list) and isinstance(given, str) else bool(given == right)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join("-" if one is None else str(one) for one in value) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
