"""Similarity, divergence and angles of layers: golden numbers, and nothing depends on padding or on batches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedModel

from stillery.analyse.angles import AngleSums, angle_cosine, layer_angles
from stillery.analyse.layer_divergence import divergences, layer_divergence
from stillery.analyse.similarity import SimilaritySums, layer_similarities
from stillery.data.tokens.batches import Batch
from stillery.models.similarity import cka

LENGTHS = (7, 3, 5, 9, 4, 6)


def made(layers: int, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
    return AutoModelForSequenceClassification.from_config(BertConfig(num_hidden_layers=layers, **shape)).eval()


def batches(size: int, padding: int = 0) -> Iterator[Batch]:
    """The same six texts, in batches of a size, with some positions of padding more than is needed."""
    random = np.random.default_rng(0)
    texts = [random.integers(1, 50, length) for length in LENGTHS]
    for start in range(0, len(texts), size):
        here = texts[start : start + size]
        width = max(map(len, here)) + padding
        ids, mask = np.zeros((len(here), width), dtype=np.int64), np.zeros((len(here), width), dtype=np.int64)
        for row, text in enumerate(here):
            ids[row, : len(text)], mask[row, : len(text)] = text, 1
        inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        index = np.arange(start, start + len(here))
        yield Batch(index=index, ids=tuple(map(str, index)), inputs=inputs, labels=None)


def test_cka_of_running_sums_is_that_of_all_texts_at_once() -> None:
    random = torch.Generator().manual_seed(0)
    ours = torch.randn(2, 30, 8, generator=random, dtype=torch.float64) + 5
    theirs = torch.cat([torch.randn(1, 30, 8, generator=random, dtype=torch.float64), -3 * ours[:1] + 1])
    sums = SimilaritySums()
    for start in range(0, 30, 7):
        sums.add(ours[:, start : start + 7], theirs[:, start : start + 7])
    found = sums.table()
    assert found.cka[0, 1] == pytest.approx(1) and abs(found.cka[0, 0]) < 0.3
    expected = [[cka(one.numpy(), two.numpy()) for two in theirs] for one in ours]
    np.testing.assert_allclose(found.cka, expected, atol=1e-12)
    assert found.cosine is not None
    expected_cosine = torch.cosine_similarity(ours[1], theirs[0], dim=-1).mean()
    assert found.cosine[1, 0] == pytest.approx(expected_cosine.item())


def test_golden_kl() -> None:
    # softmax of (0, ln 3) is (1/4, 3/4), of (0, 0) it is (1/2, 1/2).
    states = torch.tensor([[[0.0, math.log(3)]], [[0.0, 0.0]]], dtype=torch.float64)
    found = divergences(states)
    assert found[0, 1].item() == pytest.approx(0.75 * math.log(1.5) - 0.25 * math.log(2))
    assert found[1, 0].item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert found.diagonal().tolist() == pytest.approx([0, 0])


def test_sums_of_angles_are_those_of_every_token() -> None:
    random = torch.Generator().manual_seed(1)
    ours, theirs = torch.randn(2, 11, 6, generator=random), torch.randn(3, 11, 6, generator=random)
    sums = AngleSums((1, 2), (1, 2, 3), bins=10)
    sums.add(ours[:, :4], theirs[:, :4])
    sums.add(ours[:, 4:], theirs[:, 4:])
    found = sums.table()
    for student in range(2):
        cosines = angle_cosine(ours[student], theirs[0], theirs[2])
        assert found.mean[student, 0, 2] == pytest.approx(cosines.mean().item(), abs=1e-6)
        assert found.acute[student, 2, 0] == pytest.approx((cosines > 0).double().mean().item())
        assert found.histogram[student].tolist() == torch.histc(cosines, bins=10, min=-1, max=1).tolist()
    assert found.tokens == 11


def test_neither_padding_nor_batches_change_anything() -> None:
    student, teacher = made(2, 0), made(3, 1)
    one, other = list(batches(6)), list(batches(4, padding=5))
    angles = [layer_angles(student, teacher, each, stack="encoder")[0] for each in (one, other)]
    assert angles[0].tokens == angles[1].tokens == sum(LENGTHS)
    np.testing.assert_allclose(angles[0].mean, angles[1].mean, atol=1e-5)
    np.testing.assert_array_equal(angles[0].acute, angles[1].acute)
    for pool in ("mean", "first"):
        alike = [layer_similarities(student, teacher, each, stack="encoder", pool=pool) for each in (one, other)]
        np.testing.assert_allclose(alike[0].cka, alike[1].cka, atol=1e-4)
        np.testing.assert_allclose(alike[0].cosine, alike[1].cosine, atol=1e-5)
        maps = [layer_divergence(teacher, each, stack="encoder", pool=pool) for each in (one, other)]
        np.testing.assert_allclose(maps[0], maps[1], atol=1e-5)


def test_shuffled_tokens_are_others_of_the_same_layers() -> None:
    student, teacher = made(1, 0), made(2, 1)
    same, null, again = layer_angles(student, teacher, list(batches(6)), stack="encoder", shuffles=(None, 3, 3))
    assert not np.allclose(same.mean, null.mean)
    np.testing.assert_array_equal(null.mean, again.mean)
