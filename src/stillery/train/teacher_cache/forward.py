"""The teacher's forward passes that fill its cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from accelerate import Accelerator
from torch import Tensor

from stillery.data.tokens.batches import padded_to
from stillery.models.family import sizes
from stillery.models.wanted_outputs import Trace, Wanted
from stillery.train.cuda.capture import Repeated
from stillery.train.cuda.transfer import Fetched
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.array_files import cast
from stillery.train.teacher_cache.contents import LOGITS, CachedArray, array_rows, shortened, wanted_for
from stillery.train.teacher_cache.order import Indices
from stillery.train.trainable import EncoderData

__all__ = ["FROM_LAST_STATE", "ForwardPasses", "dtype_of"]

FROM_LAST_STATE = (*LOGITS, "feature")
"""The arrays that are computed from the last hidden state."""


def dtype_of(array: CachedArray, dtype: str) -> str:
    """Return the number format of an array in a cache with number format `dtype`: logits are always fp32."""
    return "fp32" if array.kind in LOGITS else dtype


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardPasses:
    """Runs a teacher on examples of its training split; `wanted` is the union of all arrays' needed outputs."""

    teacher: LiveTeacher
    data: EncoderData
    accelerator: Accelerator
    wanted: Wanted
    dtype: str
    _repeated: dict[tuple[CachedArray, ...], Repeated] = field(default_factory=dict, init=False)

    def trace(self, index: Indices, arrays: Collection[CachedArray]) -> Trace:
        """Return the teacher's outputs on these examples that these arrays need."""
        inputs = self._inputs(index)
        return self._run({name: tensor.to(self._device, non_blocking=True) for name, tensor in inputs.items()}, arrays)

    def rows(self, index: Indices, arrays: Collection[CachedArray]) -> Fetched:
        """Return the rows of each array on these examples, and last the largest magnitude in each."""
        arrays = tuple(arrays)
        if not self._records(arrays):
            return Fetched(self._rows(arrays, self.trace(index, arrays)))
        if arrays not in self._repeated:
            # Blocks with other missing arrays are rare, and graphs hold memory.
            self.forget()
            self._repeated[arrays] = Repeated(partial(self._rows_of, arrays), self._device, "filling the teacher cache")
        return Fetched(self._repeated[arrays](self._inputs(index)))

    def forget(self) -> None:
        """Drop all recorded graphs."""
        if self._repeated:
            torch.cuda.synchronize()
            self._repeated.clear()

    def _records(self, arrays: Collection[CachedArray]) -> bool:
        """Return whether forward passes are recorded: not those for token rows, whose number never repeats."""
        return self._device.type == "cuda" and not any(array.of_tokens for array in arrays)

    @property
    def _device(self) -> torch.device:
        # The model's device has an index; the accelerator's may have none.
        return self.teacher.model.device

    def _inputs(self, index: Indices) -> dict[str, Tensor]:
        batch = self.data.batch(index, padded_to(self._device))
        # A copy from unpinned memory would synchronise with the GPU.
        return (batch.pinned() if self._device.type == "cuda" else batch).inputs

    def _run(self, inputs: Mapping[str, Tensor], arrays: Collection[CachedArray]) -> Trace:
        """Run the teacher on a batch; states are shortened if one row per example is cached."""
        needs: Needs = {None: self._wanted_of(arrays)}
        short = shortened(arrays, inputs["attention_mask"])
        with torch.inference_mode(), self.accelerator.autocast():
            return self.teacher(inputs, needs, logits=any(array.kind in LOGITS for array in arrays), shorten=short)

    def _wanted_of(self, arrays: Collection[CachedArray]) -> Wanted:
        """The outputs needed by some of the arrays, such that their bits are those of filling all arrays together."""
        depth = sizes(self.teacher.model.config).layers
        wanted = wanted_for(arrays, depth)
        if self.wanted.first_of_last or not any(array.kind in FROM_LAST_STATE for array in arrays):
            return wanted
        return replace(wanted, hidden={*wanted.hidden, depth}, first_of_last=False)

    def _rows_of(self, arrays: Collection[CachedArray], inputs: Mapping[str, Tensor]) -> list[Tensor]:
        return self._rows(arrays, self._run(inputs, arrays))

    def _rows(self, arrays: Collection[CachedArray], trace: Trace) -> list[Tensor]:
        rows, largest = zip(
            *(cast(array_rows(array, trace), dtype_of(array, self.dtype)) for array in arrays), strict=True
        )
        return [*rows, torch.stack(largest)]
