"""Parsing of several labels per text from lists, separated cells or 0/1 columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from stillery.data.readers.row_numbers import at_rows
from stillery.data.schema.labels import SEPARATOR, label_name
from stillery.errors import ErrorList, UserError

__all__ = ["has_lists", "label_sets", "refuse_lists", "sets_of_columns"]

FLAGS = {"0": False, "1": True, "false": False, "true": True}

Names = tuple[str, ...]


def has_lists(values: Sequence[Any]) -> bool:
    """Return whether a label column holds lists."""
    return any(isinstance(value, list) for value in values)


def refuse_lists(values: Sequence[Any], where: str, rows: Iterable[int] | None = None) -> None:
    """Raise UserError for lists, also those written as JSON text, where each text has one label."""
    chosen = range(len(values)) if rows is None else rows
    found = [row + 1 for row in chosen if isinstance(values[row], list) or _json_list(values[row]) is not None]
    if found:
        shown = str(values[found[0] - 1])[:40]
        raise UserError(
            f"{at_rows(where, found)}: the label {shown} is a list; use --multi-label if a text has several"
        )


def label_sets(
    values: Sequence[Any], where: str, separator: str | None = SEPARATOR, rows: Iterable[int] | None = None
) -> list[Names | None]:
    """The distinct names of each row; None if they are missing, and for rows that are not requested.

    A text is split at the separator; without one, a text among lists is an error. An empty text or list has no labels.

    >>> label_sets(["a| b|a", "", ["c"], None], "x.csv")
    [('a', 'b'), (), ('c',), None]
    """
    sets: list[Names | None] = [None] * len(values)
    texts: list[int] = []
    written: list[int] = []
    for row in range(len(values)) if rows is None else rows:
        value = values[row]
        listed = value if isinstance(value, list) else _json_list(value)
        if listed is not None:
            sets[row] = _names(listed)
        elif isinstance(value, str) and value.strip().startswith(("['", '["')):
            written.append(row + 1)
        elif separator is None and value is not None:
            texts.append(row + 1)
        elif isinstance(value, str):
            assert separator is not None
            sets[row] = _names([piece for piece in value.split(separator) if piece.strip()])
        else:
            sets[row] = _names([value])
    errors = ErrorList()
    if written:
        shown = str(values[written[0] - 1])[:40]
        errors.add(f"{at_rows(where, written)}: the label {shown} is a list as code writes it; write a{SEPARATOR}b")
    if texts:
        errors.add(
            f"{at_rows(where, texts)}: the label is not a list, in other rows it is; write lists, or use --multi-label"
        )
    errors.raise_any()
    _refuse_vectors(values, where)
    return sets


def sets_of_columns(
    values: Sequence[Sequence[Any]], names: Names, where: str, rows: Iterable[int] | None = None
) -> list[Names | None]:
    """The names of the columns that hold 1 in each row; anything but 0 and 1 is an error.

    >>> sets_of_columns([("1", 0), (False, "0.0")], ("toxic", "threat"), "x.csv")
    [('toxic',), ()]
    """
    sets: list[Names | None] = [None] * len(values)
    wrong: dict[str, list[int]] = {}
    for row in range(len(values)) if rows is None else rows:
        flags = [FLAGS.get((label_name(value) or "").casefold()) for value in values[row]]
        for name, flag in zip(names, flags, strict=True):
            if flag is None:
                wrong.setdefault(name, []).append(row + 1)
        sets[row] = tuple(name for name, flag in zip(names, flags, strict=True) if flag)
    errors = ErrorList()
    for name, at in wrong.items():
        shown = values[at[0] - 1][names.index(name)]
        what = "is empty" if label_name(shown) is None else f"holds {str(shown)[:40]!r}"
        errors.add(f"{at_rows(where, at)}: the label column {name!r} {what}; write 0 or 1")
    errors.raise_any()
    return sets


def _names(values: Sequence[Any]) -> Names | None:
    """The distinct names of a list; None if one of them is missing."""
    names = [label_name(value) for value in values]
    known = tuple(dict.fromkeys(name for name in names if name is not None))
    return None if None in names else known


def _json_list(value: Any) -> list[Any] | None:
    """Parse a text as a flat JSON list; None if it is not one."""
    if not isinstance(value, str) or not value.strip().startswith("["):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and not any(isinstance(item, (list, dict)) for item in found) else None


def _refuse_vectors(values: Sequence[Any], where: str) -> None:
    """Raise UserError for 0/1 vectors over all labels, which would be read as the labels `0` and `1`."""
    lists = [value for value in values if isinstance(value, list)]
    if len({len(value) for value in lists}) != 1 or len(lists[0]) < 2:
        return
    flags = all((label_name(item) or "").casefold() in FLAGS for value in lists for item in value)
    if flags and any(len({label_name(item) for item in value}) < len(value) for value in lists):
        raise UserError(
            f"{where}: the labels are lists of 0 and 1 with a place for each label; write lists of the labels' names, "
            "or a 0/1 column for each (--label NAME,NAME)"
        )
