"""A teacher whose outputs are read from the teacher cache; its model runs only for uncached outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from stillery.data.tokens.batches import Batch
from stillery.models.wanted_outputs import Stack, Trace
from stillery.train.microbatches import MicroBatch
from stillery.train.step_plan import Needs, StepPlan
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.array_files import Rows
from stillery.train.teacher_cache.contents import LOGITS, CacheContents, CachedArray, layers_in, trace_of
from stillery.train.teacher_cache.order import FillOrder, Indices

__all__ = ["CachedTeacher"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CachedTeacher:
    """Reads the teacher's outputs from the cache; the `live` teacher runs for uncached ones.

    `frame` is the teacher's stack without outputs.
    """

    live: LiveTeacher
    contents: CacheContents
    rows: Mapping[CachedArray, Rows]
    order: FillOrder
    frame: Stack

    def outputs(self, plan: StepPlan, micro_batch: MicroBatch, view: str) -> Trace:
        """Return the outputs on a view of a micro-batch, from its cached outputs or the live teacher."""
        mask = micro_batch.batch.teacher_inputs["attention_mask"]
        if view == "plain" and micro_batch.cached is not None:
            return trace_of(micro_batch.cached, self.frame, mask)
        if self.live.model.device != mask.device:
            self.live.model.to(mask.device)  # type: ignore[arg-type]
        return self.live.outputs(plan, micro_batch, view)

    def read(self, batch: Batch, needs: Needs) -> dict[CachedArray, Tensor] | None:
        """Read the logits and the rows of each needed layer; None if any are not cached.

        Token rows are [batch, padded length, width], padded as the batch is; all others are [batch, width].
        """
        if not self.contents.covers(needs):
            return None
        layers, index = layers_in(needs), batch.index
        plain = [
            array
            for array in self.contents.arrays
            if array.kind == "logits" or (array.kind == "feature" and (array.kind, array.layer) in layers)
        ]
        tokens = [
            array
            for array in self.contents.arrays
            if array.of_tokens and (array.kind in LOGITS or (array.kind, array.layer) in layers)
        ]
        pooled = sorted(
            layer for kind, layer in layers if kind == "hidden" and CachedArray("hidden", layer) not in tokens
        )
        places = self.order.rank[index]
        found = {array: self._plain(array, places) for array in plain}
        longest = batch.inputs["input_ids"].shape[1]
        return found | self._pooled(pooled, places) | self._tokens(tokens, index, longest)

    def _plain(self, array: CachedArray, places: Indices) -> Tensor:
        rows = self.rows[array]
        found = rows.empty(len(places), rows.width)
        rows.at(places, found)
        return found

    def _pooled(self, layers: list[int], places: Indices) -> dict[CachedArray, Tensor]:
        """Read the first-token or mean states of these layers."""
        pooled = self.contents.pooled
        if pooled is None or not layers:
            return {}
        rows, each = self.rows[pooled], self.frame.depth + 1
        found = rows.empty(len(layers), len(places), rows.width // each)
        rows.at(np.array(layers)[:, None] + places * each, found, parts=each)
        return {CachedArray(pooled.kind, layer): values for layer, values in zip(layers, found, strict=True)}

    def _tokens(self, arrays: list[CachedArray], index: Indices, longest: int) -> dict[CachedArray, Tensor]:
        """Read the token rows of these arrays."""
        starts, lengths, found = self.order.starts[index], self.order.lengths[index], {}
        for array in arrays:
            rows = self.rows[array]
            found[array] = rows.empty(len(index), longest, rows.width)
            rows.runs(starts, lengths, found[array])
        return found
