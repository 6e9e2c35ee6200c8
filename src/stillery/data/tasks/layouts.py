"""Assignment of files to the splits of a task: official GLUE folders, plain folders, and hub layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stillery.data.readers.formats import SUFFIXES, stem
from stillery.errors import UserError
from stillery.lines import listed

__all__ = ["Files", "find_files", "hub_splits"]

STEMS: Mapping[str, Sequence[str]] = {
    "train": ("train", "train_subset", "scitail_1.0_train"),
    "dev": ("dev", "dev_matched", "validation", "validation_matched", "dev_and_test", "scitail_1.0_dev", "val"),
    "dev_mismatched": ("dev_mismatched", "validation_mismatched"),
    "test": ("test", "test_matched", "scitail_1.0_test", "test_2016_flickr"),
    "test_mismatched": ("test_mismatched",),
}
"""The possible file names of each split, without their suffix."""

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.parquet")
SPLIT_FOLDER = re.compile(r"(?P<stem>[^/]+)/(?P<number>\d{4,5})\.parquet")
MSR = {"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"}


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files that make up one split, in order.

    `pairs` lists pairs of ids, like MRPC's dev_ids.tsv: the split has the rows in it or, without `inside`, the others.
    """

    paths: tuple[Path, ...]
    pairs: Path | None = None
    inside: bool = True

    @property
    def names(self) -> str:
        """The names of the files."""
        return listed(path.name for path in self.paths)


def find_files(folder: Path) -> dict[str, Files]:
    """Find the files of each split in a task's folder."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        shards = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*.parquet"))
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from None
    found = {}
    for split, stems in STEMS.items():
        for one in stems:
            paths = _plain(names, one) or _sharded([*names, *shards], one, str(folder))
            if paths:
                found[split] = Files(paths=tuple(folder / path for path in paths))
                break
    if "train" not in found and MSR["train"] in names:
        found |= _msr(folder, names)
    return found


def hub_splits(names: Sequence[str], folder: str, splits: Mapping[str, str], where: str) -> dict[str, tuple[str, ...]]:
    """Find the files of each split in a repository's file list; splits without files are omitted."""
    inside = [name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")]
    found = {split: _sharded(inside, called, where) for split, called in splits.items()}
    return {split: tuple(f"{folder}/{path}" for path in paths) for split, paths in found.items() if paths}


def _plain(names: Sequence[str], wanted: str) -> tuple[str, ...]:
    # The official format takes precedence if a split exists in several.
    suffixes = sorted(SUFFIXES, key=lambda suffix: (not suffix.startswith(".tsv"), suffix))
    fits = [name for suffix in suffixes for name in names if name.lower().endswith(suffix) and _stem(name) == wanted]
    return tuple(fits[:1])


def _stem(name: str) -> str:
    return stem(Path(name)).lower()


def _sharded(names: Sequence[str], wanted: str, where: str) -> tuple[str, ...]:
    """The shards of a split, either `train-00000-of-00002.parquet` or `train/0000.parquet`, in order."""
    matches = [found for name in names if (found := SHARD.fullmatch(name)) and found["stem"] == wanted]
    if matches:
        total = int(matches[0]["total"])
        numbers = sorted(int(found["number"]) for found in matches)
        if numbers != list(range(total)):
            raise UserError(f"{where}: {len(numbers)} of the {total} files of {wanted} are there; add the others")
        return tuple(found.string for found in sorted(matches, key=lambda found: int(found["number"])))
    folders = [found for name in names if (found := SPLIT_FOLDER.fullmatch(name)) and found["stem"] == wanted]
    return tuple(found.string for found in sorted(folders, key=lambda found: PurePosixPath(found.string)))


def _msr(folder: Path, names: Sequence[str]) -> dict[str, Files]:
    """The splits of MRPC as originally published: GLUE's dev split has the rows of train listed in dev_ids.tsv."""
    train, ids = (folder / MSR["train"],), folder / "dev_ids.tsv"
    found = {"train": Files(paths=train)}
    if ids.is_file():
        found = {"train": Files(paths=train, pairs=ids, inside=False), "dev": Files(paths=train, pairs=ids)}
    if MSR["test"] in names:
        found["test"] = Files(paths=(folder / MSR["test"],))
    return found
