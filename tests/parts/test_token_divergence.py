"""Token losses against the losses of gathered tokens, and what they hold in memory."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stillery import declare
from stillery.errors import UserError
from stillery.parts import divergence as divergences
from stillery.parts import token_divergence as token_divergences
from stillery.parts.token_divergence import token_cross_entropy, token_kl

DIVERGENCES = declare.of_module("divergence", divergences.__name__)
TOKEN_DIVERGENCES = declare.of_module("token_divergence", token_divergences.__name__)

NAMES = list(DIVERGENCES)
MASK = torch.tensor([[1, 1, 1, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
TARGETS = torch.tensor([[3, 0, 6, 2, -100], [-100, 5, 5, -100, -100], [-100, -100, -100, -100, -100]])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


def logits(dtype: torch.dtype = torch.float32, device: str = "cpu", vocabulary: int = 7):
    made = torch.Generator().manual_seed(3)
    student, teacher = (2 * torch.randn(3, 5, vocabulary, generator=made) for _ in range(2))
    return student.to(device, dtype).requires_grad_(), teacher.to(device, dtype)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, of, retain_graph=True)[0]


def test_every_divergence_has_its_token_loss() -> None:
    assert list(TOKEN_DIVERGENCES) == NAMES


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("chunk", [None, 1, 2, 10])
@pytest.mark.parametrize("square", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_divergence_of_the_gathered_tokens(name: str, square: bool, chunk: int | None, device: str) -> None:
    student, teacher = logits(device=device)
    mask = MASK.to(device)
    expected = DIVERGENCES[name](student[mask.bool()], teacher[mask.bool()], 2.5, square)
    found = TOKEN_DIVERGENCES[name](student, teacher, mask, 2.5, square, chunk)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient(3 * found, student), gradient(3 * expected, student), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_in_double_precision(name: str) -> None:
    student, teacher = logits(torch.float64)
    measure = TOKEN_DIVERGENCES[name]
    assert torch.autograd.gradcheck(lambda ours: measure(ours, teacher, MASK, 2.0, chunk=2), student)
    assert measure(student, teacher, MASK).dtype == torch.float64


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float) -> None:
    student, _ = logits()
    expected = F.cross_entropy(student.flatten(0, 1), TARGETS.flatten(), label_smoothing=smoothing)
    for chunk in (None, 1, 4):
        found = token_cross_entropy(student, TARGETS, label_smoothing=smoothing, chunk=chunk)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradient(found, student), gradient(expected, student))
    wide, _ = logits(torch.float64)
    assert torch.autograd.gradcheck(lambda ours: token_cross_entropy(ours, TARGETS, label_smoothing=smoothing), wide)


def test_cross_entropy_counts_tokens_that_mask_and_target_both_allow() -> None:
    student, _ = logits()
    mask = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1]])
    chosen = mask.bool() & (TARGETS != -100)
    expected = F.cross_entropy(student[chosen], TARGETS[chosen])
    torch.testing.assert_close(token_cross_entropy(student, TARGETS, mask), expected)
    marked = TARGETS.masked_fill(~chosen, 6)  # a word of the vocabulary, and a target too
    marked[0, 2] = 6
    kept = chosen & (TARGETS != 6)
    expected = F.cross_entropy(student[kept], TARGETS[kept])
    torch.testing.assert_close(token_cross_entropy(student, marked, ignore=6), expected)


def every(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    """Every loss of this file."""
    targets = TARGETS.to(student.device).clamp_min(0)
    losses = [measure(student, teacher, mask, 2.0) for measure in TOKEN_DIVERGENCES.values()]
    return [*losses, token_cross_entropy(student, targets, mask, label_smoothing=0.1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf, 1e38])
def test_what_is_not_scored_never_matters(filler: float, device: str) -> None:
    student, teacher = logits(device=device)
    mask = MASK.to(device)
    padded = (mask == 0).unsqueeze(-1)
    spoilt = student.detach().masked_fill(padded, filler).requires_grad_()
    for plain, found in zip(
        every(student, teacher, mask), every(spoilt, teacher.masked_fill(padded, -filler), mask), strict=True
    ):
        torch.testing.assert_close(found, plain)
        slopes = gradient(found, spoilt)
        torch.testing.assert_close(slopes, gradient(plain, student))
        assert not slopes[mask == 0].any() and slopes[mask == 1].any()


@pytest.mark.parametrize("device", DEVICES)
def test_no_scored_token_is_a_loss_of_zero(device: str) -> None:
    student, teacher = logits(device=device)
    mask = torch.zeros(3, 5, device=device)
    empty = token_kl(student[:0], teacher[:0], mask[:0]), token_kl(student[:, :0], teacher[:, :0], mask[:, :0])
    for loss in (*every(student, teacher, mask), *empty):
        assert loss.item() == 0
        assert not gradient(loss, student).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_single(dtype: torch.dtype) -> None:
    student, teacher = logits(dtype)
    again = student.detach().float().requires_grad_()
    for found, expected in zip(every(student, teacher, MASK), every(again, teacher.float(), MASK), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected)
        slopes, exact = gradient(found, student), gradient(expected, again)
        assert slopes.dtype == dtype
        torch.testing.assert_close(slopes.float(), exact, rtol=1e-2, atol=1e-5)


def test_small_gradients_survive_a_loss_scaler_in_float16() -> None:
    """Divided by the number of tokens before it is scaled, a gradient of float16 would be zero."""
    student, teacher = torch.zeros(1, 4000, 200, dtype=torch.float16), torch.zeros(1, 4000, 200, dtype=torch.float16)
    student.requires_grad_()
    teacher[..., 0] = 1
    scaled = gradient(token_kl(student, teacher, torch.ones(1, 4000)) * 2.0**14, student)
    exact = (1 / 200 - teacher[0, 0].float().softmax(0)) * 2.0**14 / 4000
    torch.testing.assert_close(scaled[0, 7].float(), exact, rtol=0.02, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_under_autocast(device: str) -> None:
    student, teacher = logits(device=device)
    mask = MASK.to(device)
    plain = every(student, teacher, mask)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = every(student, teacher, mask)
    for ours, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(gradient(ours, student), gradient(expected, student))


def test_a_graph_may_be_walked_twice_but_not_differentiated_twice() -> None:
    student, teacher = logits()
    loss = token_kl(student, teacher, MASK)
    first = torch.autograd.grad(loss, student, retain_graph=True)[0].clone()
    weight = torch.tensor(5.0, requires_grad=True)
    second = torch.autograd.grad(weight * loss, student, create_graph=True)[0]
    torch.testing.assert_close(second, 5 * first)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second.sum().backward()


def test_shifted_logits_and_inputs_left_as_they_were() -> None:
    """Predictions of the next token are a slice of all: neither contiguous nor copied."""
    student, teacher = logits()
    before = student.detach().clone(), teacher.clone()
    mask = MASK[:, :-1].bool()
    for name, measure in TOKEN_DIVERGENCES.items():
        found = measure(student[:, 1:], teacher[:, 1:], mask, chunk=3)
        expected = DIVERGENCES[name](student[:, 1:][mask], teacher[:, 1:][mask])
        torch.testing.assert_close(gradient(found, student), gradient(expected, student))
    torch.testing.assert_close((student.detach(), teacher), before, rtol=0, atol=0)


class Sizes(TorchDispatchMode):
    """Notes how many elements each new tensor has, by precision."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[torch.dtype, list[int]] = {torch.float32: [0], torch.bfloat16: [0]}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        known = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf)}
        for leaf in tree_leaves(made):
            if torch.is_tensor(leaf) and leaf.dtype in self.made and leaf.untyped_storage().data_ptr() not in known:
                self.made[leaf.dtype].append(leaf.numel())
        return made


