"""Matching of predictions token by token, over a whole vocabulary: the functions of `divergence` for language models.

Every function takes logits `[batch, tokens, vocabulary]` of any precision and `mask` `[batch, tokens]`, 1 on the tokens
that are scored, and returns the mean over scored tokens: 0 when there are none. What the logits of other tokens are
never matters, nan included. `chunk` is how many tokens are measured at a time.

Logits are widened to single precision a chunk at a time, and the student's gradient is made along with the loss and
kept in the student's own precision: at most two tensors of that size are held beyond the logits, the second in backward
only, and never a wide copy of either model's logits. The teacher gets no gradient; there are no second derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from stillery import declare
from stillery.errors import UserError
from stillery.ignored import IGNORED
from stillery.parts._wide import wide

__all__ = [
    "TOKEN_DIVERGENCES",
    "token_cross_entropy",
    "token_js",
    "token_kl",
    "token_mse",
    "token_reverse_kl",
    "token_soft_ce",
    "token_tvd",
]

CPU_CHUNK, DEVICE_CHUNK = 2**19, 2**23
"""Logits in a chunk, of which a loss holds up to seven in single precision: 14 MB, near a CPU's caches; or 220 MB,
enough for a device not to spend its time starting kernels."""

Rule = Callable[[Tensor, Tensor], tuple[Tensor, Callable[[], Tensor]]]
"""From a chunk's logits and what they should be, to the loss of each row and, if it is asked for, its slope."""

Index = tuple[Tensor, ...] | tuple[int, slice] | slice


def _chunks(mask: Tensor, size: int) -> Iterator[tuple[Index, Tensor | None]]:
    """Which rows are measured together, and which of those are not scored after all.

    On the CPU these are the scored rows. Elsewhere all rows: to find the scored ones would make us wait for the device.
    """
    (batch, tokens), outside = mask.shape, ~mask
    if mask.device.type == "cpu":
        for rows in mask.nonzero().split(size):
            yield rows.unbind(1), None
    elif size < tokens:
        for example in range(batch):
            for first in range(0, tokens, size):
                yield (example, slice(first, first + size)), outside[example, first : first + size]
    else:
        examples = size // max(tokens, 1)
        for first in range(0, batch, examples):
            yield slice(first, first + examples), outside[first : first + examples]


