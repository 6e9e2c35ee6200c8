"""Which columns of a file hold the text, the second text, the label and the id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stillery.faults import Fault, Gathered, nearest

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
    """The names of the columns that matter, as the file spells them."""

    text: str
    text_pair: str | None
    label: str | None
    id: str | None


def find(
    names: Sequence[str],
    where: str,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    need_label: bool = True,
) -> Columns:
    """Find the columns by their usual names, or take the ones asked for; one asked for by name comes alone."""
    faults = Gathered()
    present = _Present(tuple(names))
    # Every name is looked at before anything is refused, so that two mistyped options are two lines.
    with faults.catch():
        found_text, found_pair = _texts(present, where, text, text_pair)
    with faults.catch():
        found_label = _label(present, where, label, need_label)
    faults.raise_any()
    return Columns(text=found_text, text_pair=found_pair, label=found_label, id=_first(present, ID))


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
        raise Fault(f"{where}: --text and --text-pair both name the column {first!r}; give two columns")
    if first is not None:
        return first, second
    for left, right in PARTNERS:
        one, other = present.find(left), present.find(right)
        if one is not None and other is not None and second in (None, other):
            return one, other
    one = _first(present, tuple(name for name in TEXT if present.find(name) != second))
    if one is None:
        raise Fault(f"{where}: no text column; {_choose(present, '--text')}")
    return one, second


def _label(present: _Present, where: str, label: str | None, need: bool) -> str | None:
    if label is not None:
        return _asked(present, where, "--label", label) if need else present.find(label)
    found = _first(present, LABEL)
    if found is None and need:
        raise Fault(f"{where}: no label column; {_choose(present, '--label')}")
    return found


def _asked(present: _Present, where: str, option: str, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    found = present.find(wanted)
    if found is None:
        raise Fault(f"{where}: no column {wanted!r} ({option}); {nearest(wanted, present.names)}")
    return found


def _first(present: _Present, candidates: Sequence[str]) -> str | None:
    return next((found for found in map(present.find, candidates) if found is not None), None)


def _choose(present: _Present, option: str) -> str:
    names = present.names
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        return f"the header is one column {names[0]!r}: separate columns by commas (.csv) or tabs (.tsv)"
    return f"the columns are {', '.join(repr(name) for name in names)}; name one with {option}"
