"""Metrics of generated text: BLEU and chrF by sacrebleu, accuracy of label words, perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError, nearest
from stillery.evaluation import paired
from stillery.evaluation.measures import FromSums
from stillery.lines import listed

__all__ = [
    "TextDifference",
    "TextScores",
    "label_accuracy",
    "need_sacrebleu",
    "perplexity",
    "text_counts",
    "text_difference",
    "text_measure",
    "text_scores",
]


@dataclass(frozen=True, kw_only=True)
class TextScores:
    """BLEU and chrF2 of a corpus (0 to 100), with sacrebleu's signature and the 95% interval [low, high] of each."""

    bleu: float
    chrf: float
    signatures: Mapping[str, str]
    intervals: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class TextDifference:
    """The difference student minus teacher in BLEU and chrF2, with paired 95% intervals [low, high]."""

    bleu: float
    chrf: float
    intervals: Mapping[str, tuple[float, float]]


def text_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, draws: int = 1000, seed: int = 0
) -> TextScores:
    """Corpus BLEU (cased, tokeniser 13a) and chrF2, exactly as sacrebleu's command line computes them by default.

    Args:
        outputs: the generated texts.
        references: one or more references per text; their number may vary. An empty text counts as a reference, as on
            sacrebleu's command line; omit a missing reference instead.
        draws: the number of bootstrap resamples of the examples for the intervals.
        seed: the seed of the resamples.
    """
    (measured,) = _measured([outputs], references)
    values = {name: counts.value() for name, counts in measured.items()}
    spread = {
        name: paired.interval(counts.measure, len(outputs), draws=draws, seed=seed) for name, counts in measured.items()
    }
    signatures = {name: str(counts.metric.get_signature()) for name, counts in measured.items()}
    return TextScores(**values, signatures=signatures, intervals=spread)


def text_difference(
    outputs: Sequence[str],
    teacher_outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> TextDifference:
    """The difference student minus teacher in BLEU and chrF2, with intervals by a paired bootstrap over examples."""
    student, teacher = _measured([outputs, teacher_outputs], references)
    values, spread = {}, {}
    for name in student:
        values[name], spread[name] = paired.difference(
            student[name].measure, teacher[name].measure, len(outputs), draws=draws, seed=seed
        )
    return TextDifference(**values, intervals=spread)


def text_counts(
    outputs: Sequence[str], references: Sequence[Sequence[str]], metric: str
) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
    """Counts per text `[n, counts]`, and a function from their sums `[draws, counts]` to BLEU or chrF2."""
    (measured,) = _measured([outputs], references)
    if metric not in measured:
        raise UserError(f"unknown metric {metric!r} of texts; {nearest(metric, measured)}")
    found = measured[metric].measure
    return found.rows, found.value


def text_measure(outputs: Sequence[str], references: Sequence[Sequence[str]], metric: str) -> FromSums:
    """Return BLEU or chrF2 of texts (`bleu`, `chrf`) as a metric for resamples of the examples."""
    rows, value = text_counts(outputs, references, metric)
    return FromSums(rows=rows, value=value)


def need_sacrebleu() -> None:
    """Raise UserError if sacrebleu is not installed."""
    try:
        import sacrebleu  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            'BLEU and chrF need the package sacrebleu; install with: pip install "stillery[generation]"'
        ) from None


def label_accuracy(outputs: Sequence[str], words: Sequence[str]) -> NDArray[np.int64]:
    """The class `[n]` that each generated text names, ignoring case and surrounding spaces.

    Class i is named by `words[i]`. Any other text is -1, which is no gold class, so `(found == gold).mean()` is the
    exact-match accuracy.

    >>> label_accuracy([" Positive", "negative.", "negative"], ["negative", "positive"])
    array([ 1, -1,  0])
    """
    classes = {_plain(word): index for index, word in enumerate(words)}
    if len(classes) < len(words) or "" in classes:
        raise UserError(f"label words must be different and not empty, whatever their case; they are: {listed(words)}")
    return np.array([classes.get(_plain(text), -1) for text in outputs], dtype=np.int64)


def perplexity(loss_per_token_mean: float) -> float:
    """The exponential of a mean cross-entropy per token in nats; infinity if it overflows.

    >>> perplexity(0.0), perplexity(1000.0)
    (1.0, inf)
    """
    try:
        return math.exp(loss_per_token_mean)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counts:
    """A sacrebleu metric and its counts per text `[n, counts]`; the corpus score is computed from their sums."""

    metric: Any
    rows: NDArray[np.int64]

    def value(self) -> float:
        return self._score(self.rows.sum(axis=0))

    @property
    def measure(self) -> FromSums:
        """The metric on resamples of the texts."""
        return FromSums(
            rows=self.rows.astype(np.float64),
            value=lambda sums: np.array([self._score(one) for one in np.rint(sums).astype(np.int64)]),
        )

    def _score(self, sums: NDArray[np.int64]) -> float:
        return float(self.metric._compute_score_from_stats(sums.tolist()).score)


def _measured(systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> list[dict[str, _Counts]]:
    """The counts of each metric in the outputs of each system."""
    for outputs in systems:
        _check(outputs, references)
    need_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # sacrebleu takes the first references of all texts, then the second ones, ...; it skips None but not "".
    most = max(map(len, references))
    streams: Any = [[right[place] if place < len(right) else None for right in references] for place in range(most)]
    # With `force` it does not warn on stderr that outputs look tokenised; the numbers are the same.
    metrics = {"bleu": BLEU(force=True, references=streams), "chrf": CHRF(references=streams)}
    return [{name: _counts(metric, outputs) for name, metric in metrics.items()} for outputs in systems]


def _counts(metric: Any, outputs: Sequence[str]) -> _Counts:
    # Private methods, because sacrebleu's own bootstrap sums these in single precision and has no paired interval.
    return _Counts(metric=metric, rows=np.array(metric._extract_corpus_statistics(outputs, None), dtype=np.int64))


def _check(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(outputs) != len(references):
        raise UserError(f"{len(outputs)} outputs cannot be compared with the references of {len(references)} examples")
    if not outputs:
        raise UserError("there are no outputs to score")
    for row, right in enumerate(references, start=1):
        if isinstance(right, str) or not right:
            found = "a single text" if isinstance(right, str) else "empty"
            raise UserError(f"the references of example {row} are {found}; give a list of one text or more")


def _plain(text: str) -> str:
    return text.strip().casefold()
