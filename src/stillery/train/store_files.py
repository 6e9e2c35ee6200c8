"""One array of the teacher store on disk: rows in blocks, each with a checksum once it is whole.

A folder holds `values.bin`, the rows one after another, and `blocks.txt`, a line `number sha256` for each block,
written after the block itself is. What has no line, or another checksum, is filled again; so a process that is killed
loses the block it was at, and no more.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillery.atomic import atomic_file
from stillery.data.cache import META

__all__ = ["DTYPES", "ArrayFile", "BlockWriter", "Rows", "locked"]

DTYPES: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "fp32": (np.float32, torch.float32),
    "fp16": (np.float16, torch.float16),
    # numpy has no bfloat16; its bits pass for whole numbers.
    "bf16": (np.int16, torch.bfloat16),
}
_VALUES, _BLOCKS = "values.bin", "blocks.txt"
_AT_ONCE = 1 << 22
# Pages that were looked at count as the process's memory until they are let go; the system keeps them as it likes.
_LET_GO = 1 << 25


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayFile:
    """Where an array is kept and its shape; `ends` is how many rows there are up to the end of each block."""

    folder: Path
    width: int
    dtype: str
    ends: NDArray[np.int64]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * int(np.dtype(DTYPES[self.dtype][0]).itemsize)

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return int(self.ends[-1]) * self.row_bytes

    def span(self, block: int) -> tuple[int, int]:
        """The first byte of a block and the one after its last."""
        start = int(self.ends[block - 1]) if block else 0
        return start * self.row_bytes, int(self.ends[block]) * self.row_bytes

    def make(self, about: str) -> None:
        """Make the folder and a file of the right size, or give the file that is there its right size back."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / META).exists():
            with atomic_file(self.folder / META) as part:
                part.write_text(json.dumps({"about": about}), encoding="utf-8")
        with (self.folder / _VALUES).open("ab") as file:
            if file.tell() != self.bytes:
                file.truncate(self.bytes)

    def written(self) -> dict[int, str]:
        """The checksum of each block that has one."""
        try:
            lines = (self.folder / _BLOCKS).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        pairs = [line.split() for line in lines]
        # The line a killed process was writing is too short.
        return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2 and pair[0].isdigit() and len(pair[1]) == 64}

    def missing(self, verify: bool = True) -> list[int]:
        """The blocks that are not there or, read byte by byte, not what was written."""
        known = self.written()
        try:
            with (self.folder / _VALUES).open("rb") as file:
                return [
                    block
                    for block in range(len(self.ends))
                    if block not in known or (verify and _checksum(file, *self.span(block)) != known[block])
                ]
        except OSError:
            return list(range(len(self.ends)))

    def rows(self) -> Rows:
        """Open a whole array to read from."""
        with suppress(OSError):
            # What was used last is removed last.
            os.utime(self.folder)
        with (self.folder / _VALUES).open("rb") as file:
            return Rows(mmap.mmap(file.fileno(), self.bytes, access=mmap.ACCESS_READ), self.width, self.dtype)


class BlockWriter:
    """Writes one block of an array, rows after rows; `close` gives it its checksum."""

    def __init__(self, array: ArrayFile, block: int) -> None:
        self.array, self.block = array, block
        self.digest = hashlib.sha256()
        self.file = (array.folder / _VALUES).open("r+b")
        self.file.seek(array.span(block)[0])

    def write(self, rows: Tensor) -> bool:
        """Add rows [n, width]; False when they do not fit the number format."""
        cast = rows.detach().to(DTYPES[self.array.dtype][1])
        if bool((~torch.isfinite(cast) & torch.isfinite(rows)).any()):
            return False
        cast = cast.cpu().contiguous()
        found = (cast.view(torch.int16) if self.array.dtype == "bf16" else cast).numpy().tobytes()
        self.digest.update(found)
        self.file.write(found)
        return True

    def close(self, whole: bool = True) -> None:
        """End the block; what is not `whole` gets no checksum."""
        with self.file:
            if not whole:
                return
            if self.file.tell() != self.array.span(self.block)[1]:
                raise ValueError(f"block {self.block} of {self.array.folder} has another size than it should")
            self.file.flush()
            os.fsync(self.file.fileno())
        with (self.array.folder / _BLOCKS).open("a", encoding="ascii") as lines:
            # Before a line there is always a line break: a killed process may have left half a line.
            lines.write(f"\n{self.block} {self.digest.hexdigest()}\n")


class Rows:
    """The rows of a whole array, memory-mapped; what was looked at is let go again."""

    def __init__(self, mapped: mmap.mmap, width: int, dtype: str) -> None:
        self._map = mapped
        self._dtype = DTYPES[dtype][1]
        self._values: NDArray[Any] = np.frombuffer(mapped, DTYPES[dtype][0]).reshape(-1, width)
        self._looked_at = 0

    def at(self, places: NDArray[np.int64]) -> Tensor:
        """The rows at these places, [n, width]."""
        return self._tensor(self._values[places])

    def runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], longest: int) -> Tensor:
        """Of each start so many rows, followed by zeros up to the longest: [n, longest, width]."""
        found = np.zeros((len(starts), longest, self._values.shape[1]), dtype=self._values.dtype)
        for row, start, length in zip(found, starts, lengths, strict=True):
            row[:length] = self._values[start : start + length]
        return self._tensor(found)

    def _tensor(self, found: NDArray[Any]) -> Tensor:
        # A page is 4 KiB however little of it was read.
        self._looked_at += max(found.nbytes, 4096 * len(found))
        if self._looked_at > _LET_GO and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._looked_at = 0
        tensor = torch.from_numpy(found)
        return tensor.view(torch.bfloat16) if self._dtype is torch.bfloat16 else tensor


def _checksum(file: Any, start: int, end: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while start < end:
        found = file.read(min(_AT_ONCE, end - start))
        if not found:
            break
        digest.update(found)
        start += len(found)
    return digest.hexdigest()


@contextmanager
def locked(folders: Sequence[Path], *, wait: bool = True) -> Iterator[bool]:
    """Hold folders for this process alone; the system lets go of them if it dies. False when others hold one.

    Always taken in the same order, so that two who want the same ones do not wait for each other.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows: two who fill the same write the same
        yield True
        return
    with ExitStack() as held:
        for folder in sorted(folders):
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError:
                # A file system without locks: as above.
                continue
        yield True
