"""On-disk format of a teacher-cache array: rows in blocks, each with a checksum once it is complete.

A folder, named by the key of everything the array depends on, holds `values.bin`, the consecutive rows, and
`blocks.txt`, with a line `number sha256` for each block, written after the block itself. The checksum covers the key,
the number and the bytes, so a block of another array does not match either. A block without a line, or with a wrong
checksum, is filled again, so that a killed process loses only the block it was writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillery.atomic import atomic_file
from stillery.data.cache.folder import META
from stillery.data.cache.locks import share
from stillery.errors import Stopped

__all__ = ["DTYPES", "VALUES", "ArrayFile", "BlockWriter", "Rows", "bits", "cast"]

DTYPES: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "fp32": (np.float32, torch.float32),
    "fp16": (np.float16, torch.float16),
    # numpy has no bfloat16; it is stored as int16 with the same bits.
    "bf16": (np.int16, torch.bfloat16),
}
VALUES, _BLOCKS = "values.bin", "blocks.txt"
_AT_ONCE = 1 << 22
# Approximate number of bytes that the system maps in together with a row that is read.
_AROUND = 1 << 20
# Removing a folder blocks others only for the duration of a rename.
_TRIES, _TRY_AGAIN_SECONDS = 50, 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayFile:
    """The folder and shape of an array; `ends` are the cumulative row counts at the end of each block."""

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
        """The byte range [start, end) of a block."""
        start = int(self.ends[block - 1]) if block else 0
        return start * self.row_bytes, int(self.ends[block]) * self.row_bytes

    def make(self, about: str) -> None:
        """Create the folder and a file of the right size, or restore the size of an existing file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / META).exists():
            with atomic_file(self.folder / META) as part:
                part.write_text(json.dumps({"about": about}), encoding="utf-8")
        values = self.folder / VALUES
        # A complete file may be in a read-only folder.
        if not values.exists() or values.stat().st_size != self.bytes:
            with values.open("ab") as file:
                file.truncate(self.bytes)

    def use(self, about: str) -> BinaryIO:
        """Create missing files, and protect them from removal until the returned file is closed."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError), ExitStack() as otherwise:
                self.make(about)
                file = otherwise.enter_context((self.folder / VALUES).open("rb"))
                # Another process may have removed it after `make`.
                if share(file.fileno()) and os.path.samestat(os.fstat(file.fileno()), (self.folder / VALUES).stat()):
                    otherwise.pop_all()
                    return file
            time.sleep(_TRY_AGAIN_SECONDS)
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self.folder))

    def written(self) -> dict[int, str]:
        """Read the recorded checksums by block."""
        try:
            lines = (self.folder / _BLOCKS).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        pairs = [line.split() for line in lines]
        # A line that a killed process was writing is too short.
        return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2 and pair[0].isdigit() and len(pair[1]) == 64}

    def missing(self, verify: bool = True, checked: Callable[[], None] = lambda: None) -> list[int]:
        """The blocks that are missing or, with `verify`, damaged; `checked` is called after each."""
        known, found = self.written(), []
        try:
            with (self.folder / VALUES).open("rb") as file:
                for block in range(len(self.ends)):
                    if block not in known or (verify and self._checksum(file, block) != known[block]):
                        found.append(block)
                    checked()
                return found
        except OSError:
            return list(range(len(self.ends)))

    def rows(self, resident: int | None = None) -> Rows:
        """Open a complete array for reading; keep at most about `resident` bytes of it in the process's memory."""
        with suppress(OSError):
            # Marks the array as used: the least recently used one is removed first.
            os.utime(self.folder)
        return Rows(self, resident)

    def digest(self, block: int) -> Any:
        """Start the checksum of a block, without its bytes."""
        return hashlib.sha256(f"{self.folder.name} {block} ".encode())

    def _checksum(self, file: Any, block: int) -> str:
        digest, (start, end) = self.digest(block), self.span(block)
        file.seek(start)
        while start < end:
            found = file.read(min(_AT_ONCE, end - start))
            if not found:
                break
            digest.update(found)
            start += len(found)
        return str(digest.hexdigest())


