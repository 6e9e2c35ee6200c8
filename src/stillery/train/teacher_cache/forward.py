"""What a teacher shows on some examples, as rows of the arrays of its store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from accelerate import Accelerator
from torch import Tensor

from stillery.data.tokens.batches import padded_to
from stillery.models.family import sizes
from stillery.models.outputs import Trace, Wanted
from stillery.train.cuda.capture import Repeated
from stillery.train.cuda.transfer import Fetched
from stillery.train.data import TrainingData
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.contents import What, shortened, taken, wanted_for
from stillery.train.teacher_cache.files import cast
from stillery.train.teacher_cache.order import Indices

__all__ = ["OF_THE_END", "Looking", "dtype_of"]

OF_THE_END = ("logits", "feature")
"""What is made from the last state."""


def dtype_of(what: What, dtype: str) -> str:
    """The number format of an array in a store of a number format."""
    return "fp32" if what.kind == "logits" else dtype


@dataclass(frozen=True, kw_only=True, eq=False)
class Looking:
    """Shows a teacher examples of its training part; `wanted` is what all arrays of its store together need."""

    teacher: LiveTeacher
    data: TrainingData
    accelerator: Accelerator
    wanted: Wanted
    dtype: str
    _repeated: dict[tuple[What, ...], Repeated] = field(default_factory=dict, init=False)

    def shown(self, index: Indices, arrays: Collection[What]) -> Trace:
        """What the teacher shows of these arrays."""
        inputs = self._inputs(index)
        return self._show({name: tensor.to(self._device, non_blocking=True) for name, tensor in inputs.items()}, arrays)

    def rows(self, index: Indices, arrays: Collection[What]) -> Fetched:
        """The rows of each array, and last the largest number of each."""
        arrays = tuple(arrays)
        if not self._records(arrays):
            return Fetched(self._rows(arrays, self.shown(index, arrays)))
        if arrays not in self._repeated:
            # Blocks that lack other arrays are rare, and what was recorded holds memory.
            self.forget()
            self._repeated[arrays] = Repeated(partial(self._rows_of, arrays), self._device, "filling the teacher store")
        return Fetched(self._repeated[arrays](self._inputs(index)))

    def forget(self) -> None:
        """Let go of what was recorded."""
        if self._repeated:
            torch.cuda.synchronize()
            self._repeated.clear()

    def _records(self, arrays: Collection[What]) -> bool:
        """Whether looks at a shape that comes again are recorded: not those at tokens, which are never as many."""
        return self._device.type == "cuda" and not any(what.of_tokens for what in arrays)

    @property
    def _device(self) -> torch.device:
        # That of the model has a number; the accelerator's may have none.
        return self.teacher.model.device

    def _inputs(self, index: Indices) -> dict[str, Tensor]:
        batch = self.data.batch(index, padded_to(self._device))
        # From other memory than pinned a copy to a GPU waits for all that the GPU has yet to do.
        return (batch.pinned() if self._device.type == "cuda" else batch).inputs

    def _show(self, inputs: Mapping[str, Tensor], arrays: Collection[What]) -> Trace:
        """What the teacher shows on a batch, its states shortened where a row of them is kept."""
        needs: Needs = {None: self._wanted_again(arrays)}
        short = shortened(arrays, inputs["attention_mask"])
        with torch.inference_mode(), self.accelerator.autocast():
            return self.teacher(inputs, needs, logits=What("logits") in arrays, shorten=short)

    def _wanted_again(self, arrays: Collection[What]) -> Wanted:
        """What is wanted for some of the arrays, so that they have the bits that all of them together have."""
        depth = sizes(self.teacher.model.config).layers
        wanted = wanted_for(arrays, depth)
        if self.wanted.first_of_last or not any(what.kind in OF_THE_END for what in arrays):
            return wanted
        return replace(wanted, hidden={*wanted.hidden, depth}, first_of_last=False)

    def _rows_of(self, arrays: Collection[What], inputs: Mapping[str, Tensor]) -> list[Tensor]:
        return self._rows(arrays, self._show(inputs, arrays))

    def _rows(self, arrays: Collection[What], trace: Trace) -> list[Tensor]:
        rows, largest = zip(*(cast(taken(what, trace), dtype_of(what, self.dtype)) for what in arrays), strict=True)
        return [*rows, torch.stack(largest)]