@pytest.mark.parametrize("name", [*NAMES, "ce"])
def test_no_wide_copy_of_the_logits_is_ever_made(name: str) -> None:
    student, teacher = (torch.randn(2, 64, 500).bfloat16() for _ in range(2))
    student.requires_grad_()
    mask, targets = torch.ones(2, 64), torch.randint(0, 500, (2, 64))

    def loss() -> torch.Tensor:
        if name == "ce":
            return token_cross_entropy(student, targets, label_smoothing=0.1, chunk=8)
        return TOKEN_DIVERGENCES[name](student, teacher, mask, 2.0, chunk=8)

    with Sizes() as sizes:
        gradient(loss(), student)
    assert max(sizes.made[torch.float32]) == 8 * 500
    # The slopes kept in forward, and the gradient made of them in backward.
    assert sum(size == student.numel() for size in sizes.made[torch.bfloat16]) == 2
    with Sizes() as sizes, torch.no_grad():
        assert not loss().requires_grad
    assert max(sizes.made[torch.bfloat16]) <= 8 * 500


class Softened(TorchDispatchMode):
    """Notes how many rows each softmax has."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._log_softmax.default:
            self.rows.append(made.shape[:-1].numel())
        return made


@pytest.mark.parametrize(("chunk", "rows"), [(2, [2, 2, 1] * 3), (5, [5] * 3), (12, [10, 5]), (None, [15])])
def test_off_the_cpu_chunks_cover_every_token_once(chunk: int | None, rows: list[int]) -> None:
    student, _ = logits(device="meta")
    with Softened() as softened:
        loss = token_cross_entropy(student, TARGETS.to("meta"), chunk=chunk)
    assert softened.rows == rows
    assert gradient(loss, student).shape == student.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_device_is_never_waited_for() -> None:
    student, teacher = logits(torch.bfloat16, "cuda")
    mask, targets = MASK.cuda(), TARGETS.cuda()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for measure in TOKEN_DIVERGENCES.values():
            for chunk in (2, 12, None):
                gradient(measure(student, teacher, mask, 2.0, chunk=chunk), student)
        gradient(token_cross_entropy(student, targets, mask, label_smoothing=0.1), student)
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_that_do_not_fit_are_refused(name: str) -> None:
    measure = TOKEN_DIVERGENCES[name]
    student, teacher = logits()
    with pytest.raises(UserError, match=r"student logits \[3, 5, 7\] and teacher logits \[3, 5, 6\]"):
        measure(student, teacher[..., :-1], MASK)
    with pytest.raises(UserError, match=r"\[batch, tokens, vocabulary\]"):
        measure(student[0], teacher[0], MASK[0])
    with pytest.raises(UserError, match=r"a mask \[3, 4\] for logits \[3, 5, 7\]"):
        measure(student, teacher, MASK[:, 1:])
    with pytest.raises(UserError, match="a chunk of 0 tokens"):
        measure(student, teacher, MASK, chunk=0)


def test_targets_that_do_not_fit_are_refused() -> None:
    student, _ = logits()
    with pytest.raises(UserError, match=r"logits \[3, 5, 7\] and targets \[3, 4\]"):
        token_cross_entropy(student, TARGETS[:, 1:])
    with pytest.raises(UserError, match=r"a mask \[2, 5\] for targets \[3, 5\]"):
        token_cross_entropy(student, TARGETS, MASK[1:])
