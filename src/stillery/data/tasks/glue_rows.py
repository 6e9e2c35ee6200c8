"""Reader of one split of a classification or regression task from the files of its benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.readers.benchmark_tsv import Rows, read_raw, unwrapped
from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import at_rows
from stillery.data.schema.examples import Examples, columns_of
from stillery.data.schema.labels import encode, label_name
from stillery.data.tasks.benchmark_texts import filled, texts_of
from stillery.data.tasks.layouts import Files
from stillery.data.tasks.specification import Task
from stillery.errors import UserError

__all__ = ["has_labels", "read_split", "read_texts"]

LABEL_COLUMNS = ("label", "gold_label", "is_duplicate", "Quality", "score")
NO_LABEL = (None, "-", "-1")
RAW = (".tsv", ".tsv.gz", ".txt")


def has_labels(task: Task, files: Files) -> bool:
    """Return whether a split has labels; the leaderboard's test splits have none, or -1 for each row."""
    first = next(_rows(task, files.paths[0]))
    column = _label_column(first.batch)
    return column is not None and any(label_name(value) not in NO_LABEL for value in first.batch[column].to_pylist())


def read_split(task: Task, split: str, files: Files, need_labels: bool = True) -> tuple[Examples, str]:
    """Read the labelled rows of a split with class indices in the task's order, and a note on skipped rows.

    Without `need_labels`, read all rows with a text, without labels.
    """
    read = [_read(task, path, files) for path in files.paths]
    rows, texts, pairs = _joined(read)
    where = f"{task.name} {split}"
    values = [value for one in read for value in one.values or [None] * len(one.rows)]
    labelled = np.array([not need_labels or label_name(value) not in NO_LABEL for value in values], dtype=bool)
    there = filled(texts) if pairs is None else filled(texts) | filled(pairs)
    kept = np.flatnonzero(labelled & there)
    if not labelled.any():
        raise UserError(f"{files.paths[0]}: no row has a label, and {where} needs them; copy the file again")
    left_out = [f"{count} {what}" for count, what in (
        (sum(len(one.ragged) for one in read), "rows with too many or too few columns"),
        (int((~labelled).sum()), "rows without a label"),
        (int((labelled & ~there).sum()), "rows without a text"),
    ) if count]  # fmt: skip
    examples = Examples(
        ids=_ids(task, split, rows[kept]),
        columns={role: column.take(pa.array(kept)) for role, column in columns_of(text=texts, text_pair=pairs).items()},
        labels=_encoded([values[row] for row in kept], task, files.paths[0].name) if need_labels else None,
        source=where,
    )
    return examples, f"{split} without {', '.join(left_out)}" if left_out else ""


def read_texts(task: Task, split: str, files: Files) -> Examples:
    """Read every row of a split without labels, in the order of its files, which the leaderboard requires."""
    read = [_read(task, path, files) for path in files.paths]
    for path, one in zip(files.paths, read, strict=True):
        if one.ragged:
            raise UserError(f"{at_rows(path.name, one.ragged)}: too many or too few columns; copy the file again")
    rows, texts, pairs = _joined(read)
    columns = columns_of(text=texts, text_pair=pairs)
    return Examples(ids=_ids(task, split, rows), columns=columns, source=f"{task.name} {split}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Read:
    """The task's columns in one file: texts and, for pairs, second texts; `length` counts all its rows."""

    rows: NDArray[np.int64]
    columns: tuple[pa.Array, ...]
    values: list[Any] | None
    ragged: tuple[int, ...]
    length: int


def _read(task: Task, path: Path, files: Files) -> _Read:
    wanted = _listed_pairs(files.pairs) if files.pairs is not None else None
    chunks: list[list[pa.Array]] = []
    values: list[Any] = []
    numbers: list[NDArray[np.int64]] = []
    ragged: list[int] = []
    labelled, length = False, 0
    for some in _rows(task, path):
        rows, batch = some.numbers, some.batch
        if wanted is not None:
            chosen = _chosen(batch, wanted, files.inside, path)
            rows, batch = rows[chosen], batch.filter(pa.array(chosen))
        chunks.append([_texts(task, batch, name, path) for name in _text_columns(task, batch, path)])
        label = _label_column(batch)
        if label is not None:
            labelled = True
            values += batch[label].to_pylist()
        numbers.append(rows)
        ragged += some.ragged
        length = max([length, *some.numbers[-1:].tolist(), *some.ragged])
    return _Read(
        rows=np.concatenate(numbers),
        columns=tuple(pa.concat_arrays(column) for column in zip(*chunks, strict=True)),
        values=values if labelled else None,
        ragged=tuple(ragged),
        length=length,
    )


def _rows(task: Task, path: Path) -> Iterator[Rows]:
    """Iterate over the rows of a file: raw if it is tab-separated, else with the general readers."""
    if path.name.lower().endswith(RAW):
        known = [name for names in task.columns for name in names if name]
        yield from read_raw(path, known, task.headerless)
        return
    before = 0
    for batch in read_batches(path):
        yield Rows(batch=batch, numbers=np.arange(before + 1, before + batch.num_rows + 1))
        before += batch.num_rows


def _text_columns(task: Task, batch: pa.RecordBatch, path: Path) -> list[str]:
    for names in task.columns:
        wanted = [name for name in names if name is not None]
        if set(wanted) <= set(batch.schema.names):
            return wanted
    known = " or ".join(" and ".join(name for name in names if name) for names in task.columns)
    raise UserError(f"{path}: {task.name} needs the columns {known}; the file has {', '.join(batch.schema.names)}")


def _label_column(batch: pa.RecordBatch) -> str | None:
    return next((name for name in LABEL_COLUMNS if name in batch.schema.names), None)


def _texts(task: Task, batch: pa.RecordBatch, name: str, path: Path) -> pa.Array:
    texts = texts_of(batch.column(name), name, path)
    return pa.array(map(unwrapped, texts.to_pylist()), type=texts.type) if task.literals else texts


def _joined(read: Sequence[_Read]) -> tuple[NDArray[np.int64], pa.Array, pa.Array | None]:
    """The row numbers, continued from file to file, and the texts of all files."""
    before = np.cumsum([0, *(one.length for one in read[:-1])])
    rows = np.concatenate([start + one.rows for start, one in zip(before, read, strict=True)])
    columns = [pa.concat_arrays(column) for column in zip(*(one.columns for one in read), strict=True)]
    return rows, columns[0], columns[1] if len(columns) > 1 else None


def _ids(task: Task, split: str, rows: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(f"{task.name}-{split}-{row}" for row in rows)


def _encoded(values: Sequence[Any], task: Task, where: str) -> NDArray[Any]:
    """Encode labels in the task's order; files have either the names of the classes or their indices."""
    if task.labels.regression:
        return encode(values, task.labels, where)
    names = {str(index): name for index, name in enumerate(task.labels.names)}
    return encode([names.get(str(label_name(value)), value) for value in values], task.labels, where)


def _listed_pairs(path: Path) -> set[tuple[str, ...]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); copy the file again") from None
    return {tuple(line.split("\t")[:2]) for line in lines}


def _chosen(batch: pa.RecordBatch, pairs: set[tuple[str, ...]], inside: bool, path: Path) -> NDArray[np.bool_]:
    if not {"#1 ID", "#2 ID"} <= set(batch.schema.names):
        raise UserError(f"{path}: no columns '#1 ID' and '#2 ID', by which dev_ids.tsv names the dev split")
    ids = zip(batch["#1 ID"].to_pylist(), batch["#2 ID"].to_pylist(), strict=True)
    return np.array([(pair in pairs) == inside for pair in ids], dtype=bool)
