"""Reads the published numbers of a plan, which stand beside what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stillery.errors import nearest
from stillery.study.results import Published

__all__ = ["check_places", "published_rows"]

Wrong = Callable[[Sequence[str], str], None]
"""Notes an error of a place in the plan."""


def published_rows(listed: Any, tasks: Sequence[str], wrong: Wrong) -> tuple[Published, ...]:
    """The rows of `[[published]]`; scores are numbers of tasks of this plan."""
    if not isinstance(listed, list):
        wrong(("published",), "published is no list: write each row as [[published]]")
        return ()
    found = []
    for at, one in enumerate(listed):
        place = ("published", str(at))
        try:
            row = Published(**one)
        except TypeError:
            wrong(place, "a published row has name, source, model, data and scores, may have table, and no more")
            continue
        for name in ("name", "source", "model", "data"):
            if not isinstance(getattr(row, name), str):
                wrong((*place, name), f"{name} is {getattr(row, name)!r}: give a text")
        scores = row.scores if isinstance(row.scores, dict) else {}
        if not scores or not all(type(value) in (int, float) for value in scores.values()):
            wrong((*place, "scores"), f"scores is {row.scores!r}: give tasks and numbers, scores = {{rte = 70.1}}")
        for task in scores:
            if task not in tasks:
                wrong((*place, "scores", task), f"no task {task!r} in this plan; {nearest(task, tasks)}")
        found.append(row)
    return tuple(found)


def check_places(published: Sequence[Published], rows: Mapping[str, Sequence[str]], wrong: Wrong) -> None:
    """Note rows of a table that is not there, or with the name of another row in it; `rows` has those of each table."""
    for at, one in enumerate(published):
        place = ("published", str(at))
        if one.table is not None and one.table not in rows:
            wrong((*place, "table"), f"no table {one.table!r} here; {nearest(one.table, rows)}")
        before = [other for other in published[:at] if other.name == one.name]
        for table, names in rows.items():
            shared = [other for other in before if other.table in (None, table)]
            if one.table in (None, table) and (shared or one.name in names):
                wrong((*place, "name"), f"{one.name} is the name of another row: give another")
