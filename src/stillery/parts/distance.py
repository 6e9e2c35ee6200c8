"""Distances of student and teacher representations, with masks and reductions.

Every distance takes `student` and `teacher` of one shape and returns a scalar. A *row* is the last axis: a state
`[batch, width]`, a token's state `[batch, tokens, width]`, or a token's scores over keys
`[batch, heads, tokens, keys]`. `mask` `[batch, tokens]` is 1 on real tokens; the other rows are left out. `key_mask`,
for scores, is 1 on the keys that count: `[batch, keys]`, or any shape that broadcasts to the scores. Reductions:

- `mean`: mean over all valid elements;
- `batchmean`: sum over each row, then mean over valid rows;
- `rowmean`: mean over the valid elements of each row, then over valid rows, so that all rows count the same;
- `sum`: sum over all valid elements;
- `batchmean_twice`: `batchmean` divided by the batch size once more, as the released layer-selection code does for
  BERT. It depends on the batch size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from stillery import declare
from stillery.parts._wide import wide

__all__ = [
    "REDUCTIONS",
    "contrastive",
    "cosine",
    "kl",
    "map_kl",
    "mse",
    "normalised_mse",
    "released_attention_mse",
]

_LEAST_NORM = 1e-12
"""Lower bound of the norm when rows are normalised."""

REDUCTIONS = (
    declare.reduction("mean", "mean over all valid elements", over="elements"),
    declare.reduction("batchmean", "sum over the row, then mean over valid rows", over="rows"),
    declare.reduction("rowmean", "mean of each row, then over valid rows: all rows count the same", over="rows"),
    declare.reduction("sum", "sum over all valid elements", over=None),
    declare.batch_reduction("batchmean_twice", "batchmean divided by the batch size", over="rows"),
)


def _keys(scores: Tensor, key_mask: Tensor) -> Tensor:
    """The key mask in the shape of the scores; `[batch, keys]` gets axes for heads and tokens."""
    valid = key_mask.to(torch.bool)
    if valid.ndim == 2 and scores.ndim > 2:
        valid = valid.reshape(valid.shape[0], *(1,) * (scores.ndim - 2), valid.shape[1])
    return valid.expand_as(scores)


def _reduce(rows: Tensor, mask: Tensor | None, reduction: str, width: int | Tensor) -> Tensor:
    """Reduce row sums to a scalar, without masked rows.

    `width` is the number of valid elements in a row: one number, or one per row where keys are masked.
    """
    if mask is None and isinstance(width, int):
        return _reduce_all(rows.sum(), reduction, tuple(rows.shape), width)
    _known(reduction)
    valid = torch.ones_like(rows, dtype=torch.bool)
    if mask is not None:
        # Scores have an axis for heads that a mask of tokens does not have.
        spread = mask.unsqueeze(1) if mask.ndim == 2 and rows.ndim == 3 else mask
        valid = spread.to(torch.bool).expand_as(rows)
    # Selected, not multiplied: a masked row may hold inf or nan.
    total = torch.where(valid, rows, rows.new_zeros(())).sum()
    if reduction == "sum":
        return total
    if reduction == "rowmean":
        means = rows / (width if isinstance(width, int) else width.clamp_min(1))
        return torch.where(valid, means, rows.new_zeros(())).sum() / valid.sum().clamp_min(1)
    if reduction == "mean":
        elements = valid.sum() * width if isinstance(width, int) else torch.where(valid, width, 0).sum()
        return total / elements.clamp_min(1)
    mean_row = total / valid.sum().clamp_min(1)
    return mean_row if reduction == "batchmean" else mean_row / rows.shape[0]


def _reduce_all(total: Tensor, reduction: str, rows: tuple[int, ...], width: int, squared: int = 1) -> Tensor:
    """Reduce the sum over all elements where none is masked, so that the counts follow from the shape.

    The sum is divided by `squared` too, the factor by which the squared elements are too large.
    """
    count = max(math.prod(rows), 1)
    by = {"sum": 1, "mean": count * width, "rowmean": count * width, "batchmean": count}
    by["batchmean_twice"] = count * (rows[0] if rows else 1)
    divisor = by[_known(reduction)] * squared
    return total if divisor == 1 else total / divisor


def _known(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise ValueError(f"unknown reduction {reduction!r}; known: {', '.join(REDUCTIONS)}")
    return reduction


@declare.distance("mse", "squared error of the elements", rowwise=True)
def mse(
    student: Tensor,
    teacher: Tensor,
    mask: Tensor | None = None,
    reduction: str = "mean",
    key_mask: Tensor | None = None,
) -> Tensor:
    """Squared error of the elements.

    Layer selection, L_hid: `mean` is the form of its BART and T5 code (and the default here), `batchmean_twice` that of
    its BERT code. On attention scores this is TinyBERT's L_attn (eq. 7).
    """
    if mask is None and key_mask is None:
        total = F.mse_loss(wide(student), wide(teacher), reduction="sum")
        return _reduce_all(total, reduction, tuple(student.shape[:-1]), student.shape[-1])
    squares = (wide(student) - wide(teacher)).square()
    if key_mask is None:
        return _reduce(squares.sum(-1), mask, reduction, student.shape[-1])
    keys = _keys(squares, key_mask)
    return _reduce(torch.where(keys, squares, 0.0).sum(-1), mask, reduction, keys.sum(-1))


@declare.distance("normalised-mse", "squared error of rows scaled to unit length: 2 - 2 cos of each", rowwise=True)
def normalised_mse(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Squared error after scaling each row to unit length: PKD, L_PT (eq. 7); RAIL-KD (eq. 2).

    Per row the sum is 2 - 2 cos, between 0 and 4. PKD's paper writes the sum; its released code, and beta of 10 to
    1000, mean the `mean` over all elements. A row of zeros stays zero.
    """
    width = student.shape[-1]
    # RMS norm gives rows a mean square of 1 instead of a sum of 1; on a GPU it is one kernel each way.
    ours, theirs = (F.rms_norm(wide(rows), (width,), eps=_LEAST_NORM**2 / width) for rows in (student, teacher))
    if mask is None:
        total = F.mse_loss(ours, theirs, reduction="sum")
        return _reduce_all(total, reduction, tuple(student.shape[:-1]), width, squared=width)
    return mse(ours, theirs, mask, reduction) / width


