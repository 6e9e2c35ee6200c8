"""Flatness, loss surface, probe, calibration, maps and spreads: golden numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from test_layers import LENGTHS, batches, made

from stillery.analyse.agreement import reliability, share, shares_by
from stillery.analyse.angles import AngleSums
from stillery.analyse.attention_weights import weights_of
from stillery.analyse.flatness import flatness
from stillery.analyse.loss_of import mean_loss
from stillery.analyse.loss_surface import Plane, loss_surface
from stillery.analyse.probe import features, linear_probe
from stillery.analyse.projections import effective_rank, map_shape, maps_cosine
from stillery.analyse.variance import equal_spread, seed_spread
from stillery.data.tokens.batches import Batch
from stillery.errors import UserError
from stillery.evaluation.inference_mode import evaluating


def with_labels(size: int, padding: int = 0) -> list[Batch]:
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    return [
        Batch(index=one.index, ids=one.ids, inputs=one.inputs, labels=labels[one.index])
        for one in batches(size, padding)
    ]


def direct(model: torch.nn.Module) -> float:
    """The loss by transformers itself, over all texts at once."""
    (batch,) = with_labels(6)
    with evaluating(model), torch.no_grad():
        return float(model(**batch.inputs, labels=batch.labels).loss)


def test_flatness_at_radius_0_is_the_loss_and_padding_changes_nothing() -> None:
    model = made(2, 0)
    one = flatness(model, lambda: with_labels(6), "classes", [0.0, 0.5], draws=2, seed=1)
    other = flatness(model, lambda: with_labels(4, padding=5), "classes", [0.0, 0.5], draws=2, seed=1)
    assert one.losses[0].tolist() == pytest.approx([direct(model)] * 2, abs=1e-6)
    np.testing.assert_allclose(one.losses, other.losses, atol=1e-5)
    assert one.size == pytest.approx(other.size) and one.losses[1, 0] != one.losses[1, 1]


def test_a_surface_is_the_loss_at_its_corners_and_leaves_the_model_as_it_was() -> None:
    models = [made(1, seed) for seed in range(3)]
    plane = Plane(*[model.state_dict() for model in models])
    before = {name: tensor.clone() for name, tensor in models[1].state_dict().items()}
    found = loss_surface(
        models[1], plane, lambda model: mean_loss(model, with_labels(4), "classes"), points=3, margin=1
    )
    expected = [direct(model) for model in models]
    assert found.corners == pytest.approx(expected, abs=1e-5)
    assert found.a.tolist() == [-1, 0.5, 2] and found.between[[0, -1]].tolist() == pytest.approx(expected[1:], abs=1e-5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in models[1].state_dict().items())
    assert plane.project(plane.at(0.3, -0.4)) == pytest.approx((0.3, -0.4, 0), abs=1e-3)
    with pytest.raises(UserError, match="different shapes"):
        Plane(models[0].state_dict(), models[1].state_dict(), made(2, 0).state_dict())
    with pytest.raises(UserError, match="one line"):
        Plane(models[0].state_dict(), models[1].state_dict(), models[1].state_dict())


def test_a_probe_is_scikit_learns() -> None:
    random = np.random.default_rng(0)
    train, dev = random.normal(size=(80, 5)), random.normal(size=(40, 5))
    labels, dev_labels = (train[:, 0] > 0).astype(int), (dev[:, 0] > 0.2).astype(int)
    mean, deviation = train.mean(0), train.std(0)
    plain = LogisticRegression(C=0.5, max_iter=1000).fit((train - mean) / deviation, labels)
    expected = [100 * plain.score((some - mean) / deviation, of) for some, of in ((train, labels), (dev, dev_labels))]
    found = linear_probe(train.astype("f4"), labels, dev.astype("f4"), dev_labels, penalty=2.0)
    assert list(found) == pytest.approx(expected)


def test_features_are_in_the_order_of_the_texts() -> None:
    model = made(2, 0)
    one = features(model, list(batches(6)), stack="encoder")
    other = features(model, list(batches(4, padding=3))[::-1], stack="encoder")
    assert one.shape == (3, len(LENGTHS), 16)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_calibration_error() -> None:
    found = reliability(np.array([0.55, 0.55, 0.95, 0.95]), np.array([True, False, True, True]), bins=10)
    assert found.error == pytest.approx(0.5 * 0.05 + 0.5 * 0.05)
    assert found.examples.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 2] and found.accuracy[5] == 0.5
    one, none = shares_by({"a": np.array([True, True]), "b": np.array([False, False])}, np.array([True, False])), share
    assert [(each.name, each.value) for each in one] == [("a", 0.5)] and none("all", np.array([True])).high == 1


def test_golden_18_attention_weights() -> None:
    student = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    teacher = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    assert weights_of(student, teacher)[0, 0].tolist() == pytest.approx([0.73105858, 0.26894142])
    assert weights_of(student, teacher, scale=True)[0, 0, 0].item() == pytest.approx(0.66976155)


def test_ranks_of_maps() -> None:
    assert effective_rank(np.array([2.0, 2.0, 2.0, 0.0])) == pytest.approx(3)
    assert map_shape(np.outer(np.arange(1.0, 41), np.ones(40))).collapsed
    assert not map_shape(np.eye(40)).collapsed and map_shape(np.eye(40)).rank == pytest.approx(40)
    assert maps_cosine(np.eye(2), -np.eye(2)) == pytest.approx(-1) and maps_cosine(np.eye(2), np.eye(3)) is None


def test_few_seeds_say_nothing_of_a_difference_in_spread() -> None:
    assert seed_spread([1.0, 3.0]).deviation == pytest.approx(2**0.5) and seed_spread([1.0]).deviation is None
    assert equal_spread({"a": [1, 2, 3], "b": [1, 5, 9]}) is None
    apart = equal_spread({"a": [1.0, 1.1, 0.9, 1.05, 0.95, 1.0], "b": [1, 9, -7, 5, -3, 2]})
    assert apart is not None and apart < 0.05


def test_where_the_student_is_a_copy_of_a_teacher_layer_there_is_no_angle() -> None:
    teacher = torch.randn(3, 5, 4)
    sums = AngleSums((1,), (1, 2, 3))
    sums.add(teacher[:1], teacher)
    found = sums.table()
    assert np.isnan(found.mean[0, 0, 2]) and np.isfinite(found.mean[0, 1, 2]) and found.histogram.sum() == 0
    assert found.choices[0][0] == pytest.approx(found.mean[0, 1, 2])
