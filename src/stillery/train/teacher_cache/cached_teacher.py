"""A teacher that reads what it showed from its store, and runs only where that was not kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from stillery.losses import Mixed
from stillery.models.outputs import Stack, Trace
from stillery.train.step_plan import Needs
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.contents import Plan, What, layers_in, shown_again
from stillery.train.teacher_cache.files import Rows
from stillery.train.teacher_cache.order import FillOrder, Indices

__all__ = ["StoredTeacher"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTeacher:
    """Reads what the teacher showed; what is not kept is asked of the teacher itself.

    `frame` is the stack without what it showed.
    """

    live: LiveTeacher
    plan: Plan
    rows: Mapping[What, Rows]
    order: FillOrder
    frame: Stack

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        needs: Needs,
        mixed: Mixed | None = None,
        kept: Mapping[What, Tensor] | None = None,
        logits: bool = True,
    ) -> Trace:
        """What the teacher showed on a batch, from what was kept of it; what was not, it is shown now."""
        mask = inputs["attention_mask"]
        if mixed is None and kept is not None:
            return shown_again(kept, self.frame, mask)
        if self.live.model.device != mask.device:
            self.live.model.to(mask.device)  # type: ignore[arg-type]
        return self.live(inputs, needs, mixed, logits=logits)

    def read(self, index: Indices, longest: int, needs: Needs) -> dict[What, Tensor] | None:
        """The rows of each layer that is needed, and logits, if they were kept; texts are padded to the longest.

        Tokens are [batch, longest, width], anything else is [batch, width].
        """
        if not self.plan.covers(needs):
            return None
        layers = layers_in(needs)
        plain = [
            what
            for what in self.plan.arrays
            if what.kind == "logits" or (what.kind == "feature" and (what.kind, what.layer) in layers)
        ]
        tokens = [what for what in self.plan.arrays if what.of_tokens and (what.kind, what.layer) in layers]
        pooled = sorted(layer for kind, layer in layers if kind == "hidden" and What("hidden", layer) not in tokens)
        places = self.order.rank[index]
        found = {what: self._plain(what, places) for what in plain}
        return found | self._pooled(pooled, places) | self._tokens(tokens, index, longest)

    def _plain(self, what: What, places: Indices) -> Tensor:
        rows = self.rows[what]
        found = rows.empty(len(places), rows.width)
        rows.at(places, found)
        return found

    def _pooled(self, layers: list[int], places: Indices) -> dict[What, Tensor]:
        """The first or mean token of these layers."""
        pooled = self.plan.pooled
        if pooled is None or not layers:
            return {}
        rows, each = self.rows[pooled], self.frame.depth + 1
        found = rows.empty(len(layers), len(places), rows.width // each)
        rows.at(np.array(layers)[:, None] + places * each, found, parts=each)
        return {What(pooled.kind, layer): values for layer, values in zip(layers, found, strict=True)}

    def _tokens(self, arrays: list[What], index: Indices, longest: int) -> dict[What, Tensor]:
        """The tokens of these arrays."""
        starts, lengths, found = self.order.starts[index], self.order.lengths[index], {}
        for what in arrays:
            rows = self.rows[what]
            found[what] = rows.empty(len(index), longest, rows.width)
            rows.runs(starts, lengths, found[what])
        return found
