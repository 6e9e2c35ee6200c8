"""Which files of a folder are its train, dev and test parts."""

from __future__ import annotations

from pathlib import Path

from stillery.data.formats import SUFFIXES, stem
from stillery.faults import Fault, Gathered

__all__ = ["PARTS", "find_parts"]

PARTS = {"train": ("train", "training"), "dev": ("dev", "validation", "valid", "val"), "test": ("test",)}
"""The parts of a task, with the file names each may have."""


def find_parts(folder: Path, need_train: bool = True) -> dict[str, Path]:
    """The file of each part the folder has."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().endswith(tuple(SUFFIXES)))
    found: dict[str, Path] = {}
    faults = Gathered()
    for part, names in PARTS.items():
        fits = [path for path in files if stem(path).lower() in names]
        if len(fits) > 1:
            shown = ", ".join(path.name for path in fits)
            faults.add(f"{folder}: more than one {part} file ({shown}); keep one")
        elif fits:
            found[part] = fits[0]
    faults.raise_any()
    if "train" not in found and (need_train or not found):
        shown = ", ".join(path.name for path in files[:10]) or "no data files"
        raise Fault(f"{folder}: no train file, such as train.csv; the folder has {shown}")
    return found
