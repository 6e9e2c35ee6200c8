"""Weights of classes: what they are, what they do to the labels' loss, and that its parts still add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator

from stillery.data.schema.examples import Splits
from stillery.data.schema.labels import Labels
from stillery.jobs.kinds.base import Read
from stillery.jobs.kinds.classification.measures import class_weights
from stillery.recipe import Clock, Stage
from stillery.train.microbatches import split_window
from stillery.train.objective import Objective
from stillery.train.settings import Training

WEIGHTS = torch.tensor([0.4, 2.5])


def gradients(objective: Objective) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in objective.parameters() if one.grad is not None])


def step(student_of, data, weights: torch.Tensor | None, batch_size: int) -> tuple[float, torch.Tensor]:
    """The labels' loss of a step on 32 examples in micro-batches, and its gradients."""
    objective = Objective(student_of(), (Stage(),), teacher=None, seed=0, class_weights=weights)
    objective.eval()
    clock = Clock(seed=0)
    found = split_window(data, np.arange(32), batch_size, clock, None, Accelerator(cpu=True))
    total = 0.0
    for micro_batch in found:
        losses = objective(objective.plan(clock), micro_batch, {})
        losses.total.backward()
        total += losses.total.item()
    return total, gradients(objective)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighed"])
def test_four_micro_batches_of_eight_are_one_batch_of_thirty_two(student_of, data, weights) -> None:
    whole, of_whole = step(student_of, data, weights, 32)
    parts, of_parts = step(student_of, data, weights, 8)
    assert parts == pytest.approx(whole, rel=1e-5)
    torch.testing.assert_close(of_parts, of_whole, rtol=1e-4, atol=1e-6)


def test_the_loss_is_divided_by_the_examples(student_of, data) -> None:
    found, _ = step(student_of, data, WEIGHTS, 32)
    student = student_of().eval()
    batch = data.batch(np.arange(32))
    with torch.no_grad():
        each = F.cross_entropy(student(**batch.inputs).logits, batch.labels, reduction="none")
    assert found == pytest.approx((WEIGHTS[batch.labels] * each).sum().item() / 32, rel=1e-5)
    # Weights of 1 change nothing; others do.
    plain, _ = step(student_of, data, None, 32)
    assert step(student_of, data, torch.ones(2), 32)[0] == pytest.approx(plain, rel=1e-6)
    assert abs(found - plain) > 1e-3


def test_weights_are_no_part_of_a_checkpoint(student_of) -> None:
    weighed = Objective(student_of(), (Stage(),), teacher=None, seed=0, class_weights=WEIGHTS)
    assert "class_weights" not in weighed.state_dict() and "class_weights" in dict(weighed.named_buffers())


def test_balanced_weights_are_counted_from_the_training_split(sentences) -> None:
    labels = np.array([0] * 6 + [1] * 2 + [3] * 4)
    train = replace(sentences.take(np.arange(12)), labels=labels)
    splits = Splits(train=train, dev=train, test=None, labels=Labels(names=tuple("abcd")), source="x", note="")
    found = class_weights(Read(splits=splits, scored={}), Training(class_weights="balanced"))
    assert found is not None and found.tolist() == pytest.approx([12 / 18, 2.0, 1.0, 1.0])
    assert found[torch.tensor(labels)].mean().item() == pytest.approx(1)
    assert class_weights(Read(splits=splits, scored={}), Training()) is None
