"""A teacher that reads what it showed from its store, and runs only where that was not kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stillery.models.trace import Stack, Trace
from stillery.terms import Mixed
from stillery.train.needs import Needs
from stillery.train.store_files import Rows
from stillery.train.store_order import FillOrder, Indices
from stillery.train.store_plan import Plan, What, layers_in
from stillery.train.teacher import LiveTeacher

__all__ = ["StoredTeacher"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTeacher:
    """Reads what the teacher showed; what is not kept is asked of the teacher itself.

    A batch is read into one piece of memory per kind, pinned for a GPU, so that it is copied there in one go while the
    GPU goes on. `frame` is the stack without what it showed.
    """

    live: LiveTeacher
    plan: Plan
    rows: Mapping[What, Rows]
    order: FillOrder
    frame: Stack

    def __call__(
        self, inputs: Mapping[str, Tensor], needs: Needs, mixed: Mixed | None = None, index: Indices | None = None
    ) -> Trace:
        """What the teacher showed on the examples at these places of the training part."""
        mask = inputs["attention_mask"]
        if mixed is not None or index is None or not self.plan.covers(needs):
            if self.live.model.device != mask.device:
                self.live.model.to(mask.device)  # type: ignore[arg-type]
            return self.live(inputs, needs, mixed)
        layers = layers_in(needs)
        tokens = [what for what in self.rows if what.of_tokens and (what.kind, what.layer) in layers]
        shown: dict[str, dict[int, Tensor]] = {"hidden": self._pooled(layers, tokens, index, mask.device)}
        for what, values in self._tokens(tokens, index, mask).items():
            shown.setdefault(what.kind, {})[what.layer] = values
        for what in self.rows:
            if what.kind == "feature" and (what.kind, what.layer) in layers:
                shown["feature"] = {what.layer: self._plain(what, index, mask.device)}
        real = mask if tokens else mask.new_ones(len(mask), 1)
        stack = replace(self.frame, mask=real, **shown)  # type: ignore[arg-type]
        logits = What("logits")
        if logits in self.rows:
            return Trace(logits=self._plain(logits, index, mask.device), encoder=stack)
        return Trace(logits=torch.empty(len(mask), 0, device=mask.device), encoder=stack)

    def _plain(self, what: What, index: Indices, device: torch.device) -> Tensor:
        rows = self.rows[what]
        found = rows.empty(len(index), rows.width, pinned=device.type == "cuda")
        rows.at(self.order.rank[index], found)
        return found.to(device, non_blocking=True)

    def _pooled(
        self, layers: set[tuple[str, int]], tokens: Sequence[What], index: Indices, device: torch.device
    ) -> dict[int, Tensor]:
        """The rows of each layer that stands for its first or mean token, [batch, 1, width]."""
        pooled, kept = self.plan.pooled, {(what.kind, what.layer) for what in tokens}
        wanted = sorted(layer for kind, layer in layers - kept if kind == "hidden")
        if pooled is None or not wanted:
            return {}
        rows, each = self.rows[pooled], self.frame.depth + 1
        found = rows.empty(len(wanted), len(index), 1, rows.width // each, pinned=device.type == "cuda")
        places = self.order.rank[index] * each
        rows.at(torch.tensor(wanted).numpy()[:, None] + places, found.squeeze(2), parts=each)
        return dict(zip(wanted, found.to(device, non_blocking=True).unbind(), strict=True))

    def _tokens(self, arrays: Sequence[What], index: Indices, mask: Tensor) -> dict[What, Tensor]:
        """The tokens of each array, padded as the mask [batch, tokens] is: [batch, tokens, width]."""
        widths: dict[int, list[What]] = {}
        for what in arrays:
            widths.setdefault(self.rows[what].width, []).append(what)
        starts, lengths = self.order.starts[index], self.order.lengths[index]
        shown: dict[What, Tensor] = {}
        for width, alike in widths.items():
            pinned = mask.device.type == "cuda"
            found = self.rows[alike[0]].empty(len(alike), *mask.shape, width, pinned=pinned)
            for what, into in zip(alike, found, strict=True):
                self.rows[what].runs(starts, lengths, into)
            shown |= zip(alike, found.to(mask.device, non_blocking=True).unbind(), strict=True)
        return shown