class BlockWriter:
    """Writes one block of an array row by row; `close` writes its checksum."""

    def __init__(self, array: ArrayFile, block: int) -> None:
        self.array, self.block = array, block
        self.digest = array.digest(block)
        self.file = (array.folder / VALUES).open("r+b")
        self.file.seek(array.span(block)[0])

    def write(self, rows: Tensor) -> None:
        """Append rows [n, width], which are on the host and in the array's number format."""
        found = bits(rows).data
        self.digest.update(found)
        self.file.write(found)

    def close(self, whole: bool = True) -> None:
        """Finish the block; if it is not `whole`, write no checksum."""
        with self.file:
            if not whole:
                return
            if self.file.tell() != self.array.span(self.block)[1]:
                raise ValueError(f"block {self.block} of {self.array.folder} has another size than it should")
        # No fsync: data lost in a power cut does not match its checksum.
        with (self.array.folder / _BLOCKS).open("a", encoding="ascii") as lines:
            # A killed process may have left half a line, so a line break comes first.
            lines.write(f"\n{self.block} {self.digest.hexdigest()}\n")


class Rows:
    """The rows of a complete array, memory-mapped; pages that were read are released again."""

    def __init__(self, array: ArrayFile, resident: int | None) -> None:
        self.width, self.dtype = array.width, DTYPES[array.dtype][1]
        self._path, self._bytes = array.folder / VALUES, array.bytes
        with self._path.open("rb") as file:
            # While it is mapped, no process removes it to free space.
            share(file.fileno())
            self._map = mmap.mmap(file.fileno(), array.bytes, access=mmap.ACCESS_READ)
        self._values: NDArray[Any] = np.frombuffer(self._map, DTYPES[array.dtype][0]).reshape(-1, array.width)
        # Pages that were read count as the process's memory until they are released; the system caches them anyway.
        bounded = resident is not None and array.bytes > resident and hasattr(mmap, "MADV_DONTNEED")
        self._most = max(1, (resident or 0) // _AROUND) if bounded else sys.maxsize
        self._unreleased = 0

    def empty(self, *shape: int) -> Tensor:
        """Return an uninitialised tensor in the array's number format."""
        return torch.empty(shape, dtype=self.dtype)

    def _check_size(self) -> None:
        """Raise Stopped if the file was cut short: reading beyond its end would kill the process (SIGBUS)."""
        if self._map.size() < self._bytes:
            raise Stopped(
                f"{self._path} was cut short while the run read it; continue with --resume, which fills it again"
            )

    def at(self, places: NDArray[np.int64], found: Tensor, parts: int = 1) -> None:
        """Read the rows at these indices into `found`, [..., width]; indices count the equal `parts` of rows."""
        self._check_size()
        values, into = self._values.reshape(-1, self.width // parts), bits(found)
        for start in range(0, places.shape[-1], self._most):
            some = slice(start, start + self._most)
            np.take(values, places[..., some], axis=0, out=into[..., some, :], mode="clip")
            self._release_after(min(self._most, places.shape[-1] - start))

    def runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], found: Tensor) -> None:
        """Read `lengths` rows from each of `starts` into `found`, [runs, most rows, width], padded with zeros."""
        self._check_size()
        for run, start, length in zip(bits(found), starts.tolist(), lengths.tolist(), strict=True):
            run[:length] = self._values[start : start + length]
            run[length:] = 0
            self._release_after(1)

    def _release_after(self, rows: int) -> None:
        self._unreleased += rows
        if self._unreleased >= self._most:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._unreleased = 0


def cast(rows: Tensor, dtype: str) -> tuple[Tensor, Tensor]:
    """Cast rows to a number format; return them and their largest magnitude, not finite if a value overflows.

    Rows that are in that format already are not checked; their magnitude is returned as 0.
    """
    there = rows.detach().to(DTYPES[dtype][1]).contiguous()
    if there.dtype == rows.dtype or not rows.numel():
        return there, torch.zeros((), device=rows.device)
    # A single operation, because in a new process each GPU kernel has to be loaded first.
    return there, torch.linalg.vector_norm(there, torch.inf, dtype=torch.float32)


def bits(values: Tensor) -> NDArray[Any]:
    """View a tensor's memory as a numpy array."""
    return (values.view(torch.int16) if values.dtype is torch.bfloat16 else values).numpy()
