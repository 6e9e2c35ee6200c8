"""Trainable linear projections between widths.

A projection is built once per match from the widths of its pairs. It is part of the one module that is trained, so the
optimiser, gradient clipping, checkpoints and every process include it; the exported student does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from stillery import declare
from stillery.errors import UserError

__all__ = ["Projection", "Start", "both", "to_student", "to_teacher"]

Start = Literal["literal", "same", "orthogonal"]
"""The initialisation of the projections of both sides."""


def _maps(sources: Sequence[int], targets: Sequence[int], *, bias: bool, shared: bool) -> nn.ModuleList:
    """A linear map for each pair, or one for all pairs."""
    pairs = list(zip(sources, targets, strict=True))
    if shared and len(set(pairs)) > 1:
        raise UserError("one projection cannot serve layers of different widths; use one per pair")
    return nn.ModuleList(nn.Linear(*pair, bias=bias) for pair in (pairs[:1] if shared else pairs))


class Projection(nn.Module):
    """Linear maps of the student's states, of the teacher's, or of both; a side without maps is unchanged."""

    def __init__(self, student: nn.ModuleList | None, teacher: nn.ModuleList | None, *, shared: bool) -> None:
        super().__init__()
        self.shared = shared
        self.student = student
        self.teacher = teacher

    def forward(self, student: Tensor, teacher: Tensor, slot: int) -> tuple[Tensor, Tensor]:
        """Project the rows of pair number `slot`."""
        if self.student is not None:
            student = self.student[0 if self.shared else slot](student)
        if self.teacher is not None:
            teacher = self.teacher[0 if self.shared else slot](teacher)
        return student, teacher

    def together(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """Project the rows of all pairs at once, [pairs, rows, width], each by its own maps."""
        if self.student is None or self.teacher is None or student.shape != teacher.shape:
            sides = (student, self.student), (teacher, self.teacher)
            ours, theirs = (rows if maps is None else _mapped(rows, maps) for rows, maps in sides)
            return ours, theirs
        # One batched product of both sides costs less than two.
        maps = [one for side in (self.student, self.teacher) for one in side for _ in range(len(student) // len(side))]
        ours, theirs = _mapped(torch.cat([student, teacher]), maps).chunk(2)
        return ours, theirs


class _Products(torch.autograd.Function):
    """Rows [pairs, rows, width] by weights [pairs, new width, width].

    The gradients of plain `torch.bmm` would be in another memory layout than the rows or the weights, and the next
    operation would copy them: for small tensors that costs as much as for large ones.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights)
        return torch.bmm(rows, weights.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, weights = ctx.saved_tensors
        of_rows, of_weights = ctx.needs_input_grad
        # Under autocast the product and its gradient have a lower precision than the factors.
        return (
            torch.bmm(gradient, weights.to(gradient.dtype)).to(rows.dtype) if of_rows else None,
            torch.bmm(gradient.transpose(1, 2), rows.to(gradient.dtype)).to(weights.dtype) if of_weights else None,
        )


def _mapped(rows: Tensor, maps: Iterable[nn.Module]) -> Tensor:
    """Rows [pairs, rows, width] after a linear map for each pair, or one for all."""
    linear = [one for one in maps if isinstance(one, nn.Linear)]
    if len(linear) == 1:
        shared: Tensor = linear[0](rows)
        return shared
    found: Tensor = _Products.apply(rows, torch.stack([one.weight for one in linear]))  # type: ignore[no-untyped-call]
    if linear[0].bias is None:
        return found
    return found + torch.stack([one.bias for one in linear]).unsqueeze(1)


@declare.projection("to-teacher", "a linear map per pair to the teacher's width, where the widths differ")
def to_teacher(
    student: Sequence[int], teacher: Sequence[int], *, bias: bool = False, shared: bool = False, always: bool = False
) -> Projection | None:
    """Layer selection's A_i: a linear map per pair where the widths differ, none where they agree.

    `shared` uses one map for all pairs, as TinyBERT's W_h; `always` uses it at equal widths too, as TinyBERT and the
    released CR-ILD code do.
    """
    if list(student) == list(teacher) and not always:
        return None
    return Projection(_maps(student, teacher, bias=bias, shared=shared), None, shared=shared)


@declare.projection("to-student", "a linear map per pair from the teacher's layers to the student's width")
def to_student(
    student: Sequence[int], teacher: Sequence[int], *, bias: bool = True, shared: bool = False, always: bool = True
) -> Projection | None:
    """CKD-combine: a linear map per pair from the teacher's concatenated layers to the student's width.

    ALP-KD's phi is one map for all pairs (`shared`), only where the widths differ (`always=False`).
    """
    if list(student) == list(teacher) and not always:
        return None
    return Projection(None, _maps(teacher, student, bias=bias, shared=shared), shared=shared)


@declare.projection("both", "linear maps of both sides to a common width")
def both(
    student: Sequence[int],
    teacher: Sequence[int],
    *,
    width: int = 128,
    bias: bool = False,
    shared: bool = False,
    start: Start = "literal",
    frozen_teacher: bool = False,
) -> Projection:
    """RAIL-KD: linear maps of both sides to a lower common width (eq. 2), two per pair.

    The teacher's map is trained too, so with `bias` the loss has a trivial solution (zero maps, equal biases); hence no
    bias by default. `frozen_teacher` does not train the teacher's map. `start` is the initialisation of the two maps of
    a pair: independent random matrices, as the paper reads (`literal`), or, where the widths agree, the same random
    matrix (`same`), or the same with orthogonal rows (`orthogonal`). At different widths they are independent.
    """
    built = Projection(
        _maps(student, [width] * len(student), bias=bias, shared=shared),
        _maps(teacher, [width] * len(teacher), bias=bias, shared=shared),
        shared=shared,
    )
    assert built.student is not None and built.teacher is not None
    if start != "literal":
        for ours, theirs in zip(built.student, built.teacher, strict=True):
            _alike(ours, theirs, orthogonal=start == "orthogonal")
    built.teacher.requires_grad_(not frozen_teacher)
    return built


@torch.no_grad()
def _alike(student: nn.Module, teacher: nn.Module, *, orthogonal: bool) -> None:
    """Initialise both maps of a pair with the same matrix where their shapes agree."""
    assert isinstance(student, nn.Linear) and isinstance(teacher, nn.Linear)
    for one in (student, teacher) if orthogonal else ():
        nn.init.orthogonal_(one.weight)
    if student.weight.shape == teacher.weight.shape:
        teacher.load_state_dict(student.state_dict())
