"""Loading of files and folders as splits, as a split to score on, or as inputs only, for every kind of model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stillery.data.schema.answer import Rows, Selected, kept_rows
from stillery.data.schema.examples import HELD_OUT, SHARES, Examples, Splits
from stillery.data.schema.labels import Labels
from stillery.data.schema.roles import Schema
from stillery.data.schema.split_folders import SPLITS, Folder, find_splits, is_folder
from stillery.data.schema.splits import cut, text_keys
from stillery.data.schema.table import Table, read_tables, refuse_answers
from stillery.errors import ErrorList, UserError, nearest
from stillery.lines import listed
from stillery.progress import say

__all__ = ["load", "load_file", "load_inputs", "load_to_score"]

Piece = tuple[str, NDArray[np.int64] | None]
"""The split whose files hold the rows of a split, and the row indices; None is all rows."""


def load(path: Path, schema: Schema, *, need_answers: bool = True) -> Splits:
    """Load the splits of a data set: a folder with train, dev and test files, or one file or folder that is split.

    Without `need_answers`, the train split gets none, whatever its files hold; dev and test have those of their files.
    """
    path, answer = Path(path), schema.answer
    folder = _folder(path)
    tables = _read(folder, schema, need_answers)
    notes = [folder.note] if folder.note else []
    if need_answers and "test" in tables and _unanswered(tables["test"], schema):
        left_out = listed(table.where for table in tables.pop("test"))
        notes.append(f"{left_out} has no {answer.plural} and is left out")
    name = path.resolve().name
    notes += [table.left_out for some in tables.values() for table in some if table.left_out]
    bare = {split: _examples(some, name) for split, some in tables.items()}
    kept = {split: kept_rows(some) for split, some in tables.items()}
    chosen = {
        split: Selected(
            files=files,
            tables=tables[files],
            rows=rows,
            examples=bare[files] if rows is None else bare[files].take(rows),
            answered=need_answers or (split != "train" and answer.found(tables[files], rows)),
        )
        for split, (files, rows) in _pieces(kept, bare["train"], path, folder, notes).items()
    }
    splits, labels = answer.attach(chosen, path.name, need_answers)
    return Splits(
        train=splits["train"],
        dev=splits["dev"],
        test=splits.get("test"),
        labels=labels,
        source=name,
        note="; ".join(notes),
    )


def load_to_score(path: Path, schema: Schema, split: str | None = None) -> Examples:
    """Load the examples to score on: a file, a folder's test (else dev) split or all of it, or the given split."""
    path = Path(path)
    if split is not None and split not in SPLITS:
        raise UserError(f"no split {split!r}; {nearest(split, SPLITS)}")
    folder = _folder(path, need_train=False)
    files = folder.whole if split is None else ()
    if folder.splits:
        split = folder.scored(split)
        assert split is not None
        # Without a dev file, the dev split is held out of train, so neither of the two is a file of its own.
        if split != "train" or "dev" in folder.splits:
            files = folder.splits.get(split, ())
    name = path.resolve().name
    if not files and split == "test" and folder.splits:
        raise UserError(f"{path}: there is no test split; add a test file, or choose another split")
    # A split held out of train needs a train file.
    tables = read_tables(files or folder.whole or _folder(path).splits["train"], schema, need=True)
    _say_left_out(tables)
    examples, rows = _examples(tables, name), kept_rows(tables)
    if not files:
        rows = _pieces({"train": rows}, examples, path, folder, [])[split or "dev"][1]
    examples = examples if rows is None else examples.take(rows)
    return _scored(Selected(files="scored", tables=tables, rows=rows, examples=examples), schema, path)[0]


def load_inputs(path: Path, schema: Schema) -> Examples:
    """Load only inputs: of a file, of a folder's train split, or of all files of a folder without splits."""
    path = Path(path)
    folder = _folder(path)
    files = folder.whole or folder.splits["train"]
    tables = read_tables(files, schema, need=False, look=False)
    _say_left_out(tables)
    examples, rows = _examples(tables, path.resolve().name), kept_rows(tables)
    return examples if rows is None else examples.take(rows)


