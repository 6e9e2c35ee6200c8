"""Maps of all pairs at once give the rows and the gradients of each pair's own map, in memory as they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stillery.parts import project
from stillery.parts.project import Projection

PAIRS, ROWS = 3, 5


def asked(kind: str) -> tuple[Projection, int, int]:
    """A projection and the widths of both sides."""
    torch.manual_seed(0)
    if kind == "one side":
        built = project.to_teacher([4] * PAIRS, [6] * PAIRS, bias=True)
        assert built is not None
        return built, 4, 6
    if kind == "teacher's side":
        built = project.to_student([4] * PAIRS, [6] * PAIRS)
        assert built is not None
        return built, 4, 6
    widths = {"both": (6, 6), "other widths": (4, 6), "frozen": (6, 6), "shared": (6, 6)}[kind]
    options = {"frozen": {"frozen_teacher": True}, "shared": {"shared": True}}.get(kind, {})
    return project.both([widths[0]] * PAIRS, [widths[1]] * PAIRS, width=7, **options), *widths


@pytest.mark.parametrize("kind", ["both", "other widths", "one side", "teacher's side", "frozen", "shared"])
def test_all_pairs_at_once_are_each_pair_by_itself(kind: str) -> None:
    projection, ours, theirs = asked(kind)
    student = torch.randn(PAIRS, ROWS, ours, requires_grad=True)
    teacher = torch.randn(PAIRS, ROWS, theirs)
    trained = [student, *(one for one in projection.parameters() if one.requires_grad)]
    pairs = [projection(student[slot], teacher[slot], slot) for slot in range(PAIRS)]
    one_by_one = [torch.stack(side) for side in zip(*pairs, strict=True)]
    at_once = projection.together(student, teacher)
    weights = [torch.randn_like(side) for side in one_by_one]
    for one, other in zip(at_once, one_by_one, strict=True):
        torch.testing.assert_close(one, other)
        assert one.is_contiguous()
    found, wanted = (
        torch.autograd.grad(sum((side * weight).sum() for side, weight in zip(sides, weights, strict=True)), trained)
        for sides in (at_once, one_by_one)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert one.is_contiguous()


def test_gradients_of_products_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    rows, weights = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        project._Products.apply, (rows.requires_grad_(), weights.requires_grad_()), check_batched_grad=False
    )


def test_gradients_of_another_format_than_what_was_multiplied() -> None:
    """As under autocast, where the product is narrower; here it is wider, which any processor can do."""
    torch.manual_seed(0)
    rows, weights = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    gradient = torch.randn(2, 3, 5, dtype=torch.float64)
    context = SimpleNamespace(saved_tensors=(rows, weights), needs_input_grad=(True, True))
    of_rows, of_weights = project._Products.backward(context, gradient)
    assert of_rows.dtype == of_weights.dtype == torch.float32
    torch.testing.assert_close(of_rows, torch.bmm(gradient.float(), weights))
    torch.testing.assert_close(of_weights, torch.bmm(gradient.float().transpose(1, 2), rows))
