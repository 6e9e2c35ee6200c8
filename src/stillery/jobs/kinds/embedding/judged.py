"""Queries with judged documents: a file with a row for each judgement, or a folder in the layout of BEIR."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import at, at_rows
from stillery.data.schema.examples import Examples
from stillery.data.schema.split_folders import SPLITS
from stillery.data.schema.values import empty_rows, scalar_column, text_column
from stillery.errors import UserError, nearest
from stillery.progress import say

__all__ = ["Judged", "is_judged", "read_judged"]

_ROLES = {
    "query": ("query", "queries"),
    "document": ("document", "doc", "passage"),
    "relevance": ("relevance", "grade", "score", "label"),
}
"""The usual names of the columns of a file of judgements, in the order in which they are looked for."""

_CORPUS, _QUERIES, _QRELS = "corpus.jsonl", "queries.jsonl", "qrels"


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """The texts of queries and then of documents, and the judgements: rows of query, document and relevance."""

    examples: Examples
    gold: NDArray[np.float64]


@dataclass(kw_only=True)
class _Texts:
    """Distinct texts, each numbered when it is first met under its key."""

    places: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def place(self, key: str, text: str) -> int:
        found = self.places.setdefault(key, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


def is_judged(path: Path, encoding: str | None = None) -> bool:
    """Return whether a path holds queries and documents; False if it cannot be read, which fails later."""
    if path.is_dir():
        return (path / _CORPUS).is_file() and (path / _QUERIES).is_file()
    try:
        batch = next(iter(read_batches(path, 1, encoding)), None)
    except UserError:
        return False
    return batch is not None and {"query", "document"} <= _columns(batch.schema.names).keys()


def read_judged(path: Path, split: str | None, encoding: str | None = None) -> Judged:
    """Read queries, documents and relevances; queries without a relevant document are left out.

    A folder of BEIR has the judgements of a split in `qrels/SPLIT.tsv`, by default of test.
    """
    queries, documents = _Texts(), _Texts()
    if path.is_dir():
        rows = _beir(path, split, queries, documents)
    elif split is not None:
        raise UserError(f"--split {split}: {path.name} is one file of queries and documents; leave it out")
    else:
        rows = _file(path, encoding, queries, documents)
    relevant = {query for query, _, relevance in rows if relevance > 0}
    if not relevant:
        raise UserError(f"{path}: no query has a document of relevance above 0, so no ranking can be scored")
    left = len(queries.texts) - len(relevant)
    if left:
        say(f"{left} of {len(queries.texts)} queries of {path.name} have no relevant document and are left out")
    kept = {query: place for place, query in enumerate(sorted(relevant))}
    gold = np.array([(kept[query], document, value) for query, document, value in rows if query in kept])
    ids, names = ([*one.places] for one in (queries, documents))
    texts = [*(queries.texts[query] for query in kept), *documents.texts]
    examples = Examples(
        ids=(*(ids[query] for query in kept), *names), columns={"text": pa.array(texts, pa.large_string())},
        source=path.resolve().name,
    )  # fmt: skip
    return Judged(examples=examples, gold=gold)


Row = tuple[int, int, float]


def _columns(names: Sequence[str]) -> dict[str, str]:
    """Return the columns by role, as spelled in the file."""
    folded = {name.strip().casefold(): name for name in names}
    found = {role: next((folded[one] for one in usual if one in folded), None) for role, usual in _ROLES.items()}
    return {role: name for role, name in found.items() if name is not None}


def _file(path: Path, encoding: str | None, queries: _Texts, documents: _Texts) -> list[Row]:
    rows: list[Row] = []
    before = 0
    for batch in read_batches(path, encoding=encoding):
        columns = _columns(batch.schema.names)
        texts = []
        for role in ("query", "document"):
            column = text_column(batch, columns[role], path.name, before, "another file")
            empty = empty_rows(column)
            if len(empty):
                place = at_rows(path.name, (empty + before + 1).tolist())
                raise UserError(f"{place}: the {role} is empty; fill it in or remove the row")
            texts.append(column.to_pylist())
        values: Sequence[Any] = [1] * batch.num_rows
        if "relevance" in columns:
            values = scalar_column(batch, columns["relevance"], path.name, before, "relevance")
        for row, (query, document, value) in enumerate(zip(*texts, values, strict=True), before + 1):
            # Equal texts are one query, and one document.
            found = (queries.place(query, query), documents.place(document, document))
            rows.append((*found, _relevance(value, at(path.name, row))))
        before += batch.num_rows
    # A text of a file is named by its number.
    for one, name in ((queries, "query"), (documents, "document")):
        one.places = {f"{name}-{place + 1}": place for place in one.places.values()}
    return rows


def _beir(folder: Path, split: str | None, queries: _Texts, documents: _Texts) -> list[Row]:
    place = folder / _QRELS
    splits = sorted(path.stem for path in place.glob("*.tsv"))
    wanted = split or ("test" if "test" in splits else next((one for one in SPLITS if one in splits), "test"))
    if wanted not in splits:
        raise UserError(f"{place}: no {wanted}.tsv with judgements; {nearest(wanted, splits) if splits else 'add one'}")
    asked = _texts_of(folder / _QUERIES)
    for key, text in _texts_of(folder / _CORPUS).items():
        documents.place(key, text)
    rows = []
    lines = (place / f"{wanted}.tsv").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[1:], 2):
        where = f"{_QRELS}/{wanted}.tsv, line {number}"
        cells = line.split("\t")
        if len(cells) != 3:
            raise UserError(f"{where}: it has {len(cells)} cells, not query-id, corpus-id and score, split by tabs")
        query, document, value = cells
        for key, known, file in ((query, asked, _QUERIES), (document, documents.places, _CORPUS)):
            if key not in known:
                raise UserError(f"{where}: {file} has no text with the _id {key!r}")
        rows.append((queries.place(query, asked[query]), documents.places[document], _relevance(value, where)))
    return rows


def _texts_of(path: Path) -> Mapping[str, str]:
    """Read texts by id; a title stands before its text."""
    found: dict[str, str] = {}
    before = 0
    for batch in read_batches(path):
        names = batch.schema.names
        if not {"_id", "text"} <= set(names):
            raise UserError(f"{path.name}: its rows need an _id and a text, and have {', '.join(map(repr, names))}")
        ids = scalar_column(batch, "_id", path.name, before, "id")
        texts = text_column(batch, "text", path.name, before, "text").to_pylist()
        titles = [None] * batch.num_rows
        if "title" in names:
            titles = text_column(batch, "title", path.name, before, "title").to_pylist()
        for row, (key, title, text) in enumerate(zip(ids, titles, texts, strict=True), before + 1):
            whole = " ".join(part for part in (title, text) if part and part.strip())
            if not whole:
                raise UserError(f"{at(path.name, row)}: the text is empty; fill it in or remove the row")
            found[str(key)] = whole
        before += batch.num_rows
    return found


def _relevance(value: Any, where: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{where}: the relevance is {value!r}; give a number, 0 for a document that is not relevant")
    return found
