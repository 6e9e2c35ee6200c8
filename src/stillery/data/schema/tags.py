"""Reading and encoding of tagged sentences: lists of words with one tag per word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.readers.conll import FIRST_LINE, is_conll
from stillery.data.readers.row_numbers import NESTED, at_token
from stillery.errors import UserError, nearest

__all__ = [
    "MOST_TAGS",
    "Place",
    "encode_tags",
    "first_lines",
    "infer_tags",
    "place_in",
    "place_of",
    "refuse_other_lengths",
    "tag_column",
    "word_column",
]

LISTS = pa.list_(pa.large_string())
"""The Arrow type of the words of a sentence, and of their tags."""

MOST_TAGS = 1000
OUTSIDE = "O"
_PREFIX_ORDER = "BISELU"

Place = Callable[[int, int | None], str]
"""A function that describes the location of a sentence, counted from 1, or of one of its tokens."""


def place_in(where: str, first_lines: Sequence[int] | None = None, before: int = 0) -> Place:
    """Return a function for locations in a file after its first `before` rows; `first_lines` are for CoNLL files."""

    def place(row: int, token: int | None = None) -> str:
        return at_token(where, before + row, token, None if first_lines is None else int(first_lines[row - 1]))

    return place


def word_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """Read the words of each sentence as lists of strings; `before` is the number of rows already read.

    A sentence without words is an error, and so is a missing or empty word.
    """
    return _strings(batch, name, place_of(batch, where, before), option, "token", None)


def tag_column(batch: pa.RecordBatch, name: str, where: str, before: int, option: str) -> pa.Array:
    """Read the tags of each sentence as lists of strings.

    Numeric tags, as in data sets on the hub, are decoded if the file has their names (as Parquet files of the
    `datasets` library do), and are an error otherwise, because entities could not be scored.
    """
    names = _names_in(batch.schema, name)
    return _strings(batch, name, place_of(batch, where, before), option, "tag", names)


def first_lines(batch: pa.RecordBatch, where: str) -> NDArray[np.int64] | None:
    """The first line of each sentence of a CoNLL file; None for other files."""
    # Other files may have a column of that name, such as a file of predictions.
    if FIRST_LINE not in batch.schema.names or not is_conll(Path(where)):
        return None
    lines: NDArray[np.int64] = batch.column(FIRST_LINE).to_numpy()
    return lines


def place_of(batch: pa.RecordBatch, where: str, before: int) -> Place:
    """Return a function for locations in a batch of a file."""
    lines = first_lines(batch, where)
    return place_in(where, None if lines is None else lines.tolist(), before)


def _strings(
    batch: pa.RecordBatch, name: str, place: Place, option: str, what: str, names: Sequence[str] | None
) -> pa.Array:
    if name not in batch.schema.names or pa.types.is_null(batch.schema.field(name).type):
        raise UserError(f"{place(1, None)}: the sentence has no {what}s; fill them in or remove it")
    column = batch.column(name)
    if NESTED in (batch.schema.field(name).metadata or {}):
        # A column of mixed types: each row was converted to text.
        return pa.array([_row(_read_back(one), at, place, what, names) for at, one in enumerate(column, 1)], LISTS)
    if not _holds_lists(column.type):
        raise UserError(
            f"{place(1, None)}: column {name!r} holds {column.type} values, not a list of {what}s for each sentence; "
            f"choose with {option}, or give CoNLL, JSON Lines or Parquet"
        )
    inner = column.type.value_type
    if (
        pa.types.is_dictionary(inner)
        or pa.types.is_null(inner)
        or pa.types.is_large_string(inner)
        or (pa.types.is_string(inner))
    ):
        lists = column.cast(LISTS)
        if not _something_is_missing(lists):
            return lists
    return pa.array([_row(one.as_py(), at, place, what, names) for at, one in enumerate(column, 1)], LISTS)


def _holds_lists(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _something_is_missing(lists: pa.Array) -> bool:
    """Return whether any list, or any string in one, is missing or empty."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    values = lists.flatten()
    blank = pc.equal(pc.utf8_trim(pc.fill_null(values, ""), " "), "")
    return bool(pc.any(pc.equal(sizes, 0), min_count=0).as_py() or pc.any(blank, min_count=0).as_py())


