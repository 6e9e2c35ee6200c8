"""The teacher store: what a frozen teacher shows on the training part, kept on disk so that it runs once.

Every array (logits, states of all layers in one row, a layer's tokens) is an entry of the cache by itself, named by all
it depends on: the teacher's weights, the examples' ids and tokens, the number format and device it ran in. An example's
row is found by its place in the training part. Runs of other methods and seeds share the arrays they have in common.
Mixed examples, and texts a student writes, are shown to the teacher itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import transformers
from accelerate import Accelerator
from transformers import PreTrainedModel

from stillery.data.cache.folder import GIGABYTE, Cache
from stillery.data.cache.locks import Turn
from stillery.data.schema.examples import hash_columns
from stillery.data.tokens.batches import padded_to
from stillery.models.family import sizes
from stillery.models.fingerprint import combined, weight_digests
from stillery.models.outputs import Trace
from stillery.progress import Bar, bar, say, track
from stillery.train.cuda.memory import free_cached
from stillery.train.cuda.transfer import Fetched
from stillery.train.data import TrainingData
from stillery.train.distributed import first_of_any, from_main
from stillery.train.prefetch import behind
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.cached_teacher import StoredTeacher
from stillery.train.teacher_cache.contents import Plan, What, frame_of, taken, wanted_for
from stillery.train.teacher_cache.files import ArrayFile, BlockWriter, Rows
from stillery.train.teacher_cache.forward import OF_THE_END, Looking, dtype_of
from stillery.train.teacher_cache.order import FillOrder
from stillery.train.teacher_cache.turns import Turns, Waiting

__all__ = ["KIND", "TeacherStore"]

KIND = "teacher"
FORMAT = 3
BLOCK, CPU_BLOCK = 4096, 512
"""Examples of a block: what a filling that is killed loses."""
# Tokens of a batch: more than a step trains on, where a device wants that many to be busy.
TOKENS, CPU_TOKENS = 12288, 1024
# Batches that a GPU is ahead of what is written.
_AHEAD = 2
# Bytes of all arrays together that reading may hold in memory, where a student is trained in that memory too.
_LET_GO = 1 << 26


@dataclass(frozen=True, kw_only=True, eq=False)
class _Look:
    """What a teacher shows on a batch of a block: rows of these arrays, of so many examples."""

    block: int
    arrays: Sequence[What]
    rows: Fetched
    count: int
    last: bool


class TeacherStore:
    """The arrays of one teacher on one training part, those named in `arrays`; `run` is who fills, for who waits."""

    def __init__(
        self,
        cache: Cache,
        teacher: LiveTeacher,
        data: TrainingData,
        arrays: frozenset[What],
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
        self.looking = Looking(teacher=teacher, data=data, accelerator=accelerator, wanted=self.wanted, dtype=dtype)
        self._weights, first = self._first_look(arrays)
        stack = first.stack()
        self.frame, self.more_than_keys = frame_of(stack), bool(stack.bias or stack.rotated_query)
        self.rows: dict[What, Rows] = {}
        self.files = {
            what: ArrayFile(
                folder=cache.place(KIND, self._key(what)),
                width=taken(what, first).shape[-1],
                dtype=dtype_of(what, self.dtype),
                ends=self.order.token_ends if what.of_tokens else self.order.example_ends,
            )
            for what in sorted(arrays)
        }

    def _first_look(self, arrays: frozenset[What]) -> tuple[dict[bool, str], Trace]:
        """The fingerprints of the teacher's weights, and what it shows on a few examples."""
        if self.accelerator.device.type != "cuda":
            return self._fingerprints(), self.looking.shown(self.order.examples[-1:], arrays)
        # In a new process a GPU's first look takes longer than the fingerprints do.
        with ThreadPoolExecutor(1) as beside:
            weights = beside.submit(self._fingerprints)
            try:
                # On what will be filled first: other kernels would have to be loaded for a single example.
                first = self.looking.shown(self.order.batches(0)[0], arrays)
            except torch.cuda.OutOfMemoryError:
                # Whether there is to be a store at all is not decided yet.
                free_cached()
                first = self.looking.shown(self.order.examples[-1:], arrays)
            return weights.result(), first

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(file.bytes for file in self.files.values())

    def missing_bytes(self) -> int:
        """Bytes that are not there yet."""
        return sum(
            end - start for file in self.files.values() for start, end in map(file.span, file.missing(verify=False))
        )

    def missing_share(self) -> float:
        """The share of the examples the teacher has to see to fill them."""
        blocks = {block for file in self.files.values() for block in file.missing(verify=False)}
        return len(blocks) / len(self.order.example_ends)

    def fill(self, limit: int) -> str | None:
        """Make every array whole and open it; why not, in every process, where any could not.

        Of several processes, and of several runs, one fills an array; the others wait for it as long as it works. What
        the cache holds beyond `limit` bytes is removed first.
        """
        with ExitStack() as used, Turns({what: file.folder for what, file in self.files.items()}, self.run) as turns:
            error = None
            if self.accelerator.is_main_process:
                error = self._unless_it_fails(partial(self._begin, used, turns, limit))
            # Everyone passes here, whatever happened; the others then find the turns of the main process taken.
            error = from_main(self.accelerator, error)
            if error is None:
                error = self._unless_it_fails(partial(self._fill_and_open, used, turns))
        error = first_of_any(self.accelerator, error)
        if error is not None:
            self.rows.clear()
        return error

    def teacher_of(self, plan: Plan) -> StoredTeacher:
        """The teacher of a stage, once every array is filled."""
        rows = {what: self.rows[what] for what in sorted(plan.arrays)}
        return StoredTeacher(live=self.teacher, plan=plan, rows=rows, order=self.order, frame=self.frame)

    def _unless_it_fails(self, work: Callable[[], str | None]) -> str | None:
        """Why work could not be done, whether it says so or fails."""
        try:
            return work()
        except OSError as error:
            return self.cannot(error)
        except torch.cuda.OutOfMemoryError:
            free_cached()
            return f"the GPU has no memory for {self.order.tokens:,} tokens at a time, by which it is filled"

    def _begin(self, used: ExitStack, turns: Turns, limit: int) -> str | None:
        """Make room and the files, and take the turns that are free; why that cannot be."""
        kind = self.cache.folder / KIND
        kind.mkdir(parents=True, exist_ok=True)
        room, waiting = Turn(kind, self.run), Waiting(seconds=self.cache.wait)
        # Arrays that are there already need no room, and may be in a folder that cannot be written to.
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
        """Make what is not there of the files, and have nobody remove them until `used` is closed."""
        for what, file in self.files.items():
            about = f"{what}, {self.teacher.model.config.model_type} teacher, {len(self.data):,} examples"
            used.enter_context(file.use(about))

    def _fill_and_open(self, used: ExitStack, turns: Turns) -> str | None:
        """Open every array once it is whole: fill those at which it is this process's turn, wait for the others."""
        main = self.accelerator.is_main_process
        if not main:
            # Processes on another machine have files of their own.
            self._use(used)
        waiting, left, damaged = Waiting(seconds=self.cache.wait, aloud=main), set(self.files), set[What]()
        while True:
            if turns.taken:
                # Before anything else: others may wait for these.
                if not self._fill_missing(turns):
                    format_ = f"does not fit {self.dtype}; use --cache-dtype bf16 or fp32"
                    return f"what the teacher shows is not finite, or {format_}"
                left -= self._open(turns.taken)
                turns.let_go()
            lacking = self._unfilled(left) | (left & damaged)
            # Nobody's turn is needed at what is whole, and whoever filled it may be at other arrays still.
            damaged |= {what for what, blocks in self._missing(left - lacking).items() if blocks}
            left -= self._open(left - lacking - damaged)
            if not left:
                return None
            turns.take(left)
            if not turns.taken:
                error = waiting.a_moment(turns.of(left))
                if error is not None:
                    return error

    def _unfilled(self, arrays: Iterable[What]) -> set[What]:
        """Those that lack a block."""
        return {what for what in arrays if self.files[what].missing(verify=False)}

    def _open(self, arrays: Collection[What]) -> set[What]:
        """Open arrays that are whole; which they were."""
        bounded = self.on_cpu and self.bytes > _LET_GO
        let_go = _LET_GO // len(self.files) if bounded else None
        self.rows |= {what: self.files[what].rows(let_go) for what in arrays}
        return set(arrays)

    def _make_room(self, limit: int) -> bool:
        """Remove other arrays, those used longest ago first, until these fit beside the rest."""
        own, kept = {file.folder for file in self.files.values()}, self.bytes
        for entry in self.cache.entries():
            if entry.kind != KIND or entry.path in own:
                continue
            if kept + entry.bytes > limit:
                self.cache.remove_unused(entry)
            kept += entry.bytes if entry.path.exists() else 0
        return kept <= limit

    def _missing(self, arrays: Collection[What], looked: Callable[[], None] = lambda: None) -> dict[What, list[int]]:
        """The blocks of each array that are not there or not what was written; `looked` is called after each."""
        files = [(what, self.files[what]) for what in sorted(arrays)]
        large = sum(file.bytes for _, file in files) > GIGABYTE
        shown = track(files, "check the teacher store", len(files)) if large else files
        return {what: file.missing(looked=looked) for what, file in shown}

    def _fill_missing(self, turns: Turns) -> bool:
        """Fill what is missing or damaged where it is this process's turn; False if a value does not fit its format."""
        missing = {what: set(its) for what, its in self._missing(turns.taken, turns.moved).items()}
        for what, its in missing.items():
            damaged = its & self.files[what].written().keys()
            if damaged:
                say(f"teacher store: damaged blocks of {what}: {len(damaged)}, filled again")
        blocks = {
            block: [what for what, its in missing.items() if block in its]
            for block in sorted(set().union(*missing.values()))
        }
        if not blocks:
            return True
        open_writers: dict[What, BlockWriter] = {}
        examples = sum(len(self.order.block(block)) for block in blocks)
        with bar("fill the teacher store", examples) as shown:
            try:
                # While checksums are made a GPU is given the next batches; a CPU would be in its own way.
                write = partial(self._write, open_writers, shown, turns)
                return behind(self._looks(blocks), write, 0 if self.on_cpu else _AHEAD)
            finally:
                self.looking.forget()
                for writer in list(open_writers.values()):
                    writer.close(whole=False)

    def _looks(self, blocks: Mapping[int, Sequence[What]]) -> Iterator[_Look]:
        for block, arrays in blocks.items():
            batches = self.order.batches(block)
            for number, index in enumerate(batches, 1):
                rows = self.looking.rows(index, arrays)
                yield _Look(block=block, arrays=arrays, rows=rows, count=len(index), last=number == len(batches))

    def _write(self, writers: dict[What, BlockWriter], shown: Bar, turns: Turns, look: _Look) -> bool:
        """Write what the teacher showed; False if a value does not fit."""
        *rows, largest = look.rows.read()
        if not torch.isfinite(largest).all():
            return False
        for what, its in zip(look.arrays, rows, strict=True):
            if what not in writers:
                writers[what] = BlockWriter(self.files[what], look.block)
            writers[what].write(its)
            if look.last:
                writers.pop(what).close()
        shown.advance(look.count)
        turns.moved()
        return True

    def cannot(self, error: OSError) -> str:
        """In words that the cache folder cannot be used."""
        return f"{self.cache.folder} cannot be used ({error.strerror or type(error).__name__})"

    def _key(self, what: What) -> str:
        """The sha256 of everything an array depends on."""
        whole = what.kind in OF_THE_END
        parts = self._base | {
            "teacher": self._weights[whole],
            "what": [what.kind, what.layer],
            "dtype": dtype_of(what, self.dtype),
            # A last layer that works on one token rounds otherwise.
            "first_of_last": self.wanted.first_of_last and what.kind in ("first", *OF_THE_END),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def _fingerprints(self) -> dict[bool, str]:
        """Fingerprints of all weights (True), and of those that layers depend on: a head may be new in every run."""
        model: PreTrainedModel = self.teacher.model
        base, digests = model.base_model, weight_digests(self.teacher.home or model.state_dict())
        prefix = "" if base is model else f"{model.base_model_prefix}."
        below = {name: digests[prefix + name] for name in base.state_dict() if not name.startswith("pooler.")}
        return {True: combined(digests), False: combined(below)}

    @cached_property
    def _base(self) -> dict[str, Any]:
        tokens, digest = self.data.tokens, hashlib.sha256()
        hash_columns(digest, pa.array(self.data.examples.ids, type=pa.large_string()))
        for array in (tokens.offsets, tokens.flat, tokens.types):
            digest.update(b"-" if array is None else f"{array.dtype}{array.shape}".encode())
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        config = self.teacher.model.config.to_dict()
        for name in ("_name_or_path", "transformers_version"):
            config.pop(name, None)
        return {
            "format": [FORMAT, *self.order.rule],
            "versions": [torch.__version__, transformers.__version__],
            "examples": [digest.hexdigest(), self.data.pad_id],
            "config": config,
            "precision": [self.accelerator.mixed_precision, self.accelerator.device.type],
        }
