"""Angles between teacher layers seen from a student layer: layer selection, section 4 (arXiv 2502.04499).

If the directions from a student's hidden state to two teacher layers are similar, matching either layer moves the
student in the same direction, so the choice between them matters little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.analyse.states import hidden_states, reading
from stillery.data.tokens.batches import Batch

__all__ = ["AngleSums", "AngleTable", "Angles", "angle_cosine", "angles", "layer_angles"]

EPSILON = 1e-6
"""Added to the product of the norms, as in the released code."""

BINS = 100

SAME = 1e-4
"""A teacher state nearer to the student's than this share of its own length has no direction from there, as where the
student's layer is a copy of the teacher's."""

_AT_ONCE = 512  # tokens; more would not fit into the processor's cache

Array = NDArray[np.float64]
Project = Callable[[Tensor], Tensor]
"""Maps the student's states [layers, tokens, width] to the teacher's width."""


@dataclass(frozen=True, kw_only=True)
class Angles:
    """Cosines over all real tokens: their mean, the share of acute angles, and a histogram over [-1, 1]."""

    mean: float
    acute: float
    histogram: tuple[int, ...]


def angle_cosine(student: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of the angle at the student's state between two teacher states, all [..., width].

    cos = u.v / (|u| |v| + 1e-6) with u = T_i - S_k and v = T_j - S_k. The released code keeps only the pair (1, N) and
    the first student layer, and includes padding; here any three states may be compared.
    """
    to_first, to_second = first - student, second - student
    lengths = to_first.norm(dim=-1) * to_second.norm(dim=-1)
    cosine: Tensor = (to_first * to_second).sum(-1) / (lengths + EPSILON)
    return cosine


def angles(student: Tensor, first: Tensor, second: Tensor, mask: Tensor, bins: int = BINS) -> Angles:
    """Summarise the angles over all real tokens of states [batch, tokens, width], with a mask [batch, tokens]."""
    cosines = angle_cosine(student, first, second)[mask.to(torch.bool)]
    counts = torch.histc(cosines.float(), bins=bins, min=-1.0, max=1.0)
    return Angles(
        mean=float(cosines.mean()),
        acute=float((cosines > 0).double().mean()),
        histogram=tuple(int(count) for count in counts),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class AngleTable:
    """Angles at every student layer between every two teacher layers, over all real tokens.

    `mean` (of the cosine) and `acute` (share of angles below 90 degrees) are [students, teachers, teachers]. The
    `histogram` is of the first and the last teacher layer, the widest choice there is, [students, bins] over [-1, 1].
    Tokens at which the student's state is one of the two teacher states have no angle and are left out; where all are,
    as for a student that begins with copies of those layers, mean and share are NaN.
    """

    students: tuple[int, ...]
    teachers: tuple[int, ...]
    tokens: int
    mean: Array
    acute: Array
    histogram: Array

    @property
    def choices(self) -> tuple[Array, Array]:
        """Mean cosine and acute share of each student layer over all choices between two teacher layers."""
        upper = np.triu_indices(len(self.teachers), 1)
        return _mean(self.mean[:, *upper]), _mean(self.acute[:, *upper])


class AngleSums:
    """Running sums of the angles between every two of the teacher's layers; their size is that of the layers only."""

    def __init__(self, students: Sequence[int], teachers: Sequence[int], bins: int = BINS) -> None:
        """Sum over these student and teacher layers, with that many bins in [-1, 1]."""
        self.students, self.teachers, self.bins = tuple(students), tuple(teachers), bins
        shape = (len(self.students), len(self.teachers), len(self.teachers))
        self.tokens = 0
        self.cosines = torch.zeros(shape, dtype=torch.float64)
        self.acute = torch.zeros(shape, dtype=torch.int64)
        self.counts = torch.zeros(shape, dtype=torch.int64)
        self.histogram = torch.zeros(shape[0], bins, dtype=torch.int64)

    def add(self, student: Tensor, teacher: Tensor) -> None:
        """Add tokens: states of the student [students, tokens, width] and the teacher [teachers, tokens, width]."""
        for start in range(0, student.shape[1], _AT_ONCE):
            ours, theirs = student[:, start : start + _AT_ONCE], teacher[:, start : start + _AT_ONCE]
            self.tokens += ours.shape[1]
            least = SAME * theirs.norm(dim=-1).transpose(0, 1)
            for place, states in enumerate(ours):
                self._add(place, (theirs - states).transpose(0, 1), least)

    def _add(self, place: int, directions: Tensor, least: Tensor) -> None:
        """Add the angles between the directions [tokens, teachers, width] that are longer than the `least`."""
        products = directions @ directions.transpose(1, 2)
        lengths = directions.norm(dim=-1)
        known = lengths > least
        both = known.unsqueeze(2) & known.unsqueeze(1)
        cosines = products / (lengths.unsqueeze(2) * lengths.unsqueeze(1) + EPSILON)
        self.counts[place] += both.sum(0).cpu()
        self.cosines[place] += cosines.double().where(both, 0.0).sum(0).cpu()
        self.acute[place] += ((cosines > 0) & both).sum(0).cpu()
        widest = cosines[:, 0, -1][both[:, 0, -1]].float().clamp(-1.0, 1.0)
        self.histogram[place] += torch.histc(widest, bins=self.bins, min=-1.0, max=1.0).long().cpu()

    def table(self) -> AngleTable:
        """Return the means."""
        counts = self.counts.double()
        return AngleTable(
            students=self.students,
            teachers=self.teachers,
            tokens=self.tokens,
            mean=(self.cosines / counts).numpy(),
            acute=(self.acute / counts).numpy(),
            histogram=self.histogram.double().numpy(),
        )


def _mean(rows: Array) -> Array:
    """Return the mean of each row over what is known in it; NaN where nothing is."""
    known = np.isfinite(rows)
    sums, counts = np.where(known, rows, 0.0).sum(1), known.sum(1)
    means: Array = np.divide(sums, counts, out=np.full(len(rows), np.nan), where=counts > 0)
    return means


def layer_angles(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    stack: str,
    total: int = 0,
    students: Sequence[int] | None = None,
    project: Project | None = None,
    shuffles: Sequence[int | None] = (None,),
    description: str = "angles",
) -> list[AngleTable]:
    """Return the angles at the student's layers (by default all but the embedding) between the teacher's layers.

    For each of the `shuffles` there is a table: None compares states of the same token; a seed is the null, in which
    both of the teacher's states are those of other tokens of the batch, drawn anew for each layer.
    """
    sums: list[AngleSums] = []
    drawn = [None if seed is None else torch.Generator().manual_seed(seed) for seed in shuffles]
    with reading(description, batches, total, student, teacher) as shown:
        for batch in shown:
            ours, theirs = hidden_states(student, batch, stack), hidden_states(teacher, batch, stack, teacher=True)
            chosen = list(range(1, len(ours.hidden)) if students is None else students)
            mine, other = ours.hidden[chosen][:, ours.mask], theirs.hidden[1:][:, theirs.mask]
            mine = mine if project is None else project(mine)
            if not sums:
                sums = [AngleSums(chosen, range(1, len(other) + 1)) for _ in shuffles]
            for summed, random in zip(sums, drawn, strict=True):
                summed.add(mine, other if random is None else _shuffled(other, random))
    return [one.table() for one in sums]


def _shuffled(states: Tensor, random: torch.Generator) -> Tensor:
    """Return the states [layers, tokens, width] with the tokens of every layer in another random order."""
    return torch.stack([layer[torch.randperm(len(layer), generator=random).to(layer.device)] for layer in states])
