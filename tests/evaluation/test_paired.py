"""Paired differences, beside scipy's bootstrap, cases by hand, and the metrics they are differences of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn.metrics import matthews_corrcoef

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.evaluation import paired
from stillery.evaluation.measures import measured
from stillery.evaluation.metrics import score
from stillery.evaluation.recorded import Recorded, measures, read_predictions

RANDOM = np.random.default_rng(3)
GOLD = RANDOM.integers(0, 3, 300)
GOOD, BAD = (np.where(RANDOM.random(300) < share, GOLD, RANDOM.integers(0, 3, 300)) for share in (0.8, 0.7))


def test_difference_of_accuracies_beside_scipys_paired_bootstrap() -> None:
    def apart(ours, theirs, axis):
        return 100 * (ours.mean(axis=axis) - theirs.mean(axis=axis))

    right = [(guess == GOLD).astype(float) for guess in (GOOD, BAD)]
    known = stats.bootstrap(right, apart, paired=True, method="percentile", n_resamples=20_000, rng=1)
    ours, theirs = (measured(GOLD, guess, "accuracy") for guess in (GOOD, BAD))
    value, (low, high) = paired.difference(ours, theirs, 300, draws=20_000)
    assert value == pytest.approx(apart(*right, axis=-1))
    assert low == pytest.approx(known.confidence_interval.low, abs=0.35)
    assert high == pytest.approx(known.confidence_interval.high, abs=0.35)
    assert 4 < high - low < 20


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro", "matthews"])
def test_equal_predictions_differ_by_nothing(metric: str) -> None:
    ours, theirs = (measured(GOLD, GOOD, metric) for _ in range(2))
    assert paired.difference(ours, theirs, 300) == (0, (0, 0))


def test_a_case_by_hand() -> None:
    """Of four examples one model has all right and the other none: whatever is drawn, they are 100 apart."""
    gold = np.array([0, 1, 0, 1])
    ours, theirs = (measured(gold, guess, "accuracy") for guess in (gold, 1 - gold))
    assert paired.difference(ours, theirs, 4) == (100, (100, 100))
    # One example of two decides: it is drawn never, once or twice, a quarter, a half and a quarter of the time.
    gold = np.array([0, 1])
    ours, theirs = (measured(gold, guess, "accuracy") for guess in (gold, np.array([0, 0])))
    drawn = np.concatenate([ours.scores(times) - theirs.scores(times) for times in paired.resamples(2, draws=4000)])
    assert {share: np.mean(drawn == share).round(1) for share in (0, 50, 100)} == {
        0: pytest.approx(0.25, abs=0.06), 50: 0.5, 100: pytest.approx(0.25, abs=0.06),
    }  # fmt: skip


def test_resamples_draw_each_example_as_often_and_are_the_same_again() -> None:
    drawn = np.concatenate(list(paired.resamples(50, draws=300, seed=2)))
    assert drawn.shape == (300, 50) and (drawn.sum(axis=1) == 50).all()
    assert drawn.mean() == 1 and drawn.var() == pytest.approx(49 / 50, rel=0.05)
    assert np.array_equal(drawn, np.concatenate(list(paired.resamples(50, draws=300, seed=2))))
    assert not np.array_equal(drawn, np.concatenate(list(paired.resamples(50, draws=300, seed=3))))


@pytest.mark.parametrize("right", [0, 1, 30, 263])
def test_wilsons_interval_is_scipys(right: int) -> None:
    known = stats.binomtest(right, 263).proportion_ci(0.95, method="wilson")
    assert paired.wilson(right, 263) == pytest.approx((100 * known.low, 100 * known.high), abs=1e-9)


def read(path: Path, **columns: object) -> Recorded:
    names = [f"row{place}" for place in range(len(next(iter(columns.values()))))]
    pq.write_table(pa.table({"id": names} | columns), path / "predictions.parquet")
    return read_predictions(path / "predictions.parquet")


def values(found: Recorded, metric: str, classes: tuple[str, ...] = ()) -> list[float]:
    return [paired.value(some[0], len(found)) for some in measures([found], metric, classes)]


def test_f1_is_of_either_class(tmp_path: Path) -> None:
    gold, guess = np.array([1, 1, 1, 0, 0, 1]), np.array([1, 1, 0, 0, 1, 1])
    named = np.array(["no", "yes"])
    found = read(tmp_path, label=named[gold], prediction=named[guess])
    first, second = (
        score(gold, np.eye(2)[guess], Labels(names=("no", "yes"), positive=name), ["f1"])["f1"]
        for name in ("yes", "no")
    )
    assert values(found, "f1", ("no", "yes")) == pytest.approx([first, second])
    assert values(found, "f1", ("yes", "no")) == pytest.approx([second, first])
    assert values(found, "bleu") == [] and values(found, "f1_strict") == []


def test_sets_count_labels_that_nobody_has(tmp_path: Path) -> None:
    found = read(tmp_path, label=[["a"], ["a", "b"], []], prediction=[["a"], ["a"], []])
    assert values(found, "accuracy") == pytest.approx([200 / 3])
    assert values(found, "f1_macro", ("a", "b")) == [50]
    assert values(found, "f1_macro", ("a", "b", "c", "d")) == [25]


def test_texts_that_name_classes(tmp_path: Path) -> None:
    """One that names none is wrong; of two classes it counts as the other."""
    right = ["yes", "yes", "no", "no"]
    found = read(tmp_path, source=list("abcd"), references=[[one] for one in right], output=["Yes ", "?", "no", "yes"])
    assert values(found, "accuracy") == [50]
    guess = np.array([1, 0, 0, 1])
    expected = 100 * matthews_corrcoef([1, 1, 0, 0], guess)
    assert values(found, "matthews") == pytest.approx([expected])
    assert values(found, "pearson") == []


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    found = read(tmp_path, label=["a", "b", "a"], prediction=["a", "a", "b"])
    turned = Recorded(does=found.does, ids=found.ids[::-1], right=found.right[::-1], given=found.given[::-1])
    again = turned.in_order_of(found.ids)
    assert again.given.equals(found.given) and again.right.equals(found.right) and again.ids.equals(found.ids)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["a"]}, "not the columns that a run writes (id, text)"),
        ({"label": ["a"], "prediction": pa.array([None], pa.string())}, "some are missing"),
        ({"label": pa.array([], pa.string()), "prediction": pa.array([], pa.string())}, "holds no predictions"),
    ],
)
def test_files_that_no_run_has_written(tmp_path: Path, columns: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as raised:
        read(tmp_path, **columns)
    assert words in str(raised.value)
