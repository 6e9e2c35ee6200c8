"""One array of the teacher cache on disk: rows in blocks, each with a checksum once it is whole.

A folder, named by the key of all that the array depends on, holds `values.bin`, the rows one after another, and
`blocks.txt`, a line `number sha256` for each block, written after the block itself. The checksum is of the key, the
number and the bytes, so a block of another array does not match either. A block without a line, or with another
checksum, is filled again; so a process that is killed loses the block it was writing, and no more.
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

__all__ = ["DTYPES", "VALUES", "ArrayFile", "BlockWriter", "Rows", "bits", "cast"]

DTYPES: dict[str, tuple[type[np.generic], torch.dtype]] = {
    "fp32": (np.float32, torch.float32),
    "fp16": (np.float16, torch.float16),
    # numpy has no bfloat16; its bits pass for whole numbers.
    "bf16": (np.int16, torch.bfloat16),
}
VALUES, _BLOCKS = "values.bin", "blocks.txt"
_AT_ONCE = 1 << 22
# Reading a row maps in what the system caches together with it, up to about so many bytes.
_AROUND = 1 << 20
# Removing a folder takes no longer than a rename.
_TRIES, _TRY_AGAIN_SECONDS = 50, 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayFile:
    """The folder and shape of an array; `ends` are the numbers of rows up to the end of each block."""

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
        """Make the folder and a file of the right size, or restore the size of the file that is there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / META).exists():
            with atomic_file(self.folder / META) as part:
                part.write_text(json.dumps({"about": about}), encoding="utf-8")
        values = self.folder / VALUES
        # A complete file may be in a folder that cannot be written to.
        if not values.exists() or values.stat().st_size != self.bytes:
            with values.open("ab") as file:
                file.truncate(self.bytes)

    def use(self, about: str) -> BinaryIO:
        """Make what is not there, and protect it from removal until the returned file is closed."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError), ExitStack() as otherwise:
                self.make(about)
                file = otherwise.enter_context((self.folder / VALUES).open("rb"))
                # Another process may have removed it between the two lines before.
                if share(file.fileno()) and os.path.samestat(os.fstat(file.fileno()), (self.folder / VALUES).stat()):
                    otherwise.pop_all()
                    return file
            time.sleep(_TRY_AGAIN_SECONDS)
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self.folder))

    def written(self) -> dict[int, str]:
        """The checksums of the blocks that have one."""
        try:
            lines = (self.folder / _BLOCKS).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        pairs = [line.split() for line in lines]
        # The line a killed process was writing is too short.
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
        """Open a whole array for reading; about `resident` bytes of it may count as the process's memory."""
        with suppress(OSError):
            # The least recently used array is removed first.
            os.utime(self.folder)
        return Rows(self, resident)

    def digest(self, block: int) -> Any:
        """The checksum of a block before its bytes are added."""
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
    """Writes one block of an array, rows after rows; `close` writes its checksum."""

    def __init__(self, array: ArrayFile, block: int) -> None:
        self.array, self.block = array, block
        self.digest = array.digest(block)
        self.file = (array.folder / VALUES).open("r+b")
        self.file.seek(array.span(block)[0])

    def write(self, rows: Tensor) -> None:
        """Add rows [n, width], which are on the host and in the array's number format."""
        found = bits(rows).data
        self.digest.update(found)
        self.file.write(found)

    def close(self, whole: bool = True) -> None:
        """End the block; one that is not `whole` gets no checksum."""
        with self.file:
            if not whole:
                return
            if self.file.tell() != self.array.span(self.block)[1]:
                raise ValueError(f"block {self.block} of {self.array.folder} has another size than it should")
        # Not synchronised to the disk: what a power cut loses does not match its checksum.
        with (self.array.folder / _BLOCKS).open("a", encoding="ascii") as lines:
            # A killed process may have left half a line, so a line break comes first.
            lines.write(f"\n{self.block} {self.digest.hexdigest()}\n")


class Rows:
    """The rows of a whole array, memory-mapped; pages that were read are released again."""

    def __init__(self, array: ArrayFile, resident: int | None) -> None:
        self.width, self.dtype = array.width, DTYPES[array.dtype][1]
        with (array.folder / VALUES).open("rb") as file:
            # As long as it is mapped no process removes it to make room.
            share(file.fileno())
            self._map = mmap.mmap(file.fileno(), array.bytes, access=mmap.ACCESS_READ)
        self._values: NDArray[Any] = np.frombuffer(self._map, DTYPES[array.dtype][0]).reshape(-1, array.width)
        # Pages that were read count as the process's memory until they are released; the system caches them anyway.
        bounded = resident is not None and array.bytes > resident and hasattr(mmap, "MADV_DONTNEED")
        self._most = max(1, (resident or 0) // _AROUND) if bounded else sys.maxsize
        self._unreleased = 0

    def empty(self, *shape: int) -> Tensor:
        """Memory for rows of it, not initialised."""
        return torch.empty(shape, dtype=self.dtype)

    def at(self, places: NDArray[np.int64], found: Tensor, parts: int = 1) -> None:
        """Read the rows at these places into `found`, [..., width]; places count the equal `parts` of rows."""
        values, into = self._values.reshape(-1, self.width // parts), bits(found)
        for start in range(0, places.shape[-1], self._most):
            some = slice(start, start + self._most)
            np.take(values, places[..., some], axis=0, out=into[..., some, :], mode="clip")
            self._release_after(min(self._most, places.shape[-1] - start))

    def runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], found: Tensor) -> None:
        """Read so many rows from each start into `found`, padded with zeros, [runs, most rows, width]."""
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
    """Rows in a number format, and the largest number among them, not finite where one does not fit.

    Rows that are in that format already are not checked; their largest number is given as 0.
    """
    there = rows.detach().to(DTYPES[dtype][1]).contiguous()
    if there.dtype == rows.dtype or not rows.numel():
        return there, torch.zeros((), device=rows.device)
    # One operation: it takes a GPU no time, but in a new process each kernel has to be loaded first.
    return there, torch.linalg.vector_norm(there, torch.inf, dtype=torch.float32)


def bits(values: Tensor) -> NDArray[Any]:
    """A tensor's memory as a numpy array."""
    return (values.view(torch.int16) if values.dtype is torch.bfloat16 else values).numpy()
