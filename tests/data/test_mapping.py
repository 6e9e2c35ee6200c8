"""Which outputs of a model mean which class of a task, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from glue_slices import write_parquet

from stillery.data.schema.label_mapping import map_labels, merged
from stillery.data.schema.labels import Labels
from stillery.data.tasks.load_task import TASKS, load_task
from stillery.errors import UserError
from stillery.evaluation.metrics import difference, interval, score


def mapped(names: tuple[str, ...], task: str):
    return map_labels(Labels(names=names), TASKS[task].labels, task, TASKS[task].merges)


@pytest.mark.parametrize(
    ("names", "task", "groups", "note"),
    [
        (("negative", "positive"), "sst2", ((0,), (1,)), "labels: negative -> negative; positive -> positive"),
        (("POSITIVE", "NEGATIVE"), "sst2", ((1,), (0,)), "labels: NEGATIVE -> negative; POSITIVE -> positive"),
        (("neg", "pos"), "imdb", ((0,), (1,)), "labels: neg -> negative; pos -> positive"),
        (("Not Entailment", "entailment"), "rte", ((1,), (0,)), None),
        (("not-entailment", "entailment"), "qnli", ((1,), (0,)), None),
        (("duplicate", "not_duplicate"), "paws", ((1,), (0,)), None),
        (("not_equivalent", "equivalent"), "qqp", ((0,), (1,)), None),
        (("entails", "neutral"), "scitail", ((0,), (1,)), None),
        (("entailment", "not_entailment"), "scitail", ((0,), (1,)), None),
        (("entailment", "neutral", "contradiction"), "scitail", ((0,), (1, 2)), None),
        (("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), "mnli", ((2,), (1,), (0,)), None),
        (
            ("contradiction", "entailment", "neutral"),
            "rte",
            ((1,), (0, 2)),
            "labels: entailment -> entailment; contradiction, neutral -> not_entailment",
        ),
        (
            ("LABEL_0", "LABEL_1"),
            "sst2",
            ((0,), (1,)),
            "labels by their numbers, as the model has no names for them: LABEL_0 -> negative; LABEL_1 -> positive",
        ),
        (("0", "1", "2"), "mnli", ((0,), (1,), (2,)), None),
        (("1", "0"), "cola", ((1,), (0,)), None),
    ],
)
def test_the_table(names, task, groups, note):
    found = mapped(names, task)
    assert found.groups == groups
    assert found.one_to_one == all(len(group) == 1 for group in groups)
    if note is not None:
        assert found.note == note
    for name in names:
        assert name in found.note


def test_scores_to_scores():
    assert map_labels(Labels(regression=True), TASKS["stsb"].labels, "stsb").groups == ((0,),)


@pytest.mark.parametrize(
    ("labels", "task", "said"),
    [
        (Labels(names=("a", "b")), "sst2", r"\(a, b\) are not those of sst2 \(negative, positive\)"),
        (Labels(names=("LABEL_0", "LABEL_1", "LABEL_2")), "scitail", r"LABEL_2\) are not those of scitail"),
        (Labels(names=("entailment", "not_entailment")), "mnli", r"are not those of mnli"),
        (Labels(names=("negative", "neutral", "positive")), "sst2", r"\(negative, neutral, positive\)"),
        (Labels(names=("pos", "positive", "negative")), "sst2", "pos, positive, negative"),
        (Labels(names=("neutral", "contradiction")), "rte", r"are not those of rte"),
        (Labels(regression=True), "sst2", r"\(a score\) are not those of sst2"),
        (Labels(names=("negative", "positive")), "stsb", r"are not those of stsb \(a score\)"),
        (Labels(names=("negative", "positive"), multi=True), "sst2", "are not those of sst2"),
        (Labels(names=tuple(map(str, range(12)))), "sst2", r"8, 9 and 2 more\)"),
    ],
)
def test_refusals_name_both_sets(labels, task, said):
    with pytest.raises(UserError, match=said) as error:
        map_labels(labels, TASKS[task].labels, task, TASKS[task].merges)
    assert len(error.value.lines) == 1


def test_the_best_output_wins():
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, 3))
    groups = ((2,), (0, 1))
    found = merged(logits, groups)
    assert found.shape == (200, 2)
    class_of = np.array([1, 1, 0])
    assert np.array_equal(found.argmax(axis=1), class_of[logits.argmax(axis=1)])


@pytest.fixture
def mrpc(tmp_path):
    for part, labels in (("train", [0, 1, 1, 0]), ("dev", [1, 1, 1, 0, 0])):
        texts = [f"{part} {row}" for row in range(len(labels))]
        write_parquet(tmp_path / "mrpc" / f"{part}.parquet", sentence1=texts, sentence2=texts, label=labels)
    return tmp_path


def test_a_teachers_order_keeps_the_positive_class(mrpc):
    plain = load_task("mrpc", data_dir=mrpc)
    swapped = load_task("mrpc", Labels(names=("paraphrase", "different")), mrpc)
    assert swapped.labels == Labels(names=("paraphrase", "different"), positive="paraphrase")
    assert np.array_equal(swapped.dev.labels, 1 - plain.dev.labels)
    assert "labels: different -> not_equivalent; paraphrase -> equivalent" in swapped.note
    guess = np.array([1, 1, 0, 0, 1])
    logits, turned = np.eye(2)[guess], np.eye(2)[1 - guess]
    worse = np.eye(2)[np.array([0, 1, 0, 1, 1])]
    for metric in ("f1", "accuracy", "matthews"):
        one = score(plain.dev.labels, logits, plain.labels, [metric])
        assert one == score(swapped.dev.labels, turned, swapped.labels, [metric])
        assert interval(plain.dev.labels, logits, plain.labels, metric) == pytest.approx(
            interval(swapped.dev.labels, turned, swapped.labels, metric), abs=8
        )
    assert score(plain.dev.labels, logits, plain.labels, ["f1"])["f1"] == pytest.approx(100 * 4 / 6)
    # Without the mark it would be the f1 of the other class.
    unmarked = Labels(names=swapped.labels.names)
    assert score(swapped.dev.labels, turned, unmarked, ["f1"])["f1"] == pytest.approx(100 * 2 / 4)
    ahead = difference(plain.dev.labels, logits, worse, plain.labels, "f1")[0]
    assert ahead == difference(swapped.dev.labels, turned, worse[:, ::-1], swapped.labels, "f1")[0] != 0


def test_several_classes_for_one_can_be_scored_but_not_taught(tmp_path):
    write_parquet(tmp_path / "rte" / "train.parquet", sentence1=["a", "b"], sentence2=["c", "d"], label=[0, 1])
    mnli = Labels(names=("entailment", "neutral", "contradiction"))
    with pytest.raises(
        UserError, match=r"3 labels \(entailment, neutral, contradiction\) cannot teach rte, which has 2"
    ):
        load_task("rte", mnli, tmp_path)