def _read_back(value: pa.Scalar) -> Any:
    text = value.as_py()
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return text


def _row(values: Any, row: int, place: Place, what: str, names: Sequence[str] | None) -> list[str]:
    """The words or tags of a row; raise UserError for the first invalid one."""
    if values is None or values == []:
        raise UserError(f"{place(row, None)}: the sentence has no {what}s; fill them in or remove it")
    if not isinstance(values, list):
        raise UserError(f"{place(row, None)}: {_shown(values)} is not a list of {what}s; write one for each word")
    return [_one(value, row, token, place, what, names) for token, value in enumerate(values, 1)]


def _one(value: Any, row: int, token: int, place: Place, what: str, names: Sequence[str] | None) -> str:
    if value is None or (isinstance(value, str) and not value.strip(" ")):
        raise UserError(f"{place(row, token)}: the {what} is empty; fill it in or remove the row")
    if isinstance(value, str):
        return value
    if what == "tag" and isinstance(value, int) and not isinstance(value, bool):
        if names is None:
            raise UserError(
                f"{place(row, token)}: the tag is the number {value}, and nothing says what that is called; write "
                "names, such as B-PER, in place of numbers"
            )
        if not 0 <= value < len(names):
            raise UserError(f"{place(row, token)}: the tag is the number {value}, and there are {len(names)} names")
        return names[value]
    raise UserError(f"{place(row, token)}: the {what} is {_shown(value)}, not text; write it in quotes")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _names_in(schema: pa.Schema, name: str) -> list[str] | None:
    """The names for the numeric tags of a column, if the `datasets` library has stored them in the file."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[name]["feature"]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    return [str(one) for one in names]


def refuse_other_lengths(words: pa.Array, tags: pa.Array, place: Place) -> None:
    """Raise UserError for a sentence with different numbers of tags and words."""
    ours, theirs = (pc.list_value_length(one).to_numpy(zero_copy_only=False) for one in (words, tags))
    wrong = np.flatnonzero(ours != theirs)
    if len(wrong):
        row = int(wrong[0])
        also = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(
            f"{place(row + 1, None)}{also}: {ours[row]} tokens and {theirs[row]} tags; give each token one tag"
        )


def infer_tags(lists: Iterable[pa.Array], where: str) -> tuple[str, ...]:
    """The distinct tags of sentences in a canonical order: O first, then by type and prefix."""
    found: set[str] = set()
    for one in lists:
        found.update(pc.unique(one.flatten()).to_pylist())
        if len(found) > MOST_TAGS:
            raise UserError(
                f"{where}: more than {MOST_TAGS} different tags; is this the column of the tags? choose with --label"
            )
    if len(found) < 2:
        raise UserError(f"{where}: all tags are the same ({found.pop()!r}); training needs at least two")
    return tuple(sorted(found, key=_rank))


def _rank(tag: str) -> tuple[bool, str, int, str]:
    prefix, _, kind = tag.partition("-")
    place = _PREFIX_ORDER.find(prefix) if len(prefix) == 1 and kind else -1
    return tag != OUTSIDE, kind if place >= 0 else tag, place, tag


def encode_tags(lists: pa.Array, names: Sequence[str], place: Place) -> NDArray[np.int64]:
    """Encode tags as indices into `names`, word after word; an unknown tag is an error."""
    values = lists.flatten()
    found = pc.index_in(values, value_set=pa.array(list(names), type=pa.large_string()))
    if found.null_count:
        unseen = np.flatnonzero(pc.is_null(found).to_numpy(zero_copy_only=False))
        first = int(unseen[0])
        starts = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False))])
        row = int(np.searchsorted(starts, first, side="right")) - 1
        also = f" (and {len(unseen) - 1} more)" if len(unseen) > 1 else ""
        tag = values[first].as_py()
        raise UserError(
            f"{place(row + 1, first - int(starts[row]) + 1)}{also}: the tag {tag!r} is not known; {nearest(tag, names)}"
        )
    numbers: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
