"""The public functions as they are documented: names, order and defaults of arguments, shapes, and values by scipy."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, jensenshannon
from scipy.special import log_softmax, rel_entr, softmax

from stillery import methods
from stillery.parts import distance, divergence, mix, transport

STATES = (distance.mse, distance.normalised_mse, distance.cosine)
PREDICTIONS = (divergence.kl, divergence.reverse_kl, divergence.js, divergence.tvd, divergence.soft_ce)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])


def tensors(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(7)
    return torch.randn(*shape, generator=made).double(), torch.randn(*shape, generator=made).double()


def arguments(function) -> list[tuple[str, object]]:
    given = inspect.signature(function).parameters.values()
    return [(one.name, None if one.default is inspect.Parameter.empty else one.default) for one in given]


def test_signatures() -> None:
    for function in STATES:
        expected = [("student", None), ("teacher", None), ("mask", None), ("reduction", "mean")]
        assert arguments(function)[:4] == expected
    assert arguments(distance.kl) == [
        ("student_scores", None),
        ("teacher_scores", None),
        ("mask", None),
        ("key_mask", None),
        ("reduction", "batchmean"),
    ]
    for function in PREDICTIONS:
        assert arguments(function) == [
            ("student_logits", None),
            ("teacher_logits", None),
            ("temperature", 1.0),
            ("square", True),
        ]
    assert [name for name, _ in arguments(transport.transport_plan)] == ["cost", "student_weights", "teacher_weights"]
    assert [name for name, _ in arguments(mix.mixup)] == ["embeddings", "lam", "partner"]
    assert [name for name, _ in arguments(methods.terms)][:5] == ["name", "student", "teacher", "batch", "clock"]


def row_values(function, student: np.ndarray, teacher: np.ndarray) -> tuple[np.ndarray, int]:
    """The sum of each row, and how many elements it has."""
    if function is distance.mse:
        return ((student - teacher) ** 2).sum(-1), student.shape[-1]
    cosines = np.array([cdist(s[None], t[None], "cosine")[0, 0] for s, t in zip(student, teacher, strict=True)])
    return (2 * cosines, student.shape[-1]) if function is distance.normalised_mse else (cosines, 1)


@pytest.mark.parametrize("function", STATES)
@pytest.mark.parametrize("masked", [None, False, True])
@pytest.mark.parametrize("reduction", ["mean", "batchmean", "sum"])
def test_states(function, masked: bool | None, reduction: str) -> None:
    """On [batch, width], on [batch, tokens, width], and there with a mask."""
    student, teacher = tensors(3, 6) if masked is None else tensors(3, 4, 6)
    mask = MASK if masked else None
    chosen = np.ones(student.shape[:-1], bool) if mask is None else mask.numpy().astype(bool)
    rows, width = row_values(function, student.numpy()[chosen], teacher.numpy()[chosen])
    expected = {"sum": rows.sum(), "batchmean": rows.mean(), "mean": rows.sum() / (len(rows) * width)}[reduction]
    assert function(student, teacher, mask, reduction).item() == pytest.approx(expected, rel=1e-9)
    assert function(student.float(), teacher.float(), mask, reduction).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("heads", [0, 2])
def test_kl_of_scores(heads: int) -> None:
    student, teacher = tensors(3, heads, 4, 4) if heads else tensors(3, 4, 4)
    values = []
    for example, length in enumerate((4, 2, 1)):
        ours, theirs = (side[example].numpy().reshape(-1, 4, 4)[:, :length, :length] for side in (student, teacher))
        values.append(rel_entr(softmax(theirs, -1), softmax(ours, -1)).sum(-1).ravel())
    rows = np.concatenate(values)
    assert distance.kl(student, teacher, MASK, MASK).item() == pytest.approx(rows.mean(), rel=1e-9)
    assert distance.kl(student, teacher, MASK, MASK, "sum").item() == pytest.approx(rows.sum(), rel=1e-9)
    every = rel_entr(softmax(teacher.numpy(), -1), softmax(student.numpy(), -1)).sum(-1).mean()
    assert distance.kl(student, teacher).item() == pytest.approx(every, rel=1e-9)


def test_kl_leaves_masked_scores_out_whatever_they_are() -> None:
    student, teacher = tensors(3, 2, 4, 4)
    before = distance.kl(student, teacher, MASK, MASK)
    padded = (MASK == 0)[:, None, None, :].expand_as(student)
    for filler in (1e30, torch.inf, torch.nan):
        student[padded], teacher[padded] = filler, -filler
        torch.testing.assert_close(distance.kl(student, teacher, MASK, MASK), before)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("square", [True, False])
def test_predictions(temperature: float, square: bool) -> None:
    student, teacher = tensors(5, 3)
    p, q = (softmax(side.numpy() / temperature, 1) for side in (teacher, student))
    expected = {
        divergence.kl: rel_entr(p, q).sum(1),
        divergence.reverse_kl: rel_entr(q, p).sum(1),
        divergence.js: jensenshannon(p, q, axis=1) ** 2,
        divergence.tvd: np.abs(p - q).sum(1) / 2,
        divergence.soft_ce: -(p * log_softmax(student.numpy() / temperature, 1)).sum(1),
    }
    for function, rows in expected.items():
        value = rows.mean() * (temperature**2 if square else 1)
        assert function(student, teacher, temperature, square).item() == pytest.approx(value, rel=1e-9)
        assert function(student.float(), teacher.float(), temperature, square).item() == pytest.approx(value, rel=1e-4)


def test_ranges() -> None:
    surely = torch.tensor([[500.0, 0.0]]), torch.tensor([[0.0, 500.0]])
    assert divergence.js(*surely).item() == pytest.approx(np.log(2))
    assert divergence.tvd(*surely).item() == pytest.approx(1)
    for function in PREDICTIONS[:4]:
        assert function(surely[0], surely[0]).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("function", [*STATES, distance.kl, *PREDICTIONS], ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_gradients_are_those_of_the_values(function) -> None:
    student, teacher = tensors(3, 5)
    assert torch.autograd.gradcheck(lambda ours: function(ours, teacher), student.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_single(dtype: torch.dtype) -> None:
    student, teacher = (side.to(dtype) for side in tensors(3, 5))
    for function in (*STATES, distance.kl, *PREDICTIONS):
        value = function(student, teacher)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, function(student.float(), teacher.float()))


def test_golden_4_released_attention() -> None:
    student, teacher = torch.tensor([[[[2.0, -10001], [1, -9999]]]]), torch.tensor([[[[1.0, -10000], [3, -10002]]]])
    assert distance.released_attention_mse(student, teacher).item() == pytest.approx(1.25)
    unmasked = torch.tensor([[[[2.0, 5], [1, 6]]]]), torch.tensor([[[[1.0, -3], [3, 4]]]])
    keys = torch.tensor([[1, 0]])
    assert distance.released_attention_mse(*unmasked, key_mask=keys).item() == pytest.approx(1.25)
    # The masked mean, our default, leaves padding out of the denominator too.
    assert distance.mse(*unmasked, key_mask=keys).item() == pytest.approx(2.5)


def test_map_kl_both_ways() -> None:
    student, target = (side.softmax(-1) for side in tensors(3, 2, 4, 4))
    chosen = MASK.bool()[:, None].expand(3, 2, 4).numpy()
    forth = rel_entr(student.numpy(), target.numpy()).sum(-1)[chosen].mean()
    back = rel_entr(target.numpy(), student.numpy()).sum(-1)[chosen].mean()
    assert distance.map_kl(student, target, MASK).item() == pytest.approx(forth, rel=1e-9)
    assert distance.map_kl(student, target, MASK, towards_student=False).item() == pytest.approx(back, rel=1e-9)
    certain = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert distance.map_kl(*certain).item() == pytest.approx(-np.log(1e-12), rel=1e-5)


def test_contrastive_is_the_cross_entropy_of_finding_ones_own() -> None:
    student, teacher = tensors(4, 6)
    cosines = 1 - cdist(student.numpy(), teacher.numpy(), "cosine")
    expected = -np.diag(log_softmax(cosines / 0.07, 1)).mean()
    assert distance.contrastive(student, teacher).item() == pytest.approx(expected, rel=1e-9)
    warm = -np.diag(log_softmax(cosines / 0.5, 1)).mean()
    assert distance.contrastive(student, teacher, temperature=0.5).item() == pytest.approx(warm, rel=1e-9)
