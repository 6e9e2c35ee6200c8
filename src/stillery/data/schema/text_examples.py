"""Text examples: sources and the texts to be written from them, loaded from files and cut into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.schema.examples import hash_columns, pieces_of
from stillery.data.schema.split_folders import PARTS, Folder, find_parts, is_folder
from stillery.data.schema.splits import cut, text_keys
from stillery.data.schema.text_table import TextTable, has_targets, read_text_tables, refuse_empty
from stillery.errors import ErrorList, UserError, nearest

__all__ = ["TextExamples", "TextParts", "expanded", "load_sources", "load_text", "load_text_to_score", "split_text"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TextExamples:
    """Sources and targets (Arrow large strings, no Python strings held) and their ids.

    `references` are the right texts of each example where there may be several, the target the first of them.
    `origin` says where the examples are from.
    """

    ids: tuple[str, ...]
    sources: pa.Array
    targets: pa.Array | None
    references: pa.Array | None = None
    origin: str

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> TextExamples:
        """The examples at these positions, in this order."""
        rows = np.asarray(indices, dtype=np.int64)
        chosen = pa.array(rows)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            sources=self.sources.take(chosen),
            targets=None if self.targets is None else self.targets.take(chosen),
            references=None if self.references is None else self.references.take(chosen),
        )

    def right_texts(self) -> list[list[str]]:
        """Of each example its references, or its one target, as `evaluate.text_metrics` wants them."""
        if self.references is not None:
            found: list[list[str]] = self.references.to_pylist()
            return found
        if self.targets is None:
            raise UserError(f"{self.origin}: there are no targets to compare with")
        return [[text] for text in self.targets.to_pylist()]

    @cached_property
    def text_fingerprint(self) -> str:
        """The sha256 of sources and targets alone: what tokens depend on."""
        digest = hashlib.sha256()
        hash_columns(digest, self.sources, self.targets)
        return digest.hexdigest()

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of ids, sources, targets and references."""
        digest = hashlib.sha256()
        hash_columns(digest, pa.array(self.ids, type=pa.large_string()), self.sources, self.targets)
        if self.references is not None:
            digest.update(pc.list_value_length(self.references).to_numpy().astype("<i8").tobytes())
            hash_columns(digest, self.references.flatten())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class TextParts:
    """The train, dev and test parts of one set of texts; `metrics` are what a named task is measured by."""

    train: TextExamples
    dev: TextExamples
    test: TextExamples | None
    source: str
    note: str
    metrics: tuple[str, ...] | None = None


def load_text(
    path: Path, *, source: str | None = None, target: str | None = None, need_targets: bool = True
) -> TextParts:
    """Load the parts of a set of texts: a folder with train, dev and test files, or one file or folder that is split.

    Where a row has several targets, each makes an example of its own in the train part (see `expanded`). Without
    `need_targets` the train part has none, whatever its files say; dev and test have them where theirs do.
    """
    path = Path(path)
    folder = find_parts(path) if is_folder(path) else Folder(whole=(path,))
    tables = _read(folder, source, target, need_targets)
    notes = [folder.note] if folder.note else []
    if need_targets and "test" in tables and not has_targets(tables["test"]):
        notes.append(f"{', '.join(table.where for table in tables.pop('test'))} has no targets and is left out")
    name = path.resolve().name
    train = _examples(tables["train"], name)
    pieces = pieces_of(list(tables), partial(text_keys, train.sources, None), train.origin, path, folder, notes)
    errors = ErrorList()
    parts: dict[str, TextExamples] = {}
    for part, (files, rows) in pieces.items():
        wanted = need_targets or (part != "train" and has_targets(tables[files], rows))
        with errors.catch():
            if wanted:
                refuse_empty(tables[files], rows)
            some = _examples(tables[files], name, rows, targets=wanted)
            parts[part] = expanded(some) if part == "train" else some
    errors.raise_any()
    return TextParts(train=parts["train"], dev=parts["dev"], test=parts.get("test"), source=name, note="; ".join(notes))


