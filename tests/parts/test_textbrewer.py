"""The same losses as another library computes them on the same tensors."""

from __future__ import annotations

import pytest
import torch

from stillery.parts import distance, divergence

losses = pytest.importorskip("textbrewer.losses")

MADE = torch.Generator().manual_seed(3)
LOGITS = torch.randn(2, 8, 3, generator=MADE, dtype=torch.float64)
STATES = torch.randn(2, 3, 7, 12, generator=MADE, dtype=torch.float64)
SCORES = torch.randn(2, 3, 4, 7, 7, generator=MADE, dtype=torch.float64)
MASK = (torch.arange(7)[None] < torch.tensor([7, 4, 2])[:, None]).long()


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_prediction_matching(temperature: float) -> None:
    torch.testing.assert_close(
        divergence.soft_ce(*LOGITS, temperature, square=False), losses.kd_ce_loss(*LOGITS, temperature)
    )
    torch.testing.assert_close(
        divergence.logit_mse(*LOGITS, temperature, square=False), losses.kd_mse_loss(*LOGITS, temperature)
    )


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_hidden_states(mask: torch.Tensor | None) -> None:
    torch.testing.assert_close(distance.mse(*STATES, mask), losses.hid_mse_loss(*STATES, mask))
    torch.testing.assert_close(distance.cosine(*STATES, mask), losses.cos_loss(*STATES, mask))


def test_first_tokens() -> None:
    student, teacher = STATES[:, :, 0]
    # It takes the paper's sum over width, mean over the batch.
    torch.testing.assert_close(
        distance.normalised_mse(student, teacher, reduction="batchmean"), losses.pkd_loss(*STATES)
    )


def test_attention_scores() -> None:
    torch.testing.assert_close(distance.mse(*SCORES, MASK, key_mask=MASK), losses.att_mse_loss(*SCORES, MASK))


def test_attention_maps() -> None:
    """Without padding its cross entropy is our KL plus the teacher's entropy, with the same gradient."""
    student = SCORES[0].clone().requires_grad_()
    teacher = SCORES[1]
    whole = torch.ones(3, 7)
    cross = losses.att_ce_loss(student, teacher, whole)
    (slope,) = torch.autograd.grad(cross, student)
    ours = distance.kl(student, teacher)
    entropy = -(teacher.softmax(-1) * teacher.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(ours + entropy, cross)
    torch.testing.assert_close(torch.autograd.grad(ours, student)[0], slope)
