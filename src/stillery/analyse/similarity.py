"""How alike the layers of teacher and student are: cosine of their states (RAIL-KD, Figure 2) and linear CKA."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from stillery.analyse.angles import Project
from stillery.analyse.states import hidden_states, pooled, reading
from stillery.data.tokens.batches import Batch

__all__ = ["SimilaritySums", "SimilarityTable", "layer_similarities"]

Array = NDArray[np.float64]

_FEWEST = 4
"""The unbiased estimate of CKA needs four texts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SimilarityTable:
    """Similarity of every student layer to every teacher layer, [students, teachers], embedding outputs first.

    `cosine` is the mean over texts of the cosine of their pooled states; None where the widths differ and no
    projection brings them to one space. `cka` is linear CKA, which needs no common space.
    """

    cka: Array
    cosine: Array | None
    texts: int


class _Moments:
    """Sums over texts of products of two sides' states, from which the unbiased HSIC of all pairs of layers follows.

    HSIC is unchanged when a constant is added to the states, so states may be centred about any point: about the mean
    of the first batch, which keeps the sums small.
    """

    def __init__(self) -> None:
        self.products: Tensor | None = None

    def add(self, ours: Tensor, theirs: Tensor) -> None:
        """Add texts, [layers, texts, width] on each side."""
        norms = [(side**2).sum(-1) for side in (ours, theirs)]
        # Of each pair of layers: sum of x y', of x |y|^2, of |x|^2 y and of |x|^2 |y|^2.
        found = (
            torch.einsum("inp,jnq->ijpq", ours, theirs),
            torch.einsum("inp,jn->ijp", ours, norms[1]),
            torch.einsum("in,jnq->ijq", norms[0], theirs),
            norms[0] @ norms[1].T,
            ours.sum(1),
            theirs.sum(1),
            norms[0].sum(1),
            norms[1].sum(1),
        )
        if self.products is None:
            self.products, *self.rest = found
        else:
            self.products += found[0]
            for kept, new in zip(self.rest, found[1:], strict=True):
                kept += new

    def hsic(self, texts: int) -> Tensor:
        """Return the unbiased estimate of HSIC (Song et al., 2012) of each pair of layers, up to a common factor."""
        assert self.products is not None
        left, right, both, ours, theirs, our_norms, their_norms = self.rest
        # With K = X X' and L = Y Y' without their diagonals: trace of K L, sum of the entries of K L, of K, and of L.
        trace = (self.products**2).sum((-1, -2)) - both
        crossed = torch.einsum("ip,ijpq,jq->ij", ours, self.products, theirs)
        crossed -= torch.einsum("ip,ijp->ij", ours, left) + torch.einsum("ijq,jq->ij", right, theirs) - both
        sums = ((ours**2).sum(-1) - our_norms)[:, None] * ((theirs**2).sum(-1) - their_norms)
        return trace + sums / ((texts - 1) * (texts - 2)) - 2 / (texts - 2) * crossed


class SimilaritySums:
    """Running sums of the similarity of layers: their size does not depend on the number of texts."""

    def __init__(self) -> None:
        self.texts = 0
        self.cosines: Tensor | None = None
        self._cross = _Moments()
        self._centre: tuple[Tensor, Tensor] | None = None
        self._own: tuple[list[_Moments], list[_Moments]] = ([], [])

    def add(self, ours: Tensor, theirs: Tensor, projected: Tensor | None = None) -> None:
        """Add the states of texts, [layers, texts, width]; `projected` are the student's at the teacher's width."""
        if self._centre is None:
            self._centre = (ours.mean(1, keepdim=True), theirs.mean(1, keepdim=True))
            self._own = tuple([_Moments() for _ in side] for side in (ours, theirs))  # type: ignore[assignment]
        self.texts += ours.shape[1]
        mine = ours if projected is None else projected
        if mine.shape[-1] == theirs.shape[-1]:
            unit = [side / side.norm(dim=-1, keepdim=True).clamp_min(1e-12) for side in (mine, theirs)]
            cosines = torch.einsum("inp,jnp->ij", *unit)
            self.cosines = cosines if self.cosines is None else self.cosines + cosines
        centred = [side - centre for side, centre in zip((ours, theirs), self._centre, strict=True)]
        self._cross.add(*centred)
        for side, moments in zip(centred, self._own, strict=True):
            for layer, moment in zip(side, moments, strict=True):
                moment.add(layer.unsqueeze(0), layer.unsqueeze(0))

    def table(self) -> SimilarityTable:
        """Return the similarities; CKA is NaN with fewer than four texts."""
        cosine = None if self.cosines is None else (self.cosines / max(self.texts, 1)).cpu().numpy()
        cross = self._cross.hsic(max(self.texts, _FEWEST))
        ours, theirs = (torch.stack([one.hsic(max(self.texts, _FEWEST))[0, 0] for one in side]) for side in self._own)
        whole = ours[:, None] * theirs
        cka = torch.where(whole > 0, cross / whole.clamp_min(1e-300).sqrt(), 0.0)
        if self.texts < _FEWEST:
            cka = torch.full_like(cka, torch.nan)
        return SimilarityTable(cka=cka.cpu().numpy(), cosine=cosine, texts=self.texts)


def layer_similarities(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    batches: Iterable[Batch],
    *,
    stack: str,
    pool: str = "mean",
    total: int = 0,
    project: Project | None = None,
) -> SimilarityTable:
    """Return the similarity of every layer of the student to every layer of the teacher on these texts.

    `pool` makes one vector of a text: the state of its first token, or the mean of its real tokens.
    """
    sums = SimilaritySums()
    with reading("similarity", batches, total, student, teacher) as shown:
        for batch in shown:
            ours = pooled(hidden_states(student, batch, stack), pool)
            theirs = pooled(hidden_states(teacher, batch, stack, teacher=True), pool)
            sums.add(ours, theirs, None if project is None else project(ours))
    return sums.table()
