"""Which columns of a file hold the text, the second text, the label and the id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stillery.data.readers.delimited import other_separator
from stillery.errors import ErrorList, UserError, nearest

__all__ = ["Columns", "find"]

PARTNERS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    # QNLI: the question comes first, although `sentence` alone would be the text.
    ("question", "sentence"),
    ("question", "answer"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "text2"),
    ("sentence", "sentence2"),
    ("first", "second"),
    ("text", "second"),
)
TEXT = (
    *("text", "sentence", "sentence1", "premise", "question", "question1", "review", "content", "body"),
    *("text1", "text_a", "document", "comment", "message", "tweet", "utterance"),
)
LABEL = ("label", "labels", "target", "class", "category", "score", "rating", "sentiment", "gold_label")
ID = ("id", "idx", "guid")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns that matter, as the file spells them; `flags` are the labels that have a column each."""

    text: str
    text_pair: str | None
    label: str | None
    id: str | None
    flags: tuple[str, ...] = ()


def find(
    names: Sequence[str],
    where: str,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    need_label: bool = True,
) -> Columns:
    """Find the columns by their usual names, or take the ones asked for; one asked for by name comes alone.

    A label such as `toxic,threat` that no column has as its whole name means a column for each of the names.
    """
    errors = ErrorList()
    present = _Present(tuple(names))
    # Every name is looked at before anything is refused, so that two mistyped options are two lines.
    with errors.catch():
        found_text, found_pair = _texts(present, where, text, text_pair)
    with errors.catch():
        flags = _flags(present, where, label, need_label)
        found_label = None if flags else _label(present, where, label, need_label)
    errors.raise_any()
    return Columns(text=found_text, text_pair=found_pair, label=found_label, id=_first(present, ID), flags=flags)


@dataclass(frozen=True)
class _Present:
    names: tuple[str, ...]

    def find(self, wanted: str) -> str | None:
        """The column of that name, its exact spelling before any other case."""
        if wanted in self.names:
            return wanted
        return next((name for name in self.names if name.strip().casefold() == wanted.strip().casefold()), None)


def _texts(present: _Present, where: str, text: str | None, pair: str | None) -> tuple[str, str | None]:
    first = _asked(present, where, "--text", text)
    second = _asked(present, where, "--text-pair", pair)
    if first is not None and first == second:
        raise UserError(f"{where}: --text and --text-pair both name the column {first!r}; give two columns")
    if first is not None:
        return first, second
    for left, right in PARTNERS:
        one, other = present.find(left), present.find(right)
        if one is not None and other is not None and second in (None, other):
            return one, other
    one = _first(present, tuple(name for name in TEXT if present.find(name) != second))
    if one is None:
        raise UserError(f"{where}: no text column; {_choose(present, '--text')}")
    return one, second


def _label(present: _Present, where: str, label: str | None, need: bool) -> str | None:
    if label is not None:
        return _asked(present, where, "--label", label) if need else present.find(label)
    found = _first(present, LABEL)
    if found is None and need:
        raise UserError(
            f"{where}: no label column; {_choose(present, '--label')}, or say --unlabelled to distil on texts alone"
        )
    return found


def _flags(present: _Present, where: str, label: str | None, need: bool) -> tuple[str, ...]:
    """The columns of the labels that have one each; none where one column holds the labels."""
    wanted = [name.strip() for name in (label or "").split(",") if name.strip()]
    if label is None or len(wanted) < 2 or present.find(label) is not None:
        return ()
    found = {name: present.find(name) for name in wanted}
    absent = [name for name, column in found.items() if column is None]
    if len(absent) == len(found) and not need:
        return ()
    errors = ErrorList()
    for name in absent:
        errors.add(f"{where}: no column {name!r} (--label); {nearest(name, present.names)}")
    columns = tuple(column for column in found.values() if column is not None)
    if len(set(columns)) < len(wanted) and not absent:
        errors.add(f"{where}: --label {label} names a column twice")
    errors.raise_any()
    return columns


def _asked(present: _Present, where: str, option: str, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    found = present.find(wanted)
    if found is None:
        hint = other_separator(present.names) or nearest(wanted, present.names)
        raise UserError(f"{where}: no column {wanted!r} ({option}); {hint}")
    return found


def _first(present: _Present, candidates: Sequence[str]) -> str | None:
    return next((found for found in map(present.find, candidates) if found is not None), None)


def _choose(present: _Present, option: str) -> str:
    names = ", ".join(repr(name) for name in present.names)
    return other_separator(present.names) or f"the columns are {names}; name one with {option}"