def load_file(path: Path, schema: Schema, *, need_answers: bool = True) -> tuple[Examples, Labels | None]:
    """Load one file without splitting it, and the label space of its answers.

    Answers that are not needed are only read if their column is named, so that they cannot cause errors.
    """
    path = Path(path)
    look = need_answers or schema.asked.get(schema.answer.role.name) is not None
    tables = read_tables([path], schema, need=need_answers, look=look)
    _say_left_out(tables)
    examples, rows = _examples(tables, path.name), kept_rows(tables)
    examples = examples if rows is None else examples.take(rows)
    chosen = Selected(files="scored", tables=tables, rows=rows, examples=examples)
    return (chosen.examples, None) if tables[0].answers is None else _scored(chosen, schema, path)


def _scored(chosen: Selected, schema: Schema, path: Path) -> tuple[Examples, Labels | None]:
    """Attach answers to examples for scoring only, outside of a train split."""
    examples, labels = schema.answer.attach({"scored": chosen}, path.name, True)
    return examples["scored"], labels


def _folder(path: Path, need_train: bool = True) -> Folder:
    return find_splits(path, need_train) if is_folder(path) else Folder(whole=(path,))


def _examples(tables: Sequence[Table], source: str) -> Examples:
    """The inputs of one split's files; a single file is named as their source."""
    return Examples(
        ids=tuple(name for table in tables for name in table.ids),
        columns={name: pa.concat_arrays([table.inputs[name] for table in tables]) for name in tables[0].inputs},
        source=tables[0].where if len(tables) == 1 else source,
    )


def _read(folder: Folder, schema: Schema, need: bool) -> dict[str, list[Table]]:
    """Read the tables of each split; all errors are reported together."""
    files = folder.splits or {"train": folder.whole}
    tables: dict[str, list[Table]] = {}
    errors, like = ErrorList(), schema
    for split, paths in files.items():
        with errors.catch():
            # Without need, answers of a train split are only read if other splits are held out of it.
            look = need or split != "train" or "dev" not in files
            tables[split] = read_tables(paths, like, need=need and split != "test", look=look, answered=need)
            if split == "train":
                # The other splits must use the same columns.
                like = schema.like(tables[split][0].columns)
    if errors.lines and need:
        # The answers of the other splits would be validated later; report their errors together with these.
        for some in tables.values():
            for table in some:
                with errors.catch():
                    refuse_answers(schema, table)
    errors.raise_any()
    role = schema.answer.role
    asked = schema.asked.get(role.name)
    if asked is not None and all(table.answers is None for some in tables.values() for table in some):
        where = ", ".join(some[0].where for some in tables.values())
        raise UserError(
            f"{where}: no column {asked!r} ({role.option}); leave it out where there are no {schema.answer.plural}"
        )
    return tables


def _unanswered(tables: Sequence[Table], schema: Schema) -> bool:
    """Return whether a test split has no answers; if empty rows are skipped, its answer column may be empty."""
    answer = schema.answer
    return answer.left_out(tables) or (schema.skip_empty and not answer.found(tables))


def _say_left_out(tables: Sequence[Table]) -> None:
    for table in tables:
        if table.left_out:
            say(table.left_out)


def _pieces(
    kept: Mapping[str, Rows], train: Examples, path: Path, folder: Folder, notes: list[str]
) -> dict[str, Piece]:
    """The files and rows that make up each split; a split without files is held out of train.

    `kept` has the rows of each split's files that are not skipped.
    """
    pieces: dict[str, Piece] = {split: (split, rows) for split, rows in kept.items()}
    names, shares = (
        (tuple(SPLITS), SHARES) if folder.whole else (("train", "dev"), HELD_OUT) if "dev" not in kept else ((), ())
    )
    if names:
        left = kept["train"]
        whole = train if left is None else train.take(left)
        rows = cut(text_keys(whole.kept_together), shares, train.source)
        rows = rows if left is None else tuple(left[some] for some in rows)
        pieces |= {split: ("train", some) for split, some in zip(names, rows, strict=True)}
        sizes = ", ".join(f"{len(some)} {split}" for split, some in zip(names, rows, strict=True))
        if not folder.whole:
            notes.append(f"no dev file: {len(rows[1])} of the train rows are held out as the dev split")
        elif path.is_dir():
            notes.append(f"the {len(folder.whole)} files of {path.resolve().name} are one set, split by texts: {sizes}")
        else:
            notes.append(f"{path.name} is split by its texts: {sizes}")
    return {split: pieces[split] for split in SPLITS if split in pieces}