@declare.distance("cosine", "1 - cosine of each pair of rows", over="rows", rowwise=True)
def cosine(student: Tensor, teacher: Tensor, mask: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """1 - cosine of each pair of rows, as DistilBERT's L_cos; a row is one element, so `mean` and `batchmean` agree."""
    return _reduce(1 - F.cosine_similarity(wide(student), wide(teacher), dim=-1), mask, reduction, 1)


@declare.distance("kl", "KL(teacher || student) of the softmax of scores over the keys", over="rows")
def kl(
    student_scores: Tensor,
    teacher_scores: Tensor,
    mask: Tensor | None = None,
    key_mask: Tensor | None = None,
    reduction: str = "batchmean",
) -> Tensor:
    """KL(teacher || student) of the softmax of scores over the last axis without masked keys, mean over valid rows.

    CR-ILD's L_MHA (eq. 1) and MiniLM's relation losses. The released CR-ILD code uses the cross entropy instead, which
    has the same gradient.
    """
    if reduction == "mean":
        reduction = "batchmean"  # the divergence of a row is one element
    student, teacher = wide(student_scores), wide(teacher_scores)
    if key_mask is not None:
        keys = _keys(student, key_mask)
        # Finite, so that a row without any key has a gradient of zero instead of nan.
        lowest = torch.finfo(student.dtype).min
        student, teacher = torch.where(keys, student, lowest), torch.where(keys, teacher, lowest)
    log_student, log_teacher = F.log_softmax(student, dim=-1), F.log_softmax(teacher, dim=-1)
    terms = log_teacher.exp() * (log_teacher - log_student)
    if key_mask is not None:
        terms = torch.where(keys, terms, 0.0)
    return _reduce(terms.sum(-1), mask, reduction, 1)


@declare.distance(None, "KL between attention maps", over="rows")
def map_kl(
    student: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    reduction: str = "batchmean",
    *,
    towards_student: bool = True,
    floor: float = 1e-12,
) -> Tensor:
    """KL between attention maps (probabilities over the last axis), mean over valid rows: CR-ILD's R_MHA.

    As the paper writes it, KL(student || target) with the target's logarithm clamped at `floor`; the released code
    takes the other direction (`towards_student=False`).
    """
    if reduction == "mean":
        reduction = "batchmean"
    first, second = (student, target) if towards_student else (target, student)
    first, second = wide(first), wide(second)
    terms = first * (first.clamp_min(floor).log() - second.clamp_min(floor).log())
    return _reduce(terms.sum(-1), mask, reduction, 1)


@declare.distance(None, "squared error of scores, padding included", over="examples", together=True)
def released_attention_mse(
    student: Tensor,
    teacher: Tensor,
    mask: Tensor | None = None,
    reduction: str = "mean",
    key_mask: Tensor | None = None,
) -> Tensor:
    """TinyBERT's released form: masked scores set to 0 on both sides, mean over everything, padding included.

    A score counts as masked where it is at most -100, which is how that code finds the mask it added, or by
    `key_mask`. It depends on the padding of a batch. `mask` and `reduction` are ignored.
    """
    ours, theirs = (torch.where(scores <= -100, 0.0, scores) for scores in (wide(student), wide(teacher)))
    squares = (ours - theirs).square()
    if key_mask is not None:
        squares = torch.where(_keys(squares, key_mask), squares, 0.0)
    return squares.mean()


@declare.distance(
    "contrastive", "InfoNCE against the other rows of the batch: depends on its composition", over="rows", together=True
)
def contrastive(
    student: Tensor,
    teacher: Tensor,
    mask: Tensor | None = None,
    reduction: str = "mean",
    *,
    temperature: float = 0.07,
) -> Tensor:
    """InfoNCE against the other rows of the batch: each student row should be nearest to its own teacher row.

    Rows are scaled to unit length. It depends on the batch composition, so gradient accumulation changes it.
    """
    rows, others = (F.normalize(wide(rows), dim=-1) for rows in (student, teacher))
    if mask is not None:
        rows, others = rows[mask.to(torch.bool)], others[mask.to(torch.bool)]
    scores = rows @ others.T / temperature
    losses = F.cross_entropy(scores, torch.arange(len(scores), device=scores.device), reduction="none")
    return _reduce(losses, None, reduction, 1)
