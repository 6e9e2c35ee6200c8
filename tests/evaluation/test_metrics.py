from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation.bootstrap import replicates
from stillery.evaluation.metrics import agreement, difference, interval, main_metric, majority_collapse, score

TWO = Labels(names=("no", "yes"), regression=False)
FOUR = Labels(names=("a", "b", "c", "d"), regression=False)
NUMBER = Labels(names=("score",), regression=True)


def sure(classes: list[int] | np.ndarray, count: int = 2) -> np.ndarray:
    """Logits whose largest entry is the given class."""
    return np.eye(count, dtype=np.float32)[np.asarray(classes)]


def column(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def test_values_computed_by_hand() -> None:
    gold, logits = np.array([1, 1, 1, 0, 0]), sure([1, 1, 0, 0, 1])
    found = score(gold, logits, TWO, ["accuracy", "f1", "f1_macro", "matthews"])
    # tp 2, fn 1, tn 1, fp 1
    assert found["accuracy"] == pytest.approx(60)
    assert found["f1"] == pytest.approx(100 * 4 / 6)
    assert found["f1_macro"] == pytest.approx(100 * (4 / 6 + 2 / 4) / 2)
    assert found["matthews"] == pytest.approx(100 * (2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))


def test_correlations_computed_by_hand() -> None:
    found = score(np.array([1.0, 2.0, 3.0]), column([1, 3, 2]), NUMBER)
    assert found == {"pearson": pytest.approx(50), "spearman": pytest.approx(50)}
    assert score(np.array([1.0, 2.0, 3.0]), column([1, 10, 100]), NUMBER)["spearman"] == pytest.approx(100)


def test_defaults_and_the_main_metric() -> None:
    assert list(score(np.array([0, 1]), sure([0, 1]), TWO)) == ["accuracy", "f1_macro"]
    assert main_metric(TWO) == main_metric(FOUR) == "accuracy"
    assert main_metric(NUMBER) == "pearson"
    assert main_metric(TWO, ["matthews", "f1"]) == "matthews"


def test_against_scikit_learn_and_scipy() -> None:
    random = np.random.default_rng(3)
    gold, guess = random.integers(0, 4, 200), random.integers(0, 4, 200)
    found = score(gold, sure(guess, 4), FOUR, ["f1_macro", "matthews"])
    assert found["f1_macro"] == pytest.approx(100 * f1_score(gold, guess, average="macro"))
    assert found["matthews"] == pytest.approx(100 * matthews_corrcoef(gold, guess))
    values = random.normal(size=200)
    noisy = (values + random.normal(size=200)).astype(np.float32)
    found = score(values, noisy[:, None], NUMBER)
    assert found["spearman"] == pytest.approx(100 * stats.spearmanr(values, noisy).statistic)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("f1", TWO),
        *((metric, labels) for metric in ("accuracy", "f1_macro", "matthews") for labels in (TWO, FOUR)),
    ],
)
def test_every_resample_has_the_value_scikit_learn_gives(metric: str, labels: Labels) -> None:
    random = np.random.default_rng(1)
    # Few examples and a rare class, so that some resamples lack a class and some are constant.
    gold, guess = random.integers(0, labels.count, 6), random.integers(0, labels.count, 6)
    rows, times = np.unique(np.stack([gold, guess], axis=1), axis=0, return_counts=True)
    drawn = np.random.default_rng(5).multinomial(len(gold), times / len(gold), size=50)
    found = replicates(gold, [guess], metric, draws=50, seed=5)[:, 0]
    for counts, value in zip(drawn, found, strict=True):
        sample = np.repeat(rows, counts, axis=0)
        expected = score(sample[:, 0], sure(sample[:, 1], labels.count), labels, [metric])[metric]
        assert value == pytest.approx(expected, abs=1e-9)


def test_wilson_interval_of_a_known_case() -> None:
    # Newcombe (1998), table I: 81 of 263, Wilson without continuity correction: 0.2553 to 0.3662.
    gold = np.zeros(263, dtype=np.int64)
    guess = np.array([0] * 81 + [1] * 182)
    low, high = interval(gold, sure(guess), TWO, "accuracy")
    assert low == pytest.approx(25.53, abs=0.005)
    assert high == pytest.approx(36.62, abs=0.005)


@pytest.mark.parametrize("metric", ["f1", "f1_macro", "matthews"])
def test_bootstrap_interval_holds_the_value_and_narrows(metric: str) -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 2000)
    guess = np.where(random.random(2000) < 0.8, gold, 1 - gold)
    value = score(gold, sure(guess), TWO, [metric])[metric]
    low, high = interval(gold, sure(guess), TWO, metric)
    few_low, few_high = interval(gold[:100], sure(guess[:100]), TWO, metric)
    assert low < value < high
    assert high - low < (few_high - few_low) / 2
    assert (low, high) == interval(gold, sure(guess), TWO, metric)
    assert (low, high) != interval(gold, sure(guess), TWO, metric, seed=1)


def test_bootstrap_width_agrees_with_wilson() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 2000)
    logits = sure(np.where(random.random(2000) < 0.8, gold, 1 - gold))
    low, high = interval(gold, logits, TWO, "accuracy")
    values = replicates(gold, [logits.argmax(axis=1)], "accuracy", draws=2000, seed=0)
    assert 2 * 1.96 * values.std() == pytest.approx(high - low, rel=0.1)


def test_interval_of_a_correlation() -> None:
    random = np.random.default_rng(0)
    gold = random.normal(size=300)
    logits = (gold + random.normal(size=300)).astype(np.float32)[:, None]
    low, high = interval(gold, logits, NUMBER, "pearson", draws=200)
    known = stats.pearsonr(gold, logits[:, 0]).confidence_interval()
    assert low == pytest.approx(100 * known.low, abs=3)
    assert high == pytest.approx(100 * known.high, abs=3)


