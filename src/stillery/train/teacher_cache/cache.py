"""The teacher cache: the outputs of a frozen teacher on the training split, kept on disk so that it runs once.

Every array (logits, hidden states of all layers in one row, a layer's tokens) is a cache entry of its own, named by
everything it depends on: the teacher's weights, the examples' ids and tokens, number format and device. Rows are looked
up by the examples' indices in the training split. Runs with other methods and seeds share common arrays. On mixed
examples, and on texts that a student generates, the teacher runs live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from accelerate import Accelerator

from stillery.data.cache.folder import GIGABYTE, Cache
from stillery.data.cache.locks import Turn
from stillery.data.tokens.batches import padded_to
from stillery.models.family import sizes
from stillery.models.wanted_outputs import Trace
from stillery.progress import Bar, bar, say, track
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.transfer import Fetched
from stillery.train.distributed import first_of_any, from_main
from stillery.train.prefetch import consume
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.array_files import ArrayFile, BlockWriter, Rows
from stillery.train.teacher_cache.cached_teacher import CachedTeacher
from stillery.train.teacher_cache.contents import CacheContents, CachedArray, array_rows, frame_of, wanted_for
from stillery.train.teacher_cache.forward import ForwardPasses, dtype_of
from stillery.train.teacher_cache.keys import ArrayKeys, weight_fingerprints
from stillery.train.teacher_cache.order import FillOrder
from stillery.train.teacher_cache.turns import Turns, Waiting
from stillery.train.trainable import EncoderData

__all__ = ["KIND", "TeacherCache"]

KIND = "teacher"
BLOCK, CPU_BLOCK = 4096, 512
"""Examples per block, the most work that is lost when filling is killed."""
# Tokens per batch: more than in a training step, to keep a GPU busy.
TOKENS, CPU_TOKENS = 12288, 1024
# Number of batches that a GPU may be ahead of writing.
_AHEAD = 2
# Bytes of all arrays that reading keeps resident when training on a CPU.
_RESIDENT = 1 << 26


@dataclass(frozen=True, kw_only=True, eq=False)
class _BatchRows:
    """The rows of some arrays for a batch of `count` examples of a block."""

    block: int
    arrays: Sequence[CachedArray]
    rows: Fetched
    count: int
    last: bool


class TeacherCache:
    """The arrays of one teacher on one training split; `run` identifies this run to others that wait for it."""

    def __init__(
        self,
        cache: Cache,
        teacher: LiveTeacher,
        data: EncoderData,
        arrays: frozenset[CachedArray],
        *,
        dtype: str,
        accelerator: Accelerator,
        run: str = "",
    ) -> None:
        self.cache, self.teacher, self.data, self.accelerator, self.run = cache, teacher, data, accelerator, run
        self.dtype, self.depth = dtype, sizes(teacher.model.config).layers
        self.on_cpu = accelerator.device.type == "cpu"
        tokens, block = (CPU_TOKENS, CPU_BLOCK) if self.on_cpu else (TOKENS, BLOCK)
        self.order = FillOrder(data.lengths, tokens, block, padded_to(accelerator.device))
        self.wanted = wanted_for(arrays, self.depth)
        self.needs: Needs = {None: self.wanted}
        self.forward = ForwardPasses(
            teacher=teacher, data=data, accelerator=accelerator, wanted=self.wanted, dtype=dtype
        )
        weights, first = self._first_pass(arrays)
        keys = ArrayKeys(
            teacher=teacher, data=data, order=self.order, wanted=self.wanted, dtype=dtype, accelerator=accelerator,
            weights=weights,
        )  # fmt: skip
        stack = first.stack()
        self.frame, self.more_than_keys = frame_of(stack), bool(stack.bias or stack.rotated_query)
        self.rows: dict[CachedArray, Rows] = {}
        self.files = {
            array: ArrayFile(
                folder=cache.place(KIND, keys.of(array)),
                width=array_rows(array, first).shape[-1],
                dtype=dtype_of(array, self.dtype),
                ends=self.order.token_ends if array.of_tokens else self.order.example_ends,
            )
            for array in sorted(arrays)
        }

    def _first_pass(self, arrays: frozenset[CachedArray]) -> tuple[dict[bool, str], Trace]:
        """Compute the fingerprints of the teacher's weights, and its outputs on a few examples."""
        if self.accelerator.device.type != "cuda":
            return weight_fingerprints(self.teacher), self.forward.trace(self.order.examples[-1:], arrays)
        # In a new process a GPU's first forward pass takes longer than the fingerprints.
        with ThreadPoolExecutor(1) as beside:
            weights = beside.submit(weight_fingerprints, self.teacher)
            try:
                # On the batch that is filled first: a single example would load other kernels.
                first = self.forward.trace(self.order.batches(0)[0], arrays)
            except torch.cuda.OutOfMemoryError:
                # The decision to use the cache is still to come, so this must not fail.
                free_cached()
                first = self.forward.trace(self.order.examples[-1:], arrays)
            return weights.result(), first

    @property
    def bytes(self) -> int:
        """The total size of all arrays in bytes."""
        return sum(file.bytes for file in self.files.values())

    def missing_bytes(self) -> int:
        """Return the size of the missing blocks in bytes."""
        return sum(
            end - start for file in self.files.values() for start, end in map(file.span, file.missing(verify=False))
        )

    def missing_share(self) -> float:
        """Return the share of the examples on which the teacher must run to fill missing blocks."""
        blocks = {block for file in self.files.values() for block in file.missing(verify=False)}
        return len(blocks) / len(self.order.example_ends)

    def fill(self, limit: int) -> str | None:
        """Fill and open every array; return the reason, in every process, if any process could not.

        Each array is filled by one of several processes and runs; the others wait while it makes progress. Other
        entries beyond `limit` bytes of the cache are removed first.
        """
        with ExitStack() as used, Turns({array: file.folder for array, file in self.files.items()}, self.run) as turns:
            error = None
            if self.accelerator.is_main_process:
                error = self._unless_it_fails(partial(self._begin, used, turns, limit))
            # All processes synchronise here, even after an error; the others then find the main process's turns taken.
            error = from_main(self.accelerator, error)
            if error is None:
                error = self._unless_it_fails(partial(self._fill_and_open, used, turns))
        error = first_of_any(self.accelerator, error)
        if error is not None:
            self.rows.clear()
        return error

    def teacher_of(self, contents: CacheContents) -> CachedTeacher:
        """Return the teacher of a stage, once every array is filled."""
        rows = {array: self.rows[array] for array in sorted(contents.arrays)}
        return CachedTeacher(live=self.teacher, contents=contents, rows=rows, order=self.order, frame=self.frame)

    def _unless_it_fails(self, work: Callable[[], str | None]) -> str | None:
        """Run `work`; return the reason for a failure, whether returned or raised."""
        try:
            return work()
        except OSError as error:
            return self.cannot(error)
        except torch.cuda.OutOfMemoryError:
            free_cached()
            return f"the GPU has no memory for {self.order.tokens:,} tokens at a time, by which it is filled"

    def _begin(self, used: ExitStack, turns: Turns, limit: int) -> str | None:
        """Free space, create the files, and take the free turns; return the reason if that is impossible."""
        kind = self.cache.folder / KIND
        kind.mkdir(parents=True, exist_ok=True)
        self.cache.remove_abandoned()
        room, waiting = Turn(kind, self.run), Waiting(seconds=self.cache.wait)
        # Complete arrays need no space, and may be in a read-only folder.
        needed = bool(self._unfilled(self.files))
        try:
            while not (free := self._may_make_room(room, needed)) and needed:
                error = waiting.a_moment({"making room": room})
                if error is not None:
                    return error
            if free and not self._make_room(limit):
                return f"arrays that other runs read leave no room in --cache-limit {limit / GIGABYTE:g} GB"
            self._use(used)
        finally:
            room.let_go()
        turns.take(self._unfilled(self.files))
        return None

    def _may_make_room(self, room: Turn, needed: bool) -> bool:
        try:
            return room.take()
        except OSError:
            if needed:
                raise
            return False

    def _use(self, used: ExitStack) -> None:
        """Create missing files, and protect all from removal until `used` is closed."""
        for array, file in self.files.items():
            about = f"{array}, {self.teacher.model.config.model_type} teacher, {len(self.data):,} examples"
            used.enter_context(file.use(about))

    def _fill_and_open(self, used: ExitStack, turns: Turns) -> str | None:
        """Open every array once it is complete: fill those whose turn this process holds, wait for the others."""
        main = self.accelerator.is_main_process
        if not main:
            # Processes on another machine have files of their own.
            self._use(used)
        waiting, left, damaged = Waiting(seconds=self.cache.wait, aloud=main), set(self.files), set[CachedArray]()
        while True:
            if turns.taken:
                # These first, because others may wait for them.
                if not self._fill_missing(turns):
                    format_ = f"does not fit {self.dtype}; use --cache-dtype bf16 or fp32"
                    return f"the teacher's outputs are not finite, or {format_}"
                left -= self._open(turns.taken)
                turns.release()
            lacking = self._unfilled(left) | (left & damaged)
            # A complete array needs no turn, and the process that filled it may still be filling others.
            damaged |= {array for array, blocks in self._missing(left - lacking).items() if blocks}
            left -= self._open(left - lacking - damaged)
            if not left:
                return None
            turns.take(left)
            if not turns.taken:
                error = waiting.a_moment(turns.of(left))
                if error is not None:
                    return error

    def _unfilled(self, arrays: Iterable[CachedArray]) -> set[CachedArray]:
        """Return the arrays with missing blocks."""
        return {array for array in arrays if self.files[array].missing(verify=False)}

    def _open(self, arrays: Collection[CachedArray]) -> set[CachedArray]:
        """Open complete arrays and return them."""
        bounded = self.on_cpu and self.bytes > _RESIDENT
        resident = _RESIDENT // len(self.files) if bounded else None
        self.rows |= {array: self.files[array].rows(resident) for array in arrays}
        return set(arrays)

    def _make_room(self, limit: int) -> bool:
        """Remove other arrays, the least recently used first, until these fit too; return whether they do."""
        own, kept = {file.folder for file in self.files.values()}, self.bytes
        for entry in self.cache.entries():
            if entry.kind != KIND or entry.path in own:
                continue
            if kept + entry.bytes > limit:
                self.cache.remove_unused(entry)
            kept += entry.bytes if entry.path.exists() else 0
        return kept <= limit

    def _missing(
        self, arrays: Collection[CachedArray], checked: Callable[[], None] = lambda: None
    ) -> dict[CachedArray, list[int]]:
        """Find the missing and damaged blocks of each array; `checked` is called after each block."""
        files = [(array, self.files[array]) for array in sorted(arrays)]
        large = sum(file.bytes for _, file in files) > GIGABYTE
        shown = track(files, "check the teacher cache", len(files)) if large else files
        return {array: file.missing(checked=checked) for array, file in shown}

    def _fill_missing(self, turns: Turns) -> bool:
        """Fill missing and damaged blocks of the arrays whose turn this process holds; False if a value overflows."""
        missing = {array: set(its) for array, its in self._missing(turns.taken, turns.moved).items()}
        for array, its in missing.items():
            damaged = its & self.files[array].written().keys()
            if damaged:
                say(f"teacher cache: damaged blocks of {array}: {len(damaged)}, filled again")
        blocks = {
            block: [array for array, its in missing.items() if block in its]
            for block in sorted(set().union(*missing.values()))
        }
        if not blocks:
            return True
        open_writers: dict[CachedArray, BlockWriter] = {}
        examples = sum(len(self.order.block(block)) for block in blocks)
        with bar("fill the teacher cache", examples) as shown:
            try:
                # A GPU runs the next batches while checksums are computed; on a CPU both would compete.
                write = partial(self._write, open_writers, shown, turns)
                return consume(self._batches(blocks), write, 0 if self.on_cpu else _AHEAD)
            finally:
                self.forward.forget()
                for writer in list(open_writers.values()):
                    writer.close(whole=False)

    def _batches(self, blocks: Mapping[int, Sequence[CachedArray]]) -> Iterator[_BatchRows]:
        """Yield the rows of the arrays of each block, batch by batch."""
        for block, arrays in blocks.items():
            batches = self.order.batches(block)
            for number, index in enumerate(batches, 1):
                rows = self.forward.rows(index, arrays)
                last = number == len(batches)
                yield _BatchRows(block=block, arrays=arrays, rows=rows, count=len(index), last=last)

    def _write(self, writers: dict[CachedArray, BlockWriter], shown: Bar, turns: Turns, batch: _BatchRows) -> bool:
        """Write the rows of a batch; False if a value overflows its number format."""
        *rows, largest = batch.rows.read()
        if not torch.isfinite(largest).all():
            return False
        for array, its in zip(batch.arrays, rows, strict=True):
            if array not in writers:
                writers[array] = BlockWriter(self.files[array], batch.block)
            writers[array].write(its)
            if batch.last:
                writers.pop(array).close()
        shown.advance(batch.count)
        turns.moved()
        return True

    def cannot(self, error: OSError) -> str:
        """Format the message for an unusable cache folder."""
        return f"{self.cache.folder} cannot be used ({error.strerror or type(error).__name__})"