def load_text_to_score(
    path: Path, *, part: str | None = None, source: str | None = None, target: str | None = None
) -> TextExamples:
    """Load what a model is to be scored on: a file, a folder's test (else dev) part or all of it, or the part named.

    An example has all its references, in a train part too.
    """
    path = Path(path)
    if part is not None and part not in PARTS:
        raise UserError(f"no part {part!r}; {nearest(part, PARTS)}")
    folder = find_parts(path, need_train=False) if is_folder(path) else Folder(whole=(path,))
    files, rows, name = folder.whole if part is None else (), None, path.resolve().name
    if folder.parts:
        part = folder.scored(part)
        assert part is not None
        # Without a dev file the dev part is held out of train, so neither of the two is a file of its own.
        if part != "train" or "dev" in folder.parts:
            files = folder.parts.get(part, ())
    if files:
        tables = read_text_tables(files, source=source, target=target)
    elif part == "test" and folder.parts:
        raise UserError(f"{path}: there is no test part; add a test file, or choose another part")
    else:
        files = folder.parts.get("train", folder.whole)
        tables = read_text_tables(files, source=source, target=target)
        train = _examples(tables, name)
        pieces = pieces_of(["train"], partial(text_keys, train.sources, None), train.origin, path, folder, [])
        rows = pieces[part or "dev"][1]
    refuse_empty(tables, rows)
    return _examples(tables, name, rows, targets=True)


def load_sources(path: Path, *, source: str | None = None) -> TextExamples:
    """Load sources alone: of a file, of a folder's train part, or of all files of a folder without parts."""
    path = Path(path)
    folder = find_parts(path) if is_folder(path) else Folder(whole=(path,))
    tables = read_text_tables(folder.whole or folder.parts["train"], source=source, targets=False)
    return _examples(tables, path.resolve().name)


def expanded(examples: TextExamples) -> TextExamples:
    """Each source with each of its references as an example of its own, called by its number: `17#1`, `17#2`."""
    if examples.references is None:
        return examples
    owners = pc.list_parent_indices(examples.references).to_numpy()
    sizes = pc.list_value_length(examples.references).to_numpy()
    number = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return TextExamples(
        ids=tuple(f"{examples.ids[row]}#{count}" for row, count in zip(owners, number, strict=True)),
        sources=examples.sources.take(pa.array(owners)),
        targets=examples.references.flatten(),
        origin=examples.origin,
    )


def split_text(examples: TextExamples, shares: Sequence[float], seed: int = 0) -> tuple[TextExamples, ...]:
    """Cut examples into parts by their sources and the seed alone; the same source is never in two parts."""
    keys = text_keys(examples.sources, None, seed)
    return tuple(examples.take(rows) for rows in cut(keys, shares, examples.origin))


def _read(folder: Folder, source: str | None, target: str | None, need_targets: bool) -> dict[str, list[TextTable]]:
    """The tables of each part; all errors are reported together."""
    files = folder.parts or {"train": folder.whole}
    tables: dict[str, list[TextTable]] = {}
    errors, asked, named = ErrorList(), source, target
    for part, paths in files.items():
        with errors.catch():
            # Targets of a train part are looked at without need only where other parts are held out of it.
            look = need_targets or part != "train" or "dev" not in files
            need = need_targets and part != "test"
            tables[part] = read_text_tables(paths, source=asked, target=named, need_target=need, targets=look)
            if part == "train":
                # The other parts must mean the same by their columns.
                columns = tables[part][0].columns
                asked, named = columns.source, columns.target or target
    errors.raise_any()
    if target is not None and all(table.targets is None for some in tables.values() for table in some):
        where = ", ".join(some[0].where for some in tables.values())
        raise UserError(f"{where}: no column {target!r} (--target); leave it out where there are no targets")
    return tables


def _examples(
    tables: Sequence[TextTable], name: str, rows: NDArray[np.int64] | None = None, *, targets: bool = False
) -> TextExamples:
    """The examples of some rows of one part's files; one file is its own origin."""
    found = TextExamples(
        ids=tuple(one for table in tables for one in table.ids),
        sources=pa.concat_arrays([table.sources for table in tables]),
        targets=None,
        origin=tables[0].where if len(tables) == 1 else name,
    )
    if targets:
        lists = [table.targets for table in tables if table.targets is not None]
        found = replace(found, references=pa.concat_arrays(lists))
    found = found if rows is None else found.take(rows)
    if found.references is None:
        return found
    several = tables[0].several
    first = pc.list_element(found.references, 0) if len(found) else pa.array([], type=pa.large_string())
    return replace(found, targets=first, references=found.references if several else None)
