"""Token-level divergences over a whole vocabulary, in bounded memory: those of `divergence` for language models.

Every function takes logits `[batch, tokens, vocabulary]` of any precision and `mask` `[batch, tokens]`, 1 on the tokens
that are scored, and returns the mean over scored tokens, 0 when there are none. The logits of other tokens have no
effect, even nan. `chunk` is the number of tokens that are computed at a time.

Logits are converted to single precision a chunk at a time. The student's gradient is computed together with the loss
and kept in the precision of the logits. So at most two tensors of that size are held beyond the logits, the second only
in backward, and never a single-precision copy of all logits. The teacher gets no gradient; there are no second
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from stillery import declare
from stillery.errors import UserError
from stillery.ignored import IGNORED
from stillery.parts._wide import wide

__all__ = [
    "token_cross_entropy",
    "token_js",
    "token_kl",
    "token_mse",
    "token_reverse_kl",
    "token_soft_ce",
    "token_tvd",
]

CPU_CHUNK, DEVICE_CHUNK = 2**19, 2**23
"""Logits in a chunk, of which a loss holds up to seven tensors in single precision.

That is 14 MB on a CPU, about the size of its caches, and 220 MB on a GPU, so that few kernels are started.
"""

Measured = tuple[Tensor, Callable[[], Tensor]]
"""The loss of each row of a chunk, and a function that computes its gradient by the logits."""

Rule = Callable[[Tensor, Tensor], Measured]
"""From the student's rows of a chunk and their targets to the loss of each row and its gradient."""

Index = tuple[Tensor, ...] | tuple[int, slice] | slice


class TokenDivergence(Protocol):
    """A divergence of predictions over a vocabulary, the mean over scored tokens."""

    def __call__(
        self,
        student_logits: Tensor,
        teacher_logits: Tensor,
        mask: Tensor,
        temperature: float = 1.0,
        square: bool = True,
        chunk: int | None = None,
    ) -> Tensor:
        """Compare logits [batch, tokens, vocabulary] where the mask [batch, tokens] is 1."""


def _chunks(mask: Tensor, size: int) -> Iterator[tuple[Index, Tensor | None]]:
    """The rows of each chunk, and which of them are not scored (None: all are).

    On the CPU chunks hold scored rows only. On a GPU they hold all rows, because finding the scored ones would wait for
    the device.
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
    """The sum of the losses of scored rows; their gradients are written into `slopes`."""
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
    """The sum of the losses of scored rows, with gradients computed in forward, so that chunks are converted once.

    The denominator of the mean and the loss scale reach backward together and are multiplied in single precision.
    Without the scale, such small gradients would underflow in float16.
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
        # Not in place, because backward may run again on a retained graph.
        gradient, by = torch.empty_like(slopes), given * ctx.factor
        for ours, slope in zip(gradient.view(-1).split(ctx.elements), slopes.view(-1).split(ctx.elements), strict=True):
            torch.mul(wide(slope), by, out=ours)
        return gradient, None, None, None, None, None


def _mean(rule: Rule, logits: Tensor, target: Tensor, mask: Tensor, chunk: int | None, factor: float = 1.0) -> Tensor:
    """The mean over scored rows; `factor` multiplies gradients beyond the mean's own denominator."""
    if chunk is not None and chunk < 1:
        raise UserError(f"a chunk of {chunk} tokens is too small: give 1 or more")
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
    """The mean of a rule over the log-probabilities at the temperature."""
    _check(student, teacher, mask)

    def softened(ours: Tensor, theirs: Tensor) -> Measured:
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
            "token losses need both as [batch, tokens, vocabulary] of the same size; cut both to a shared vocabulary"
        )
    if mask.shape != student.shape[:2]:
        raise UserError(f"a mask {list(mask.shape)} for logits {list(student.shape)}: give it as [batch, tokens]")


def _token_by_token(rule: Rule) -> TokenDivergence:
    """The divergence that applies a rule to the log-probabilities of both models at the temperature."""

    def divergence(
        student_logits: Tensor,
        teacher_logits: Tensor,
        mask: Tensor,
        temperature: float = 1.0,
        square: bool = True,
        chunk: int | None = None,
    ) -> Tensor:
        return _compared(rule, student_logits, teacher_logits, mask, temperature, square, chunk)

    # Not functools.wraps, which would give it the signature of the rule.
    divergence.__doc__, divergence.__name__ = rule.__doc__, getattr(rule, "__name__", "divergence")
    return divergence


@declare.token_divergence("kl", "the same token by token, in bounded memory")
@_token_by_token
def token_kl(student: Tensor, teacher: Tensor) -> Measured:
    """KL(teacher || student) of each scored token: covers all the teacher finds likely."""
    likely = teacher.exp()
    return (teacher - student).mul_(likely).sum(-1), lambda: student.exp().sub_(likely)


@declare.token_divergence("reverse-kl", "the same token by token, in bounded memory")
@_token_by_token
def token_reverse_kl(student: Tensor, teacher: Tensor) -> Measured:
    """KL(student || teacher) of each scored token: seeks one of the teacher's modes."""
    likely, apart = student.exp(), student - teacher
    losses = (likely * apart).sum(-1)
    return losses, lambda: apart.sub_(losses.unsqueeze(-1)).mul_(likely)


@declare.token_divergence("js", "the same token by token, in bounded memory")
@_token_by_token
def token_js(student: Tensor, teacher: Tensor) -> Measured:
    """Jensen-Shannon divergence of each scored token; between 0 and log 2."""
    middle = student.logaddexp(teacher).sub_(math.log(2))
    likely, apart = student.exp(), student - middle
    ours = (likely * apart).sum(-1)
    theirs = (teacher - middle).mul_(teacher.exp()).sum(-1)
    return (ours + theirs) / 2, lambda: apart.sub_(ours.unsqueeze(-1)).mul_(likely).div_(2)


@declare.token_divergence("tvd", "the same token by token, in bounded memory")
@_token_by_token
def token_tvd(student: Tensor, teacher: Tensor) -> Measured:
    """Total variation distance of each scored token; between 0 and 1."""
    likely = student.exp()
    apart = likely - teacher.exp()

    def slope() -> Tensor:
        sides = apart.sign()
        return sides.sub_((sides * likely).sum(-1, keepdim=True)).mul_(likely).div_(2)

    return apart.abs().sum(-1) / 2, slope


@declare.token_divergence("soft-ce", "the same token by token, in bounded memory")
@_token_by_token
def token_soft_ce(student: Tensor, teacher: Tensor) -> Measured:
    """Cross entropy of each scored token against the teacher's prediction: `token_kl` plus the teacher's entropy."""
    likely = teacher.exp_()
    return -(likely * student).sum(-1), lambda: student.exp().sub_(likely)


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

    def rule(student: Tensor, teacher: Tensor) -> Measured:
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
    """Cross entropy of `targets` `[batch, tokens]`, the mean over tokens in the mask whose target is not `ignore`.

    With `label_smoothing` e, a target has probability 1 - e and e is uniform over the vocabulary.
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
    # The targets that are not scored still have to be valid indices.
    return _mean(partial(_hard, label_smoothing), logits, targets.masked_fill(~scored, 0), scored, chunk)


def _hard(smoothing: float, logits: Tensor, targets: Tensor) -> Measured:
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