def _total(rule: Rule, logits: Tensor, target: Tensor, mask: Tensor, chunk: int, slopes: Tensor | None) -> Tensor:
    """The sum of scored rows' losses; their slopes are written into `slopes`."""
    total = torch.zeros((), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
    for rows, outside in _chunks(mask, chunk):
        losses, slope = rule(logits[rows], target[rows])
        # Filled, not multiplied: a row that is not scored may hold inf or nan.
        total = total + (losses if outside is None else losses.masked_fill(outside, 0)).sum()
        if slopes is not None:
            made = slope() if outside is None else slope().masked_fill_(outside.unsqueeze(-1), 0)
            slopes[rows] = made.to(slopes.dtype)
    return total


class _Total(torch.autograd.Function):
    """The sum of scored rows' losses, with the slopes made in forward: each chunk is widened once.

    The mean's denominator and other factors reach backward with the loss scaler's and are multiplied in single
    precision: without the scaler's, slopes so small would vanish in float16.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, mask: Tensor, rule: Rule, chunk: int, factor: float
    ) -> Tensor:
        slopes = torch.zeros(logits.shape, dtype=logits.dtype, device=logits.device)
        total = _total(rule, logits, target, mask, chunk, slopes)
        ctx.save_for_backward(slopes)
        ctx.elements, ctx.factor = chunk * logits.shape[-1], factor
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        # Not in place: a graph that is kept may be walked again.
        gradient, by = torch.empty_like(slopes), given * ctx.factor
        for ours, slope in zip(gradient.view(-1).split(ctx.elements), slopes.view(-1).split(ctx.elements), strict=True):
            torch.mul(wide(slope), by, out=ours)
        return gradient, None, None, None, None, None


def _mean(rule: Rule, logits: Tensor, target: Tensor, mask: Tensor, chunk: int | None, factor: float = 1.0) -> Tensor:
    """The mean over scored rows; `factor` is what slopes are multiplied by beyond the mean's own."""
    if chunk is not None and chunk < 1:
        raise UserError(f"a chunk of {chunk} tokens measures nothing: give 1 or more")
    scored = mask.to(torch.bool)
    size = chunk or max(1, (CPU_CHUNK if logits.device.type == "cpu" else DEVICE_CHUNK) // logits.shape[-1])
    if torch.is_grad_enabled() and logits.requires_grad:
        total: Tensor = _Total.apply(logits, target, scored, rule, size, factor)  # type: ignore[no-untyped-call]
    else:
        total = _total(rule, logits, target, scored, size, None)
    return total / scored.sum().clamp_min(1)


def _compared(
    rule: Rule, student: Tensor, teacher: Tensor, mask: Tensor, temperature: float, square: bool, chunk: int | None
) -> Tensor:
    """The mean of a rule over softened predictions."""
    _check(student, teacher, mask)

    def softened(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        return rule(
            F.log_softmax(wide(ours) / temperature, dim=-1),
            F.log_softmax(wide(theirs) / temperature, dim=-1),
        )

    mean = _mean(softened, student, teacher, mask, chunk, 1 / temperature)
    return mean * temperature**2 if square else mean


def _check(student: Tensor, teacher: Tensor, mask: Tensor) -> None:
    if student.ndim != 3 or student.shape != teacher.shape:
        raise UserError(
            f"student logits {list(student.shape)} and teacher logits {list(teacher.shape)}: "
            "token losses need both as [batch, tokens, vocabulary], of one size; cut both to the vocabulary they share"
        )
    if mask.shape != student.shape[:2]:
        raise UserError(f"a mask {list(mask.shape)} for logits {list(student.shape)}: give it as [batch, tokens]")


def _kl(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    likely = teacher.exp()
    return (teacher - student).mul_(likely).sum(-1), lambda: student.exp().sub_(likely)


def _soft_ce(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    likely = teacher.exp_()
    return -(likely * student).sum(-1), lambda: student.exp().sub_(likely)


def _reverse_kl(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    likely, apart = student.exp(), student - teacher
    losses = (likely * apart).sum(-1)
    return losses, lambda: apart.sub_(losses.unsqueeze(-1)).mul_(likely)


def _js(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    middle = student.logaddexp(teacher).sub_(math.log(2))
    likely, apart = student.exp(), student - middle
    ours = (likely * apart).sum(-1)
    theirs = (teacher - middle).mul_(teacher.exp()).sum(-1)
    return (ours + theirs) / 2, lambda: apart.sub_(ours.unsqueeze(-1)).mul_(likely).div_(2)


def _tvd(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    likely = student.exp()
    apart = likely - teacher.exp()

    def slope() -> Tensor:
        sides = apart.sign()
        return sides.sub_((sides * likely).sum(-1, keepdim=True)).mul_(likely).div_(2)

    return apart.abs().sum(-1) / 2, slope


@declare.token_divergence("kl", "the same token by token, in bounded memory")
def token_kl(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """KL(teacher || student) of each scored token: covers all the teacher finds likely."""
    return _compared(_kl, student_logits, teacher_logits, mask, temperature, square, chunk)


@declare.token_divergence("reverse-kl", "the same token by token, in bounded memory")
def token_reverse_kl(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """KL(student || teacher) of each scored token: seeks one of the teacher's modes."""
    return _compared(_reverse_kl, student_logits, teacher_logits, mask, temperature, square, chunk)


@declare.token_divergence("js", "the same token by token, in bounded memory")
def token_js(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """Jensen-Shannon divergence of each scored token; between 0 and log 2."""
    return _compared(_js, student_logits, teacher_logits, mask, temperature, square, chunk)


@declare.token_divergence("tvd", "the same token by token, in bounded memory")
def token_tvd(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """Total variation distance of each scored token; between 0 and 1."""
    return _compared(_tvd, student_logits, teacher_logits, mask, temperature, square, chunk)


@declare.token_divergence("soft-ce", "the same token by token, in bounded memory")
def token_soft_ce(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """Cross entropy of each scored token against the teacher's prediction: `token_kl` plus the teacher's entropy."""
    return _compared(_soft_ce, student_logits, teacher_logits, mask, temperature, square, chunk)


@declare.token_divergence("mse", "the same token by token, in bounded memory")
def token_mse(
    student_logits: Tensor,
    teacher_logits: Tensor,
    mask: Tensor,
    temperature: float = 1.0,
    square: bool = True,
    chunk: int | None = None,
) -> Tensor:
    """Mean squared error of each scored token's raw logits: the temperature cancels against its square."""
    _check(student_logits, teacher_logits, mask)

    def rule(student: Tensor, teacher: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        apart = wide(student) - wide(teacher)
        return apart.square().mean(-1), lambda: apart

    mean = _mean(rule, student_logits, teacher_logits, mask, chunk, 2 / student_logits.shape[-1])
    return mean if square else mean / temperature**2


def token_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    *,
    ignore: int = IGNORED,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """Cross entropy of `targets` `[batch, tokens]`; tokens whose target is `ignore`, or outside the mask, don't count.

    With `label_smoothing` e, a target is 1 - e of itself and e spread evenly over the vocabulary.
    """
    if logits.ndim != 3 or targets.shape != logits.shape[:2]:
        raise UserError(
            f"logits {list(logits.shape)} and targets {list(targets.shape)}: "
            "give logits as [batch, tokens, vocabulary] and targets as [batch, tokens]"
        )
    if mask is not None and mask.shape != targets.shape:
        raise UserError(f"a mask {list(mask.shape)} for targets {list(targets.shape)}: give it as [batch, tokens]")
    scored = targets != ignore
    if mask is not None:
        scored = scored & mask.to(torch.bool)
    # What is not scored still needs a place in the vocabulary.
    return _mean(partial(_hard, label_smoothing), logits, targets.masked_fill(~scored, 0), scored, chunk)


def _hard(smoothing: float, logits: Tensor, targets: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    log_likely, place = F.log_softmax(wide(logits), dim=-1), targets.unsqueeze(-1)
    losses = log_likely.gather(-1, place).squeeze(-1).mul(smoothing - 1)
    if smoothing:
        losses = losses - smoothing * log_likely.mean(-1)

    def slope() -> Tensor:
        likely = log_likely.exp_()
        if smoothing:
            likely.sub_(smoothing / likely.shape[-1])
        return likely.scatter_add_(-1, place, likely.new_full((), smoothing - 1).expand(place.shape))

    return losses, slope


TOKEN_DIVERGENCES = declare.of_module("token_divergence", __name__)
"""The divergences of this file by their words, as in `divergence`."""
