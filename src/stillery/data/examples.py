"""Examples: texts with ids and labels, loaded from files and cut into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.folders import PARTS, find_parts
from stillery.data.labels import Labels, encode, infer, refuse_constant
from stillery.data.splits import cut, text_keys
from stillery.data.table import Table, read_table
from stillery.faults import Fault, Gathered, nearest

__all__ = ["Examples", "Parts", "load", "load_file", "load_for_scoring", "split"]

SHARES = (0.8, 0.1, 0.1)
HELD_OUT = (0.9, 0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Texts (Arrow, no Python strings held), their ids, and their encoded labels when they have any."""

    ids: tuple[str, ...]
    texts: pa.Array
    pairs: pa.Array | None
    labels: NDArray[Any] | None
    source: str

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Examples:
        """The examples at these positions, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            texts=self.texts.take(pa.array(rows)),
            pairs=None if self.pairs is None else self.pairs.take(pa.array(rows)),
            labels=None if self.labels is None else self.labels[rows],
        )

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of ids, texts, second texts and labels."""
        digest = hashlib.sha256()
        for array in (pa.array(self.ids, type=pa.large_string()), self.texts, self.pairs):
            digest.update(b"-" if array is None else b"+")
            if array is not None:
                _hash_strings(digest, array)
        if self.labels is not None:
            digest.update(f"{self.labels.dtype}{self.labels.shape}".encode())
            digest.update(np.ascontiguousarray(self.labels).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The train, dev and test parts of one task, with labels in common."""

    train: Examples
    dev: Examples
    test: Examples | None
    labels: Labels
    source: str
    note: str


def load_file(
    path: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels | None = None,
    regression: bool | None = None,
    need_labels: bool = True,
) -> tuple[Examples, Labels | None]:
    """Load one file; labels are encoded with the given label space, or with the one the file shows.

    When they are not needed, a label column is read only if it is named, so that it cannot be at fault.
    """
    table = read_table(Path(path), text=text, text_pair=text_pair, label=label, need_label=need_labels)
    if table.values is None or (label is None and not need_labels):
        return _examples(table, None), labels
    if labels is None:
        labels = infer(table.values, table.where, regression)
    return _examples(table, labels), labels


def load(
    path: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels | None = None,
    regression: bool | None = None,
) -> Parts:
    """Load the parts of a task: a folder with train, dev and test files, or one file that is split."""
    path = Path(path)
    faults = Gathered()
    files = find_parts(path) if path.is_dir() else {"train": path}
    tables: dict[str, Table] = {}
    asked = {"text": text, "text_pair": text_pair, "label": label}
    for part, file in files.items():
        with faults.catch():
            tables[part] = read_table(file, **asked, need_label=part != "test")
            if part == "train":
                # The other parts must mean the same by their columns.
                found = tables[part].columns
                asked = {"text": found.text, "text_pair": found.text_pair, "label": found.label or label}
    faults.raise_any()
    unlabelled = "test" in tables and tables["test"].values is None
    if unlabelled:
        tables.pop("test")
    train = tables["train"]
    values = train.values or []
    space = labels or infer(values, train.where, regression)
    if labels:
        refuse_constant(values, labels, train.where)
    parts: dict[str, Examples] = {}
    for part, table in tables.items():
        with faults.catch():
            parts[part] = _examples(table, space)
    faults.raise_any()
    note = f"{files['test'].name} has no labels and is left out" if unlabelled else ""
    return _complete(parts, space, path, note)


def load_for_scoring(
    path: Path,
    *,
    part: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels,
) -> Examples:
    """Load what a model is to be scored on: a whole file, a folder's test (else dev) part, or the part named."""
    path = Path(path)
    if part is not None and part not in PARTS:
        raise Fault(f"no part {part!r}; {nearest(part, PARTS)}")
    file: Path | None = path
    if path.is_dir():
        files = find_parts(path, need_train=False)
        part = part or ("test" if "test" in files else "dev")
        # Without a dev file the dev part is held out of train, so neither of the two is a file of its own.
        whole = part in files and (part != "train" or "dev" in files)
        file = files[part] if whole else None
    elif part is not None:
        file = None
    if file is not None:
        return load_file(file, text=text, text_pair=text_pair, label=label, labels=labels)[0]
    parts = load(path, text=text, text_pair=text_pair, label=label, labels=labels)
    chosen = {"train": parts.train, "dev": parts.dev, "test": parts.test}[part or "dev"]
    if chosen is None:
        raise Fault(f"{path}: there is no {part} part with labels; add a {part} file, or choose another part")
    return chosen


def split(examples: Examples, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[Examples, ...]:
    """Cut examples into parts by their texts and the seed alone; the same text is never in two parts."""
    keys = text_keys(examples.texts, examples.pairs, seed)
    return tuple(examples.take(rows) for rows in cut(keys, shares, examples.source))


def _examples(table: Table, labels: Labels | None) -> Examples:
    encoded = encode(table.values, labels, table.where) if labels is not None and table.values is not None else None
    return Examples(ids=table.ids, texts=table.texts, pairs=table.pairs, labels=encoded, source=table.where)


def _complete(parts: dict[str, Examples], labels: Labels, path: Path, note: str) -> Parts:
    """Make the parts that have no file of their own out of the train part."""
    notes = [note] if note else []
    if path.is_dir():
        if "dev" not in parts:
            parts["train"], parts["dev"] = split(parts["train"], HELD_OUT)
            notes.append(f"no dev file: {len(parts['dev'])} of the train rows are held out as the dev part")
    else:
        parts["train"], parts["dev"], parts["test"] = split(parts["train"])
        sizes = ", ".join(f"{len(parts[part])} {part}" for part in PARTS)
        notes.append(f"{path.name} is split by its texts: {sizes}")
    return Parts(
        train=parts["train"],
        dev=parts["dev"],
        test=parts.get("test"),
        labels=labels,
        source=path.resolve().name,
        note="; ".join(notes),
    )


def _hash_strings(digest: Any, array: pa.Array) -> None:
    lengths = np.diff(_offsets(array))
    digest.update(len(lengths).to_bytes(8, "little") + lengths.astype("<i8").tobytes())
    start, end = (int(_offsets(array)[end]) for end in (0, -1))
    if end > start:
        digest.update(memoryview(array.buffers()[2])[start:end])


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
