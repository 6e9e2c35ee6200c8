"""Linear probes: how much of the labels each layer of a frozen model holds (CR-ILD, Figure 11)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import PreTrainedModel

from stillery.analyse.states import hidden_states, pooled, reading
from stillery.data.tokens.batches import Batch
from stillery.progress import track

__all__ = ["Probe", "features", "linear_probe", "probe"]

_ROUNDS = 1000

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """Scores in percent of a probe on each layer, embedding first, on train and dev: accuracy, or R2 of a score."""

    train: NDArray[np.float64]
    dev: NDArray[np.float64]


def features(
    model: PreTrainedModel, batches: Iterable[Batch], *, stack: str, pool: str = "mean", total: int = 0, name: str = ""
) -> Floats:
    """Return one vector of each text and layer, [layers + 1, texts, width], in the order of the texts."""
    found: list[Floats] = []
    order: list[NDArray[np.int64]] = []
    with reading(f"features {name}".strip(), batches, total, model) as shown:
        for batch in shown:
            found.append(pooled(hidden_states(model, batch, stack), pool).float().cpu().numpy())
            order.append(batch.index)
    together = np.concatenate(found, axis=1)
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return together[:, inverse]


def linear_probe(
    train: Floats, labels: NDArray[np.int64], dev: Floats, dev_labels: NDArray[np.int64], *, penalty: float = 1.0
) -> tuple[float, float]:
    """Fit scikit-learn's logistic regression on standardised features, of scores a ridge regression; return its scores.

    They are the accuracy (R2 of scores) on train and on dev, in percent.
    """
    scores = np.issubdtype(labels.dtype, np.floating)
    linear = Ridge(alpha=penalty) if scores else LogisticRegression(C=1 / penalty, max_iter=_ROUNDS)
    fitted = make_pipeline(StandardScaler(), linear)
    with warnings.catch_warnings():
        # A probe that separates its training examples perfectly has no finite optimum without the penalty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(train, labels)
    return 100 * float(fitted.score(train, labels)), 100 * float(fitted.score(dev, dev_labels))


def probe(
    train: Floats,
    labels: NDArray[np.int64],
    dev: Floats,
    dev_labels: NDArray[np.int64],
    *,
    penalty: float = 1.0,
    name: str = "",
) -> Probe:
    """Probe every layer, from features [layers + 1, texts, width]."""
    found = [
        linear_probe(ours, labels, theirs, dev_labels, penalty=penalty)
        for ours, theirs in track(list(zip(train, dev, strict=True)), f"probe {name}".strip())
    ]
    return Probe(train=np.array([one for one, _ in found]), dev=np.array([two for _, two in found]))
