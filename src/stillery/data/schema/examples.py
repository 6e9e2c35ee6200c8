"""Examples: texts with ids and labels, loaded from files and cut into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.data.schema.split_folders import PARTS, Folder, find_parts, is_folder
from stillery.data.schema.splits import cut, text_keys
from stillery.data.schema.table import Table, Wanted
from stillery.data.schema.tables import encode_tables, has_labels, infer_labels, read_tables
from stillery.errors import ErrorList, UserError, nearest

__all__ = [
    "Examples",
    "Parts",
    "hash_columns",
    "load",
    "load_file",
    "load_for_scoring",
    "load_texts",
    "pieces_of",
    "split",
]

SHARES = (0.8, 0.1, 0.1)
HELD_OUT = (0.9, 0.1)

Piece = tuple[str, NDArray[np.int64] | None]
"""The part whose files hold the rows of a part, and which rows; None is all of them."""


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
    def text_fingerprint(self) -> str:
        """The sha256 of texts and second texts alone."""
        digest = hashlib.sha256()
        hash_columns(digest, self.texts, self.pairs)
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of ids, texts, second texts and labels."""
        digest = hashlib.sha256()
        hash_columns(digest, pa.array(self.ids, type=pa.large_string()), self.texts, self.pairs)
        if self.labels is not None:
            digest.update(f"{self.labels.dtype}{self.labels.shape}".encode())
            digest.update(np.ascontiguousarray(self.labels).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The train, dev and test parts of one task, with labels in common.

    `metrics` are what the task is measured by, where it says so; `more` are further parts to score on, by name.
    """

    train: Examples
    dev: Examples
    test: Examples | None
    labels: Labels
    source: str
    note: str
    metrics: tuple[str, ...] | None = None
    more: Mapping[str, Examples] = field(default_factory=dict)


def load_file(
    path: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    need_labels: bool = True,
) -> tuple[Examples, Labels | None]:
    """Load one file; labels are encoded with the given label space, or with the one the file shows.

    When they are not needed, a label column is read only if it is named, so that it cannot be at error.
    """
    wanted = Wanted(text=text, text_pair=text_pair, label=label, multi=multi_label, separator=label_separator)
    tables = read_tables([Path(path)], wanted, need_label=need_labels, labels=need_labels or label is not None)
    if tables[0].values is None:
        return _examples(tables), labels
    if labels is None:
        labels = infer_labels(tables, regression, multi_label)
    return replace(_examples(tables), labels=encode_tables(tables, labels)), labels


def load_texts(path: Path, *, text: str | None = None, text_pair: str | None = None) -> Examples:
    """Load texts alone: of a file, of a folder's train part, or of all files of a folder without parts."""
    path = Path(path)
    folder = find_parts(path) if is_folder(path) else Folder(whole=(path,))
    files = folder.whole or folder.parts["train"]
    tables = read_tables(files, Wanted(text=text, text_pair=text_pair), need_label=False, labels=False)
    return _examples(tables, path.resolve().name)


def load(
    path: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels | None = None,
    regression: bool | None = None,
    multi_label: bool | None = None,
    label_separator: str | None = None,
    need_labels: bool = True,
) -> Parts:
    """Load the parts of a task: a folder with train, dev and test files, or one file or folder that is split.

    Without `need_labels` the train part has none, whatever its files say; dev and test have them where theirs do.
    """
    path = Path(path)
    folder = find_parts(path) if is_folder(path) else Folder(whole=(path,))
    wanted = Wanted(text=text, text_pair=text_pair, label=label, multi=multi_label, separator=label_separator)
    tables = _read(folder, wanted, need_labels)
    notes = [folder.note] if folder.note else []
    if need_labels and "test" in tables and tables["test"][0].values is None:
        notes.append(f"{', '.join(table.where for table in tables.pop('test'))} has no labels and is left out")
    texts = {part: _examples(some, path.resolve().name) for part, some in tables.items()}
    train = texts["train"]
    pieces = pieces_of(list(texts), partial(text_keys, train.texts, train.pairs), train.source, path, folder, notes)
    labelled = [
        part
        for part, (source, rows) in pieces.items()
        if need_labels or (part != "train" and has_labels(tables[source], rows))
    ]
    if labels is None:
        if not labelled:
            raise UserError(
                f"{path.name}: no part has labels, so the classes are not known; name the label column (--label)"
            )
        source, rows = (labelled[0], None) if need_labels else pieces[labelled[0]]
        space = infer_labels(tables[source], regression, multi_label, rows)
    else:
        space = labels
    encoded = _encoded(tables, pieces, labelled, space, need_labels)
    parts = {
        part: replace(
            texts[source] if rows is None else texts[source].take(rows),
            labels=None if part not in labelled else encoded[source] if rows is None else encoded[source][rows],
        )
        for part, (source, rows) in pieces.items()
    }
    return Parts(
        train=parts["train"],
        dev=parts["dev"],
        test=parts.get("test"),
        labels=space,
        source=path.resolve().name,
        note="; ".join(notes),
    )


def load_for_scoring(
    path: Path,
    *,
    part: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Labels,
    multi_label: bool | None = None,
    label_separator: str | None = None,
) -> Examples:
    """Load what a model is to be scored on: a file, a folder's test (else dev) part or all of it, or the part named."""
    path = Path(path)
    if part is not None and part not in PARTS:
        raise UserError(f"no part {part!r}; {nearest(part, PARTS)}")
    folder = find_parts(path, need_train=False) if is_folder(path) else Folder(whole=(path,))
    files = folder.whole if part is None else ()
    if folder.parts:
        part = folder.scored(part)
        assert part is not None
        # Without a dev file the dev part is held out of train, so neither of the two is a file of its own.
        if part != "train" or "dev" in folder.parts:
            files = folder.parts.get(part, ())
    if files:
        wanted = Wanted(text=text, text_pair=text_pair, label=label, multi=multi_label, separator=label_separator)
        tables = read_tables(files, wanted, need_label=True)
        return replace(_examples(tables, path.resolve().name), labels=encode_tables(tables, labels))
    parts = load(
        path,
        text=text,
        text_pair=text_pair,
        label=label,
        labels=labels,
        multi_label=multi_label,
        label_separator=label_separator,
    )
    chosen = {"train": parts.train, "dev": parts.dev, "test": parts.test}[part or "dev"]
    if chosen is None:
        raise UserError(f"{path}: there is no {part} part with labels; add a {part} file, or choose another part")
    return chosen


def split(examples: Examples, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[Examples, ...]:
    """Cut examples into parts by their texts and the seed alone; the same text is never in two parts."""
    keys = text_keys(examples.texts, examples.pairs, seed)
    return tuple(examples.take(rows) for rows in cut(keys, shares, examples.source))


def _examples(tables: Sequence[Table], source: str | None = None) -> Examples:
    """The texts of one part, without labels; one file is its own source."""
    pairs = [table.pairs for table in tables if table.pairs is not None]
    return Examples(
        ids=tuple(name for table in tables for name in table.ids),
        texts=pa.concat_arrays([table.texts for table in tables]),
        pairs=pa.concat_arrays(pairs) if pairs else None,
        labels=None,
        source=tables[0].where if len(tables) == 1 or source is None else source,
    )


def _read(folder: Folder, wanted: Wanted, need_labels: bool) -> dict[str, list[Table]]:
    """The tables of each part; all errors are reported together."""
    files = folder.parts or {"train": folder.whole}
    tables: dict[str, list[Table]] = {}
    errors, asked = ErrorList(), wanted
    for part, paths in files.items():
        with errors.catch():
            # Labels of a train part are looked at without need only where other parts are held out of it.
            look = need_labels or part != "train" or "dev" not in files
            tables[part] = read_tables(paths, asked, need_label=need_labels and part != "test", labels=look)
            if part == "train":
                # The other parts must mean the same by their columns.
                asked = wanted.like(tables[part][0].columns)
    errors.raise_any()
    if wanted.label is not None and all(table.values is None for some in tables.values() for table in some):
        where = ", ".join(some[0].where for some in tables.values())
        raise UserError(f"{where}: no column {wanted.label!r} (--label); leave it out where there are no labels")
    return tables


def pieces_of(
    parts: Sequence[str],
    keys: Callable[[], NDArray[np.uint64]],
    where: str,
    path: Path,
    folder: Folder,
    notes: list[str],
) -> dict[str, Piece]:
    """Which part's files, and which of their rows, make up each part; what has no files comes out of train.

    `parts` have files, `keys` gives what the rows of train are told apart by, `where` calls them in an error.
    """
    pieces: dict[str, Piece] = {part: (part, None) for part in parts}
    held = (PARTS, SHARES) if folder.whole else (("train", "dev"), HELD_OUT) if "dev" not in parts else ((), ())
    if held[0]:
        rows = cut(keys(), held[1], where)
        pieces |= {part: ("train", some) for part, some in zip(held[0], rows, strict=True)}
        sizes = ", ".join(f"{len(some)} {part}" for part, some in zip(held[0], rows, strict=True))
        if not folder.whole:
            notes.append(f"no dev file: {len(rows[1])} of the train rows are held out as the dev part")
        elif path.is_dir():
            notes.append(f"the {len(folder.whole)} files of {path.resolve().name} are one set, split by texts: {sizes}")
        else:
            notes.append(f"{path.name} is split by its texts: {sizes}")
    return {part: pieces[part] for part in PARTS if part in pieces}


def _encoded(
    tables: dict[str, list[Table]], pieces: dict[str, Piece], labelled: Sequence[str], labels: Labels, need: bool
) -> dict[str, NDArray[Any]]:
    """The labels of each part's files; where they are not needed, only those rows are read that are to have them."""
    errors = ErrorList()
    encoded: dict[str, NDArray[Any]] = {}
    for source, some in tables.items():
        asked = [pieces[part][1] for part in labelled if pieces[part][0] == source]
        if not asked:
            continue
        chosen = [rows for rows in asked if rows is not None]
        rows = None if need or not chosen else np.sort(np.concatenate(chosen))
        with errors.catch():
            encoded[source] = encode_tables(some, labels, rows, learnt=need and source == "train")
    if errors.lines and not need:
        errors.add("dev and test are scored against their labels; without a label column, against the teacher")
    errors.raise_any()
    return encoded


def hash_columns(digest: Any, *columns: pa.Array | None) -> None:
    """Add columns of large strings, or that there is none, to a digest."""
    for column in columns:
        digest.update(b"-" if column is None else b"+")
        if column is not None:
            _hash_strings(digest, column)


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
