"""Every metric on resamples is the metric of the resampled rows, as scikit-learn, SciPy and sacrebleu compute it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from sacrebleu.metrics import BLEU, CHRF
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stillery.errors import UserError
from stillery.evaluation.entities import TagSet
from stillery.evaluation.entity_metrics import Tagged, sentence_counts, tag_scores
from stillery.evaluation.measures import FromSums, OnRows, class_measure, score_measure, set_measure
from stillery.evaluation.text_metrics import text_counts

RANDOM = np.random.default_rng(0)


def resamples(size: int, draws: int = 7) -> np.ndarray:
    """How often each example is drawn `[draws, n]`; the first draw has each once."""
    drawn = [np.bincount(RANDOM.integers(0, size, size), minlength=size) for _ in range(draws - 1)]
    return np.stack([np.ones(size), *drawn])


def by_hand(times: np.ndarray, metric) -> list[float]:
    return [metric(np.repeat(np.arange(times.shape[1]), one.astype(int))) for one in times]


@pytest.mark.parametrize(
    ("metric", "expected", "classes"),
    [
        ("accuracy", accuracy_score, 4),
        ("matthews", matthews_corrcoef, 3),
        ("f1", lambda gold, guess: f1_score(gold, guess, zero_division=0), 2),
        ("f1_macro", lambda gold, guess: f1_score(gold, guess, average="macro", zero_division=0), 3),
    ],
)
def test_classes(metric, expected, classes) -> None:
    gold, guess = RANDOM.integers(0, classes, (2, 40))
    times = resamples(40)
    found = class_measure(gold, guess, metric).scores(times)
    assert found == pytest.approx(by_hand(times, lambda rows: 100 * expected(gold[rows], guess[rows])))


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_several_labels(average) -> None:
    gold, guess = RANDOM.integers(0, 2, (2, 30, 3))
    times = resamples(30)
    found = set_measure(gold, guess, f"f1_{average}").scores(times)
    hand = by_hand(times, lambda rows: 100 * f1_score(gold[rows], guess[rows], average=average, zero_division=0))
    assert found == pytest.approx(hand)
    found = set_measure(gold, guess, "accuracy").scores(times)
    assert found == pytest.approx(by_hand(times, lambda rows: 100 * accuracy_score(gold[rows], guess[rows])))


# Few different values, so that many are tied.
@settings(max_examples=30, deadline=None)
@given(some.integers(0, 10_000), some.integers(2, 25), some.sampled_from([3, 1000]))
def test_correlations(seed: int, size: int, different: int) -> None:
    random = np.random.default_rng(seed)
    # Far from 0, where sums of squares lose digits.
    gold, guess = random.integers(0, different, (2, size)) / 7 + 1e4
    times = resamples(size)

    def expected(correlate, rows) -> float:
        if np.ptp(gold[rows]) == 0 or np.ptp(guess[rows]) == 0:
            return 0.0
        return 100 * correlate(gold[rows], guess[rows]).statistic

    for name, correlate in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        found = score_measure(gold, guess, name).scores(times)
        assert found == pytest.approx(by_hand(times, lambda rows, one=correlate: expected(one, rows)), abs=1e-5)


def test_entities() -> None:
    tag_set = TagSet(names=("O", "B-A", "I-A", "E-A", "S-A"))
    lengths = RANDOM.integers(0, 7, 25)
    offsets = np.cumsum([0, *lengths])
    gold, guess = RANDOM.integers(0, 5, (2, offsets[-1]))
    times = resamples(25)
    for metric in ("f1", "recall", "accuracy", "f1_strict"):

        def expected(rows, name=metric) -> float:
            words = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows])
            tagged = Tagged(tags=gold[words], offsets=np.cumsum([0, *lengths[rows]]), tag_set=tag_set)
            return tag_scores(tagged, guess[words], [name], draws=1).metrics[name]

        whole = Tagged(tags=gold, offsets=offsets, tag_set=tag_set)
        rows, value = sentence_counts(whole, guess, metric)
        assert FromSums(rows=rows, value=value).scores(times) == pytest.approx(by_hand(times, expected))


def test_texts() -> None:
    words = ["a", "cat", "sat", "on", "the", "mat", "today"]
    outputs = [" ".join(RANDOM.choice(words, 8)) for _ in range(12)]
    references = [[" ".join(RANDOM.choice(words, 8)) for _ in range(2)] for _ in range(12)]
    times = resamples(12, 4)
    for name, metric in (("bleu", BLEU(force=True)), ("chrf", CHRF())):

        def expected(rows, one=metric) -> float:
            streams = [[references[row][place] for row in rows] for place in range(2)]
            return one.corpus_score([outputs[row] for row in rows], streams).score

        rows, value = text_counts(outputs, references, name)
        assert FromSums(rows=rows, value=value).scores(times) == pytest.approx(by_hand(times, expected))


def test_any_other_function() -> None:
    gold, guess = RANDOM.normal(size=(2, 20))
    times = resamples(20)

    def error(one, other) -> float:
        return -float(np.abs(one - other).mean())

    found = OnRows(gold=gold, guess=guess, metric=error).scores(times)
    assert found == pytest.approx(by_hand(times, lambda rows: error(gold[rows], guess[rows])))


def test_unknown_metrics_are_refused() -> None:
    one = np.array([0, 1])
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        class_measure(one, one, "acuracy")
    with pytest.raises(UserError, match="did you mean 'spearman'"):
        score_measure(one, one, "spearmann")
