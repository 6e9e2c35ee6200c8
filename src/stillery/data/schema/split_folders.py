"""Detection of the train, dev and test files in a folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stillery.data.readers.formats import SUFFIXES, format_of, stem
from stillery.errors import ErrorList, UserError
from stillery.lines import listed

__all__ = ["SPLITS", "Folder", "find_splits", "is_folder", "scored_split"]

SPLITS = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
"""The splits of a data set, with the possible file names of each."""

# Base name, number and total of `train-00001-of-00004`, optionally with a hash, `train_2`, `train2`, `train-2024-01`.
SHARD = re.compile(
    r"(?P<base>.*?[^\d\W_])[-_. ]?(?P<number>\d+(?:[-_.]\d+)*)(?:[-_]of[-_](?P<total>\d+)(?:-[0-9a-f]{8,})?)?"
)
# Text files that often accompany data but are not data.
ABOUT = ("readme", "license", "licence", "notice", "citation", "changelog", "authors", "requirements")
NOT_DATA = {"config.json": "a model", "run.toml": "a run"}


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The files of each split or, if no file belongs to a split, all of them as one data set (`whole`)."""

    splits: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    whole: tuple[Path, ...] = ()
    note: str = ""

    def scored(self, split: str | None) -> str | None:
        """The split to score on: the given one, else test, else dev; None for a data set without splits."""
        if split is not None or not self.splits:
            return split
        return "test" if "test" in self.splits else "dev"


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False if it cannot be accessed, which fails later when it is read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def scored_split(path: Path, split: str | None = None) -> str | None:
    """The split of a file or folder to score on; None for all of it."""
    return (find_splits(path, need_train=False) if is_folder(path) else Folder()).scored(split)


def find_splits(folder: Path, need_train: bool = True) -> Folder:
    """Find the files of each split in a folder.

    A split is one file (`train.csv`), numbered files (`train-1.csv`, `train-00000-of-00002.parquet`) or the files of a
    subfolder (`train/`). A file with a longer name (`dev_matched.tsv`) is used if it is the only one.
    """
    try:
        files = _data_files(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot read the folder ({error.strerror})") from None
    found: dict[str, tuple[Path, ...]] = {}
    errors, notes = ErrorList(), []
    for split, names in SPLITS.items():
        with errors.catch():
            chosen, beside = _choose(folder, split, names, files)
            if chosen:
                found[split] = chosen
            if beside:
                notes.append(f"{listed(beside, 5)} beside {chosen[0].name} left out")
    errors.raise_any()
    if not found:
        return Folder(whole=_as_one(folder, files))
    if "train" not in found and need_train:
        shown = listed((path.name for paths in found.values() for path in paths), 5)
        raise UserError(f"{folder}: no train file, such as train.csv; the folder has {shown}")
    return Folder(splits=found, note="; ".join(notes))


def _data_files(folder: Path) -> list[Path]:
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(tuple(SUFFIXES))
    )
    # A workbook among other files is assumed to be their origin, not one of them.
    return [path for path in files if format_of(path) != "xlsx"] or files


def _choose(
    folder: Path, split: str, names: Sequence[str], files: Sequence[Path]
) -> tuple[tuple[Path, ...], list[str]]:
    """The files of a split, and the names of files with longer names that are skipped."""
    exact: dict[str, list[Path]] = {}
    variants: dict[str, list[Path]] = {}
    for path in files:
        base = _base(path, names)
        if base in names:
            exact.setdefault(base, []).append(path)
        elif any(re.match(rf"{name}[-_. ]", base) for name in names):
            variants.setdefault(base, []).append(path)
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and path.name.lower() in names)
    candidates = [*(("", some) for some in exact.values()), *((f"{path.name}/", _data_files(path)) for path in folders)]
    candidates = [(shown, some) for shown, some in candidates if some]
    numbered = any(_number(path) for _, some in candidates for path in some)
    if not candidates or (variants and (numbered or candidates[0][0])):
        candidates += [("", some) for some in variants.values()]
        variants = {}
    if len(candidates) > 1:
        shown = listed(where or listed((path.name for path in paths), 3) for where, paths in candidates)
        raise UserError(
            f"{folder}: more than one {split} file ({shown}); keep one, or number those that belong together"
        )
    if not candidates:
        return (), []
    where, chosen = candidates[0]
    if not where:
        _check_shards(folder, split, chosen)
    return tuple(chosen), [path.name for some in variants.values() for path in some]


def _base(path: Path, names: Sequence[str] = ()) -> str:
    """The name of a file without its number."""
    name = stem(path).lower()
    shard = SHARD.fullmatch(name)
    return shard["base"] if shard and name not in names else name


def _number(path: Path) -> tuple[tuple[int, ...], int | None] | None:
    """The number of a numbered file, and the total if its name has one."""
    shard = SHARD.fullmatch(stem(path).lower())
    if shard is None:
        return None
    number = tuple(int(piece) for piece in re.split(r"[-_.]", shard["number"]))
    return number, int(shard["total"]) if shard["total"] else None


def _check_shards(folder: Path, split: str, files: Sequence[Path]) -> None:
    """Raise UserError for numbered files that are not one set: an unnumbered file, a duplicate or missing number."""
    numbers = [_number(path) for path in files]
    shown = listed((path.name for path in files), 4)
    if len(files) > 1 and (None in numbers or len({format_of(path) for path in files}) > 1):
        raise UserError(
            f"{folder}: more than one {split} file ({shown}); keep one, or number those that belong together"
        )
    known = [number for number in numbers if number is not None]
    if len({number for number, _ in known}) < len(known):
        raise UserError(f"{folder}: a number appears twice among the {split} files ({shown}); keep one")
    totals = {total for _, total in known}
    total = next(iter(totals), None)
    if len(totals) > 1 or (total is not None and total != len(known)):
        raise UserError(
            f"{folder}: {len(known)} {split} files, and their names say {total} ({shown}); add what is missing"
        )


def _as_one(folder: Path, files: Sequence[Path]) -> tuple[Path, ...]:
    """All data files of a folder that has no splits."""
    about = tuple(path for path in files if stem(path).lower().startswith(ABOUT) and format_of(path) == "txt")
    data = tuple(path for path in files if path not in about)
    for name, what in NOT_DATA.items():
        if (folder / name).is_file():
            raise UserError(f"{folder}: no train file, such as train.csv; the folder holds {what}, not data")
    if not data:
        raise UserError(f"{folder}: no train file, such as train.csv; the folder has no data files")
    words = {word for names in SPLITS.values() for word in names}
    named = [path.name for path in data if words & set(re.split(r"[\W_]+", stem(path).lower()))]
    if named:
        raise UserError(f"{folder}: {listed(named, 5)} look like splits of a task; call them train, dev and test")
    return data
