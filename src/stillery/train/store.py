"""The teacher store: what a frozen teacher shows on the training part, kept on disk so that it runs once.

Every array (logits, a layer's rows) is an entry of the cache by itself, named by all it depends on: the teacher's
weights, the tokens, the number format and device it ran in. Runs of other methods and seeds share those they have in
common. Mixed examples, and texts a student writes, are shown to the teacher itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import transformers
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.batches import in_order
from stillery.data.cache import GIGABYTE, Cache
from stillery.models.load import weights_fingerprint
from stillery.models.trace import Stack, Trace
from stillery.progress import bar, say, track
from stillery.terms import Mixed
from stillery.train.data import TrainingData
from stillery.train.needs import Needs
from stillery.train.store_files import ArrayFile, BlockWriter, Rows, locked
from stillery.train.store_plan import Plan, What, layers_in, shown_again, taken, wanted_for
from stillery.train.teacher import LiveTeacher

__all__ = ["KIND", "StoredTeacher", "TeacherStore"]

KIND = "teacher"
FORMAT = 1
BATCH = 32
BLOCK = 16
"""Batches of a block; a filling that is killed goes on at the block it was at."""

Indices = NDArray[np.int64]


class _Order:
    """The order arrays are filled in, longest examples first, and where in it each example is."""

    def __init__(self, lengths: Indices) -> None:
        self.lengths = lengths
        self.batches = in_order(lengths, BATCH)
        order = np.concatenate(self.batches)
        self.rank = np.empty(len(order), dtype=np.int64)
        self.rank[order] = np.arange(len(order))
        ends = np.cumsum(lengths[order])
        self.starts = (ends - lengths[order])[self.rank]
        last = np.minimum(np.arange(BATCH * BLOCK, len(order) + BATCH * BLOCK, BATCH * BLOCK), len(order))
        self.example_ends, self.token_ends = last, ends[last - 1]

    def block(self, number: int) -> list[Indices]:
        """The batches of a block."""
        return self.batches[number * BLOCK : (number + 1) * BLOCK]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTeacher:
    """Reads what the teacher showed; what is not kept is asked of the teacher itself."""

    live: LiveTeacher
    plan: Plan
    rows: Mapping[What, Rows]
    order: _Order
    like: Stack

    def read(self, index: Indices, longest: int, needs: Needs) -> dict[What, Tensor] | None:
        """The rows of the examples at these places of the training part, token rows padded to the longest."""
        if not self.plan.covers(needs):
            return None
        layers = layers_in(needs)
        return {
            what: self._read(what, index, longest)
            for what in self.plan.arrays
            if what.kind == "logits" or (what.need, what.layer) in layers
        }

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        kept: Mapping[What, Tensor] | None = None,
        logits: bool = True,
    ) -> Trace:
        """What the teacher showed on a batch; what was not kept it is shown now."""
        mask = inputs["attention_mask"]
        if mixed is not None or kept is None:
            self.live.model.to(mask.device)  # type: ignore[arg-type]
            return self.live(inputs, needs, mixed, logits=logits)
        return shown_again(kept, self.like, mask)

    def _read(self, what: What, index: Indices, longest: int) -> Tensor:
        if what.of_tokens:
            return self.rows[what].runs(self.order.starts[index], self.order.lengths[index], longest)
        return self.rows[what].at(self.order.rank[index])


class TeacherStore:
    """The arrays of one teacher on one training part, those named in `arrays`."""

    def __init__(
        self,
        cache: Cache,
        teacher: LiveTeacher,
        data: TrainingData,
        arrays: frozenset[What],
        *,
        dtype: str,
        accelerator: Accelerator,
    ) -> None:
        self.cache, self.teacher, self.data, self.accelerator = cache, teacher, data, accelerator
        self.order = _Order(data.lengths)
        self.needs: Needs = {None: wanted_for(arrays)}
        first = self._shown(self.order.batches[-1][-1:], self.needs)
        self.like = first.stack()
        self.files = {
            what: ArrayFile(
                folder=cache.place(KIND, self._key(what, "fp32" if what.kind == "logits" else dtype)),
                width=taken(what, first).shape[-1],
                dtype="fp32" if what.kind == "logits" else dtype,
                ends=self.order.token_ends if what.of_tokens else self.order.example_ends,
            )
            for what in sorted(arrays)
        }

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

    def fill(self) -> bool:
        """Make every array whole, in one pass; False if its values do not fit the number format.

        Of several processes, and of several runs, one fills; the others wait for it and then find nothing to do.
        """
        for what, file in self.files.items():
            file.make(f"{what}, {self.teacher.model.config.model_type} teacher, {len(self.data):,} examples")
        folders, main = [file.folder for file in self.files.values()], self.accelerator.is_main_process
        if main:
            with locked(folders, wait=False) as held:
                self.accelerator.wait_for_everyone()
                if held:
                    return self._fill_missing()
            say("teacher store: another run is filling it; waiting")
        else:
            self.accelerator.wait_for_everyone()
        with locked(folders):
            return self._fill_missing()

    def teacher_of(self, plan: Plan) -> StoredTeacher:
        """The teacher of a stage, once every array is whole."""
        rows = {what: self.files[what].rows() for what in plan.arrays}
        return StoredTeacher(live=self.teacher, plan=plan, rows=rows, order=self.order, like=self.like)

    def make_room(self, limit: int) -> None:
        """Remove other arrays, those used longest ago first, until these fit beside the rest."""
        own, kept = {file.folder for file in self.files.values()}, self.bytes
        for entry in self.cache.entries():
            if entry.kind != KIND or entry.path in own:
                continue
            kept += entry.bytes
            if kept > limit:
                # One that is being filled is left alone.
                with locked([entry.path], wait=False) as held:
                    if held:
                        shutil.rmtree(entry.path, ignore_errors=True)

    def _fill_missing(self) -> bool:
        large = self.bytes > GIGABYTE
        files = track(self.files.items(), "check the teacher store", len(self.files)) if large else self.files.items()
        missing = {what: set(file.missing()) for what, file in files}
        for what, its in missing.items():
            damaged = its & self.files[what].written().keys()
            if damaged:
                say(f"teacher store: {len(damaged)} blocks of {what} are damaged; they are filled again")
        blocks = sorted(set().union(*missing.values()))
        if not blocks:
            return True
        with bar("fill the teacher store", sum(len(self.order.block(block)) for block in blocks)) as shown:
            for block in blocks:
                arrays = [what for what, its in missing.items() if block in its]
                needs: Needs = {None: wanted_for(arrays)}
                writers = {what: BlockWriter(self.files[what], block) for what in arrays}
                whole = False
                try:
                    for index in self.order.block(block):
                        trace = self._shown(index, needs)
                        if not all(writers[what].write(taken(what, trace)) for what in arrays):
                            return False
                        shown.advance()
                    whole = True
                finally:
                    for writer in writers.values():
                        writer.close(whole)
        return True

    def _shown(self, index: Indices, needs: Needs) -> Trace:
        batch = self.data.batch(index).to(self.accelerator.device)
        with self.accelerator.autocast():
            return self.teacher(batch.inputs, needs)

    def _key(self, what: What, dtype: str) -> str:
        """The sha256 of everything an array depends on."""
        whole = what.kind in ("logits", "feature")
        parts = self._base | {
            "teacher": self._weights[whole],
            "what": [what.kind, what.layer],
            "dtype": dtype,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def _weights(self) -> dict[bool, str]:
        """Fingerprints of all weights (True), and of those that layers depend on: a head may be new in every run."""
        model: PreTrainedModel = self.teacher.model
        names = [name for name in model.base_model.state_dict() if name.startswith("pooler.")]
        return {True: weights_fingerprint(model), False: weights_fingerprint(model.base_model, names)}  # type: ignore[arg-type]

    @cached_property
    def _base(self) -> dict[str, Any]:
        tokens, digest = self.data.tokens, hashlib.sha256()
        for array in (tokens.offsets, tokens.flat, tokens.types):
            digest.update(b"-" if array is None else f"{array.dtype}{array.shape}".encode())
            digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        config = self.teacher.model.config.to_dict()
        for name in ("_name_or_path", "transformers_version"):
            config.pop(name, None)
        return {
            "format": [FORMAT, BATCH, BLOCK],
            "versions": [torch.__version__, transformers.__version__],
            "tokens": [digest.hexdigest(), self.data.pad_id],
            "config": config,
            "precision": [self.accelerator.mixed_precision, self.accelerator.device.type],
        }
