"""Contrastive loss with a memory bank: CoDIR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillery.parts._wide import wide
from stillery.recipe import Clock, CriterionBatch, CriterionSizes

__all__ = ["Bank", "drawn_rows"]


class Bank(nn.Module):
    """InfoNCE of student states against a memory bank of teacher states, which has a row for each training example.

    Both sides are projected to `width` and normalised. The bank starts with random rows; a step replaces the rows of
    its examples by their teacher states. The bank is state: it is updated once per optimiser step and saved with the
    run. The negatives of an example depend on the step and on its index, not on the batch composition.
    """

    rows: Tensor
    labels: Tensor
    one_class = True

    def __init__(
        self,
        around: CriterionSizes,
        *,
        width: int = 128,
        negatives: int = 100,
        temperature: float = 0.07,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.negatives, self.temperature = negatives, temperature
        self.student = nn.Linear(around.student[0], width, bias=bias)
        self.teacher = nn.Linear(sum(around.teacher[0]), width, bias=bias)
        self.register_buffer("rows", F.normalize(torch.randn(around.examples, width), dim=-1))
        # NaN stands for no label yet: it differs from every label.
        self.register_buffer("labels", torch.full((around.examples,), torch.nan))
        self.seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, pairs: Sequence[tuple[Tensor, Sequence[Tensor]]], batch: CriterionBatch) -> Tensor:
        """Cross entropy of the own teacher state against the negatives, mean over the batch."""
        (ours, theirs), labels = pairs[0], batch.labels
        student = F.normalize(wide(self.student(ours)), dim=-1)
        teacher = F.normalize(wide(self.teacher(torch.cat(list(theirs), dim=-1))), dim=-1)
        drawn = drawn_rows(batch.clock, batch.index, self.negatives, below=len(self.rows))
        own = (student * teacher).sum(-1, keepdim=True)
        others = torch.einsum("bd,bkd->bk", student, self.rows[drawn].to(student))
        same = drawn == batch.index[:, None]
        if labels is not None:
            same |= self.labels[drawn] == labels.to(self.labels.dtype)[:, None]
        # Rows of the same label, or of the example itself, are not negatives.
        others = others.masked_fill(same, -torch.inf)
        scores = torch.cat([own, others], dim=-1) / self.temperature
        if self.training:
            known = labels.float() if labels is not None else torch.full_like(own[:, 0], torch.nan)
            self.seen.append((batch.index.detach(), teacher.detach(), known.detach()))
        return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))

    @torch.no_grad()
    def update(self, new_epoch: bool) -> None:
        """Write the teacher states of this step into the bank, the same in every process."""
        for index, rows, labels in _from_all(self.seen):
            self.rows[index.to(self.rows.device)] = rows.to(self.rows)
            self.labels[index.to(self.rows.device)] = labels.to(self.labels)
        self.seen.clear()


def drawn_rows(clock: Clock, index: Tensor, count: int, *, below: int) -> Tensor:
    """Random row numbers below `below`, [examples, count]: a pure function of the clock and of the example's index.

    A random generator would draw them in the order of a batch, so micro-batches would change them. This is splitmix64
    as a counter-based generator, with a seed for each step.
    """
    (start,) = np.random.SeedSequence([clock.seed, clock.step]).generate_state(1, np.uint64)
    counted = index[:, None] * count + torch.arange(count, device=index.device)
    drawn = counted * _signed(0x9E3779B97F4A7C15) + _signed(int(start))
    drawn = (drawn ^ _shifted(drawn, 30)) * _signed(0xBF58476D1CE4E5B9)
    drawn = (drawn ^ _shifted(drawn, 27)) * _signed(0x94D049BB133111EB)
    chosen: Tensor = _shifted(drawn ^ _shifted(drawn, 31), 1) % below
    return chosen


def _signed(number: int) -> int:
    """An unsigned 64-bit number as torch's signed one with the same bits."""
    return number - 2**64 if number >= 2**63 else number


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """A logical shift to the right; torch has the arithmetic one."""
    shifted: Tensor = (numbers >> by) & (2 ** (64 - by) - 1)
    return shifted


def _from_all(seen: list[tuple[Tensor, Tensor, Tensor]]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The batches of all processes."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return seen
    mine = [tuple(part.cpu() for part in one) for one in seen]
    gathered: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(gathered, mine)
    return [one for process in gathered for one in process]
