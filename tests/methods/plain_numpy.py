"""The papers' formulas in plain numpy, example by example: padding is cut off, never masked."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest
import torch

Arrays = list[np.ndarray]


def seen(trace) -> SimpleNamespace:
    """A trace as numpy: per layer a list of [tokens, width], one per example, cut to its real tokens."""
    stack = trace.encoder
    lengths = stack.mask.sum(1).tolist()

    def cut(layers) -> dict[int, Arrays]:
        arrays = {layer: values.detach().double().numpy() for layer, values in layers.items()}
        return {layer: [a[:n] for a, n in zip(array, lengths, strict=True)] for layer, array in arrays.items()}

    return SimpleNamespace(
        logits=trace.logits.detach().double().numpy(),
        hidden=cut(stack.hidden),
        padded={layer: values.detach().double().numpy() for layer, values in stack.hidden.items()},
        query=cut(stack.query),
        key=cut(stack.key),
        value=cut(stack.value),
        padded_query={layer: values.detach().double().numpy() for layer, values in stack.query.items()},
        padded_key={layer: values.detach().double().numpy() for layer, values in stack.key.items()},
        heads=stack.heads,
        lengths=lengths,
    )


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True))


def hard(logits: np.ndarray, labels: tuple[int, ...] = (2, 0, 1)) -> float:
    return float(np.mean([-np.log(softmax(row)[label]) for row, label in zip(logits, labels, strict=True)]))


def soft(student: np.ndarray, teacher: np.ndarray, temperature: float, square: bool = True) -> float:
    """The mean over examples of sum p_T log(p_T / p_S), times T^2."""
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    return float((p * np.log(p / q)).sum(1).mean() * (temperature**2 if square else 1))


def words(states: Arrays) -> np.ndarray:
    return np.concatenate(states)


def first(states: Arrays) -> np.ndarray:
    return np.stack([rows[0] for rows in states])


def pooled(states: Arrays) -> np.ndarray:
    return np.stack([rows.mean(0) for rows in states])


def linear(rows: np.ndarray, layer: torch.nn.Linear) -> np.ndarray:
    bias = 0 if layer.bias is None else layer.bias.detach().double().numpy()
    return rows @ layer.weight.detach().double().numpy().T + bias


def mean_square(student: np.ndarray, teacher: np.ndarray) -> float:
    return float(((student - teacher) ** 2).mean())


def relation(left: np.ndarray, right: np.ndarray, heads: int) -> np.ndarray:
    """Scaled dot products of one example, [heads, tokens, tokens]."""
    size = left.shape[1] // heads
    slices = [slice(h * size, (h + 1) * size) for h in range(heads)]
    return np.stack([left[:, s] @ right[:, s].T / np.sqrt(size) for s in slices])


def attention(model: SimpleNamespace, layer: int) -> Arrays:
    return [relation(q, k, model.heads) for q, k in zip(model.query[layer], model.key[layer], strict=True)]


def relations(states: Arrays, heads: int) -> Arrays:
    return [relation(rows, rows, heads) for rows in states]


def score_square(student: Arrays, teacher: Arrays) -> float:
    """The mean squared difference over all scores of all examples."""
    return float(np.concatenate([(s - t).ravel() ** 2 for s, t in zip(student, teacher, strict=True)]).mean())


def row_kl(student: Arrays, teacher: Arrays) -> float:
    """KL(teacher || student) of every row of scores, mean over all rows of all heads and examples."""
    values = []
    for ours, theirs in zip(student, teacher, strict=True):
        p, q = softmax(theirs), softmax(ours)
        values.append((p * np.log(p / q)).sum(-1).ravel())
    return float(np.concatenate(values).mean())


def same(found: Mapping[str, torch.Tensor], expected: Mapping[str, float]) -> None:
    """The terms are these, by name and value."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, rel=1e-9, abs=1e-12), name
        assert abs(value) > 1e-4 or value == 0, f"{name} is so small that it proves nothing"