def test_an_interval_is_about_the_positive_label() -> None:
    """Of 400 examples 300 are of the first class, of which 270 are found, and 30 of the other 100."""
    gold = np.array([0] * 300 + [1] * 100)
    guess = np.array([0] * 270 + [1] * 30 + [0] * 70 + [1] * 30)
    first, second = (Labels(names=("no", "yes"), positive=name) for name in ("no", "yes"))
    values = [score(gold, sure(guess), labels, ["f1"])["f1"] for labels in (first, second)]
    assert values == pytest.approx([100 * 540 / 640, 100 * 60 / 160])
    found = [interval(gold, sure(guess), labels, "f1") for labels in (first, second)]
    for value, (low, high) in zip(values, found, strict=True):
        assert low < value < high and high - low < 20
    assert found[1] == interval(gold, sure(guess), TWO, "f1")
    # The other way round it is the same task.
    assert found[0] == pytest.approx(interval(1 - gold, sure(1 - guess), TWO, "f1"))
    better = sure(np.where(np.arange(400) < 285, 0, guess))
    value, (low, high) = difference(gold, better, sure(guess), first, "f1")
    assert low < value < high and value == pytest.approx(
        difference(1 - gold, better[:, ::-1], sure(1 - guess), TWO, "f1")[0]
    )
    assert (low, high) == pytest.approx(difference(1 - gold, better[:, ::-1], sure(1 - guess), TWO, "f1")[1])


def test_difference_has_the_sign_of_student_minus_teacher_and_is_paired() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 1000)
    teacher = np.where(random.random(1000) < 0.9, gold, 1 - gold)
    # The student errs wherever the teacher does and on 40 examples more.
    student = teacher.copy()
    more = np.flatnonzero(teacher == gold)[:40]
    student[more] = 1 - gold[more]
    value, (low, high) = difference(gold, sure(student), sure(teacher), TWO, "accuracy")
    assert value == pytest.approx(-4)
    assert low < value < high < 0
    # Unpaired, two accuracies on 1000 examples would differ by far more.
    assert high - low == pytest.approx(2 * 1.96 * 100 * np.sqrt(0.04 * 0.96 / 1000), rel=0.15)
    other, (other_low, other_high) = difference(gold, sure(teacher), sure(student), TWO, "accuracy")
    assert (other, other_low) == (pytest.approx(-value), pytest.approx(-high, abs=0.5))
    assert other_high > 0
    assert difference(gold, sure(teacher), sure(teacher), TWO, "accuracy") == (0, (0, 0))


def test_agreement() -> None:
    assert agreement(sure([0, 1, 1, 0]), sure([0, 1, 0, 0]), TWO) == 75
    assert agreement(column([1, 2, 3]), column([1, 3, 2]), NUMBER) == pytest.approx(50)
    assert agreement(column([1, 2, 3]), column([10, 20, 30]), NUMBER) == pytest.approx(100)


def test_constant_predictions() -> None:
    gold = np.array([0, 1, 0, 1])
    assert majority_collapse(sure([1, 1, 1, 1]), TWO)
    assert not majority_collapse(sure([1, 0, 1, 1]), TWO)
    found = score(gold, sure([0, 0, 0, 0]), TWO, ["accuracy", "f1", "f1_macro", "matthews"])
    assert found == {"accuracy": 50, "f1": 0, "f1_macro": pytest.approx(100 / 3), "matthews": 0}
    assert score(gold.astype(np.float32), column([2, 2, 2, 2]), NUMBER) == {"pearson": 0, "spearman": 0}
    assert interval(gold.astype(np.float32), column([2, 2, 2, 2]), NUMBER, "pearson", draws=10) == (0, 0)
    assert agreement(column([2, 2]), column([1, 2]), NUMBER) == 0
    assert score(np.array([0, 0]), sure([0, 0]), TWO, ["f1", "f1_macro"]) == {"f1": 0, "f1_macro": 100}
    assert interval(np.array([0, 0]), sure([0, 0]), TWO, "f1", draws=10) == (0, 0)


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_examples_for_a_correlation(count: int) -> None:
    found = score(np.ones(count), np.full((count, 1), 3.0), NUMBER)
    assert found == {"pearson": 0, "spearman": 0}


@pytest.mark.parametrize(
    ("labels", "metrics", "line"),
    [
        (TWO, ["acuracy"], "did you mean 'accuracy'"),
        (TWO, ["pearson"], "not defined for classification"),
        (NUMBER, ["accuracy"], "not defined for regression"),
        (FOUR, ["f1"], "needs two classes"),
        (TWO, [], "no metric"),
    ],
)
def test_wrong_metrics_are_faults(labels: Labels, metrics: list[str], line: str) -> None:
    width = 1 if labels.regression else labels.count
    with pytest.raises(UserError, match=line):
        score(np.array([0, 1]), np.zeros((2, width)), labels, metrics)


def test_broken_outputs_are_faults() -> None:
    with pytest.raises(UserError, match="not finite for 1 of 2"):
        score(np.array([0, 1]), np.array([[np.nan, 0.0], [0.0, 1.0]]), TWO)
    with pytest.raises(UserError, match="no examples"):
        score(np.zeros(0), np.zeros((0, 2)), TWO)
    with pytest.raises(UserError, match="3 predictions"):
        score(np.array([0, 1]), np.zeros((3, 2)), TWO)
    with pytest.raises(UserError, match="needs 2 per example"):
        score(np.array([0, 1]), np.zeros((2, 3)), TWO)
