"""Trainable maps between widths: the only parts with weights.

A projection is built once per match and lives inside the one module that is trained, so the optimiser, clipping,
checkpoints and every process see it; the exported student never holds it.
"""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["ToTeacher", "to_teacher"]


class ToTeacher(nn.Module):
    """One linear map per pair from the student's width to the teacher's; the teacher's side is left as it is."""

    def __init__(self, student_width: int, teacher_width: int, pairs: int, *, bias: bool) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(student_width, teacher_width, bias=bias) for _ in range(pairs))

    def forward(self, student: Tensor, teacher: Tensor, slot: int) -> tuple[Tensor, Tensor]:
        """Bring the student's rows of pair number `slot` to the teacher's width."""
        return self.maps[slot](student), teacher


def to_teacher(student_width: int, teacher_width: int, pairs: int, *, bias: bool = False) -> ToTeacher | None:
    """Layer selection, A_i: a linear map per pair where the widths differ, nothing where they agree."""
    if student_width == teacher_width:
        return None
    return ToTeacher(student_width, teacher_width, pairs, bias=bias)
