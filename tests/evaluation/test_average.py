"""Averages: the rows the papers print come out of the numbers they print."""

from __future__ import annotations

import pytest

from stillery.data.tasks.load_task import TASKS
from stillery.errors import UserError
from stillery.evaluation.average import STYLES, average

# Each printed number is off by up to 0.05, so that their mean and the printed mean may differ by up to 0.1.
PRINTED = 0.1

RAIL_KD = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
ILD_RTC = ("sst2", "mrpc", "qqp", "mnli", "mnli-mm", "qnli", "rte")
CR_ILD = ("cola", "mnli", "sst2", "qnli", "mrpc", "qqp", "rte", "stsb")


def every_metric(value: float) -> dict[str, float]:
    return dict.fromkeys(("accuracy", "f1", "matthews", "pearson", "spearman"), value)


def row(tasks: tuple[str, ...], values: str) -> dict[str, dict[str, float]]:
    return {task: every_metric(float(value)) for task, value in zip(tasks, values.split(), strict=True)}


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        # Table 1.
        ("93.2 87.9 71.1 83.4 83.6 90.7 68.9", 82.7),
        ("92.3 87.6 69.6 81.6 81.3 88.8 54.1", 79.3),
        ("92.0 85.4 71.3 82.2 81.6 88.0 65.0", 80.8),
        ("89.8 82.7 69.8 79.9 78.7 84.7 62.9", 78.3),
        # Table 2.
        ("90.4 87.3 87.1 81.5 81.5 87.1 65.7", 82.9),
        ("91.2 89.8 88.2 82.7 83.1 88.3 67.1", 84.3),
        ("88.4 84.8 85.9 78.4 78.4 85.4 63.2", 80.6),
        # Table 5.
        ("80.4 81.2 76.4 65.2 66.7 77.1 60.6", 72.5),
    ],
)
def test_ild_rtc_counts_mnli_twice(values, printed):
    scores = row(ILD_RTC, values)
    assert average(scores, "ild-rtc").value == pytest.approx(printed, abs=0.07)
    # The mean with MNLI as one column is another number.
    scores["mnli"] = every_metric((scores["mnli"]["accuracy"] + scores.pop("mnli-mm")["accuracy"]) / 2)
    once = average(scores, "ild-rtc")
    assert once.missing == ("mnli-mm",) and abs(once.value - printed) > 0.03


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        # Table 1.
        ("59.9 84.6 92.2 91.5 90.9 91.2 70.8 89.5", 83.8),
        ("36.7 82.1 90.0 88.9 89.2 90.4 65.7 88.5", 78.9),
        ("31.4 81.3 89.2 86.7 87.1 90.2 57.2 84.8", 76.0),
        ("40.4 82.3 91.1 90.1 89.6 90.7 67.9 89.0", 80.1),
        ("55.6 83.9 92.7 91.4 90.5 91.2 70.2 88.8", 83.0),
    ],
)
def test_cr_ild_is_the_plain_mean_of_eight(values, printed):
    found = average(row(CR_ILD, values), "cr-ild")
    assert found.value == pytest.approx(printed, abs=PRINTED) and len(found.columns) == 8


def test_cr_ild_under_label_noise_leaves_stsb_out():
    found = average(row(CR_ILD[:-1], "39.6 81.2 89.1 86.0 82.3 86.9 61.8"), "cr-ild")
    assert found.value == pytest.approx(75.3, abs=PRINTED)
    assert found.missing == ("stsb",)


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        # Table 2, test rows.
        ("52.0 92.9 87.8 82.3 88.9 84.3 90.7 66.0", 81.0),
        ("50.7 91.7 87.2 80.4 88.3 81.4 88.4 57.6", 78.6),
        ("50.6 92.0 87.2 81.7 89.1 82.7 89.0 60.6", 79.5),
        ("50.6 92.5 88.2 81.4 88.9 82.8 89.3 61.3", 79.8),
    ],
)
def test_rail_kd_counts_mnli_twice_in_table_2(values, printed):
    scores = row(RAIL_KD, values)
    # One number is printed for both parts.
    assert average(scores | {"mnli-mm": scores["mnli"]}, "rail-kd").value == pytest.approx(printed, abs=PRINTED)
    assert abs(average(scores, "glue").value - printed) > 0.3


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        # Table 3, dev rows and a test row.
        ("68.1 96.4 91.9 92.3 91.5 90.1 94.6 86.3", 88.9),
        ("56.6 93.1 89.5 87.2 91.0 84.6 91.3 65.7", 82.4),
        ("65.3 93.7 91.4 89.4 92.0 84.8 92.0 72.9", 85.2),
        ("50.2 89.4 88.9 84.5 92.3 84.0 90.2 62.7", 80.3),
    ],
)
def test_rail_kd_counts_mnli_once_in_table_3(values, printed):
    assert average(row(RAIL_KD, values), "glue").value == pytest.approx(printed, abs=PRINTED)


@pytest.mark.parametrize(
    ("values", "printed"), [("70.3 43.3 84.6", 66.0), ("68.7 36.5 81.3", 62.2), ("68.7 43.7 85.0", 65.8)]
)
def test_out_of_domain(values, printed):
    found = average(row(("scitail", "paws", "imdb"), values), "out-of-domain")
    assert found.value == pytest.approx(printed, abs=PRINTED)


def test_two_metrics_are_one_column():
    scores = {
        "mrpc": {"f1": 90.0, "accuracy": 80.0},
        "stsb": {"pearson": 70.0, "spearman": 72.0},
        "mnli": {"accuracy": 60.0},
        "mnli-mm": {"accuracy": 62.0},
    }
    found = average(scores, "glue")
    assert found.columns == {"mrpc": 85, "stsb": 71, "mnli": 61}
    assert found.value == pytest.approx((85 + 71 + 61) / 3)
    assert set(found.missing) == {"cola", "sst2", "qqp", "qnli", "rte"}
    assert average(scores, "cr-ild").columns == {"mrpc": 90, "stsb": 72, "mnli": 60}
    assert average({}, "glue").value is None


def test_styles_ask_for_metrics_the_tasks_have():
    for style in STYLES.values():
        for column in style.columns:
            for task in column.sets:
                assert set(column.metrics) <= set(TASKS[task.removesuffix("-mm")].metrics)


def test_what_is_missing_is_said():
    with pytest.raises(UserError, match=r"mrpc: no f1 among its metrics \(accuracy, f1_macro\)"):
        average({"mrpc": {"accuracy": 80.0, "f1_macro": 70.0}}, "cr-ild")
    with pytest.raises(UserError, match="no style 'gleu' of averages; did you mean 'glue'"):
        average({}, "gleu")
