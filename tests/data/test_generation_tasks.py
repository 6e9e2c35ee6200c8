"""Named text generation tasks: their layouts in a data folder, in the hub's cache, and as GLUE has them for T5."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glue_slices import write_parquet, write_tsv

from stillery.data.schema.answer_texts import references_of
from stillery.data.schema.examples import Examples, columns_of
from stillery.data.tasks.glue_as_text import GLUE_FORMATS, glue_as_text, label_words
from stillery.data.tasks.load_task import (
    GENERATION_TASKS,
    TASKS,
    find_task,
    load_generation_task,
    load_generation_task_to_score,
    load_task,
)
from stillery.errors import UserError
from stillery.evaluation.text_metrics import label_accuracy

COMMIT = "111059ed9e5176e2f57f9128bc02913d5d31350a"
TRIPLES = [["Newberry College", "NICKNAME", "Wolves"], ["Newberry College", "STATE", "South Carolina"]]
LINE = "<H> Newberry College <R> NICKNAME <T> Wolves <H> Newberry College <R> STATE <T> South Carolina"
CITY = [["Aarhus_Airport", "cityServed", '"Aarhus, Denmark"']]


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path) -> Path:
    """The hub's cache, empty, and no network."""
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


def captions(part, count, languages=("en", "de", "fr")):
    return {name: [f"{part} {name} {row}" for row in range(count)] for name in languages}


def test_multi30k(tmp_path):
    for part, count in (("train", 5), ("dev", 2), ("test_2016_flickr", 3)):
        write_parquet(tmp_path / "multi30k" / f"{part}.parquet", **captions(part, count), idx=list(range(count)))
    german, french = (load_generation_task(f"multi30k-en-{language}", tmp_path) for language in ("de", "fr"))
    assert (len(german.train), len(german.dev), len(german.test)) == (5, 2, 3)
    assert german.train["source"][4].as_py() == french.train["source"][4].as_py() == "train en 4"
    assert (german.train["target"][4].as_py(), french.train["target"][4].as_py()) == ("train de 4", "train fr 4")
    assert german.train.ids[4] == "multi30k-en-de-train-5" and "references" not in german.train.columns
    assert german.metrics == ("bleu", "chrf") and german.source == "multi30k-en-de"
    assert "multi30k-en-de is read from multi30k in the data folder (train.parquet" in german.note
    scored = load_generation_task_to_score("multi30k-en-fr", data_dir=tmp_path)
    assert scored.split == "test" and references_of(scored.examples)[2] == ["test_2016_flickr fr 2"]
    assert load_generation_task_to_score("multi30k-en-fr", "dev", tmp_path).examples.ids == french.dev.ids


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "tsv"])
def test_wmt16(tmp_path, suffix):
    folder = tmp_path / "wmt16-en-ro"
    rows = [{"en": f"english {row}", "ro": f"romanian {row}"} for row in range(20)]
    for part in ("train", "test"):
        if suffix == "parquet":
            write_parquet(folder / f"{part}.parquet", translation=rows)
        elif suffix == "tsv":
            write_tsv(folder / f"{part}.tsv", [("en", "ro"), *(tuple(row.values()) for row in rows)])
        else:
            folder.mkdir(exist_ok=True)
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = load_generation_task("wmt16-en-ro", tmp_path)
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (18, 2, 20)
    assert "no dev file: 2 of the train rows are held out" in parts.note
    row = parts.dev.ids[0].removeprefix("wmt16-en-ro-train-")
    assert parts.dev["source"][0].as_py() == f"english {int(row) - 1}"
    assert parts.dev["target"][0].as_py() == f"romanian {int(row) - 1}"
    assert load_generation_task_to_score("wmt16-en-ro", "dev", tmp_path).examples.fingerprint == parts.dev.fingerprint
    assert load_generation_task_to_score("wmt16-en-ro", "train", tmp_path).examples.ids == parts.train.ids


def test_dart_with_and_without_train(tmp_path):
    columns = {
        "tripleset": [json.dumps(TRIPLES), json.dumps(TRIPLES[:1]), json.dumps(TRIPLES[1:]), "[]"],
        "references": [["one", " ", "two"], ["three"], ["", ""], ["four"]],
        "source": ["WikiSQL_decl_sents"] * 4,
    }
    for part in ("dev", "test"):
        write_parquet(tmp_path / "dart" / f"{part}.parquet", **columns)
    found = load_generation_task_to_score("dart", data_dir=tmp_path)
    assert found.split == "test" and "test without 2 rows that lack a source or a target" in found.source
    scored = found.examples
    assert scored.ids == ("dart-test-1", "dart-test-2") and scored["source"][0].as_py() == LINE
    assert references_of(scored) == [["one", "two"], ["three"]] and scored["target"].to_pylist() == ["one", "three"]
    with pytest.raises(UserError, match=r"dart: no train split in dart in the data folder.*stillery tasks fetch dart"):
        load_generation_task("dart", tmp_path)
    with pytest.raises(UserError, match=r"dart: no train split in .*; choose from dev, test"):
        load_generation_task_to_score("dart", "train", tmp_path)
    write_parquet(tmp_path / "dart" / "train.parquet", **columns)
    parts = load_generation_task("dart", tmp_path)
    assert parts.train.ids == ("dart-train-1#1", "dart-train-1#2", "dart-train-2#1")
    assert parts.train["target"].to_pylist() == ["one", "two", "three"]
    assert "references" in parts.dev.columns and "train without 2 rows that lack a source or a target" in parts.note


def test_webnlg_writes_names_as_words(tmp_path):
    for part in ("train", "dev", "test"):
        write_parquet(tmp_path / "webnlg" / f"{part}.parquet", tripleset=[json.dumps(CITY)], references=[["a", "b"]])
    parts = load_generation_task("webnlg", tmp_path)
    assert parts.dev["source"].to_pylist() == ["<H> Aarhus Airport <R> city Served <T> Aarhus, Denmark"]
    assert len(parts.train) == 2 and references_of(parts.test) == [["a", "b"]]


def put(hub, repo, name, rows, revision):
    folder = hub / f"datasets--{repo.replace('/', '--')}"
    path = folder / "snapshots" / COMMIT / name
    write_parquet(path, **{key: [row[key] for row in rows] for key in rows[0]})
    pointer = folder / "refs" / revision
    pointer.parent.mkdir(parents=True, exist_ok=True)
    pointer.write_text(COMMIT)


ON_THE_HUB = {
    "dart": (
        "default/{}/0000.parquet",
        [{"tripleset": TRIPLES, "annotations": {"source": ["x", "y"], "text": ["one", "two"]}}],
        (LINE, ["one", "two"]),
    ),
    "webnlg": (
        "en/{}/0000.parquet",
        [
            {"input": ["Aarhus_Airport | cityServed | Aarhus"], "target": "one", "references": ["one", "two"]},
            {"input": ["Aarhus_Airport | cityServed | Aarhus"], "target": "alone", "references": []},
        ],
        ("<H> Aarhus Airport <R> city Served <T> Aarhus", ["one", "two"]),
    ),
    "wmt16-en-ro": (
        "ro-en/{}-00000-of-00001.parquet",
        [{"translation": {"ro": "apa", "en": "water"}}],
        ("water", ["apa"]),
    ),
    "multi30k-en-de": ("default/{}/0000.parquet", [{"en": "water", "de": "Wasser"}], ("water", ["Wasser"])),
}


@pytest.mark.parametrize("name", ON_THE_HUB)
def test_the_hubs_layouts(hub, name):
    form, rows, (source, right) = ON_THE_HUB[name]
    task = GENERATION_TASKS[name]
    for split in ("train", "validation", "test"):
        put(hub, task.hub.repo, form.format(split), rows, task.hub.revision)
    scored = load_generation_task_to_score(name).examples
    assert (scored["source"][0].as_py(), references_of(scored)[0]) == (source, right)
    if name == "webnlg":
        assert references_of(scored)[1] == ["alone"]
    assert f"({task.hub.repo}, revision 111059e)" in load_generation_task(name).note


def test_what_is_wrong_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no text generation task 'drat'; did you mean 'dart'"):
        load_generation_task("drat")
    with pytest.raises(UserError, match="dart is a text generation task; classifiers are for cola"):
        load_task("dart")
    with pytest.raises(UserError, match="no split 'tset'"):
        load_generation_task_to_score("dart", "tset")
    with pytest.raises(UserError) as error:
        load_generation_task("multi30k-en-fr", tmp_path)
    assert error.value.lines == (
        f"multi30k-en-fr: no data found ({tmp_path} has no folder Multi30k or multi30k with its files): "
        "give --data-dir DIR with DIR/multi30k/train.parquet",
    )
    folder = tmp_path / "multi30k"
    write_parquet(folder / "train.parquet", **captions("train", 3, ("en", "de")))
    with pytest.raises(UserError, match=r"train.parquet: multi30k-en-fr needs a column 'fr'; the file has en, de"):
        load_generation_task("multi30k-en-fr", tmp_path)
    write_parquet(folder / "train.parquet", en=["x"], fr=[["y"]])
    with pytest.raises(UserError, match=r"train.parquet: column 'fr' holds list<.*> values, not text"):
        load_generation_task("multi30k-en-fr", tmp_path)
    write_parquet(
        tmp_path / "dart" / "test.parquet", tripleset=[json.dumps(TRIPLES), '[["a", "b"]]'], references=["x", "y"]
    )
    with pytest.raises(UserError, match=r"test.parquet, row 2: column 'tripleset' is no list of triples"):
        load_generation_task_to_score("dart", data_dir=tmp_path)
    write_parquet(tmp_path / "dart" / "test.parquet", tripleset=["[]"], references=[["x"]])
    with pytest.raises(UserError, match="no row has a source and a target"):
        load_generation_task_to_score("dart", data_dir=tmp_path)
    write_parquet(tmp_path / "dart" / "test.parquet", text=["x"])
    with pytest.raises(UserError, match="dart needs the columns tripleset and references; the file has text"):
        load_generation_task_to_score("dart", data_dir=tmp_path)


def test_names_and_prefixes():
    assert list(GENERATION_TASKS) == ["dart", "webnlg", "wmt16-en-ro", "multi30k-en-de", "multi30k-en-fr"]
    assert not set(GENERATION_TASKS) & set(TASKS)
    assert GENERATION_TASKS["wmt16-en-ro"].prefix == "translate English to Romanian: "
    assert GENERATION_TASKS["multi30k-en-fr"].hub is None and len(GENERATION_TASKS) == 5


def glue(pairs, labels):
    return Examples(
        ids=tuple(f"e{row}" for row in range(len(labels))),
        columns=columns_of(
            text=pa.array([f"first {row}" for row in range(len(labels))], pa.large_string()),
            text_pair=pa.array([f"second {row}" for row in range(len(labels))], pa.large_string()) if pairs else None,
        ),
        labels=np.asarray(labels),
        source="glue dev",
    )


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("cola", "cola sentence: first 1", ("unacceptable", "acceptable")),
        ("sst2", "sst2 sentence: first 1", ("negative", "positive")),
        ("mrpc", "mrpc sentence1: first 1 sentence2: second 1", ("not_equivalent", "equivalent")),
        ("qqp", "qqp question1: first 1 question2: second 1", ("not_duplicate", "duplicate")),
        ("mnli", "mnli hypothesis: second 1 premise: first 1", ("entailment", "neutral", "contradiction")),
        ("qnli", "qnli question: first 1 sentence: second 1", ("entailment", "not_entailment")),
        ("rte", "rte sentence1: first 1 sentence2: second 1", ("entailment", "not_entailment")),
    ],
)
def test_glue_as_text(name, source, words):
    task = find_task(name)
    classes = list(range(len(words)))
    some = glue(task.columns[0][1] is not None, classes)
    text = glue_as_text(task, some)
    assert text["source"][1].as_py() == source and tuple(text["target"].to_pylist()) == words == label_words(task)
    assert (text.ids, text.source, list(text.columns)) == (some.ids, "glue dev", ["source", "target"])
    assert label_accuracy(text["target"].to_pylist(), label_words(task)).tolist() == classes


def test_scores_as_text():
    task = find_task("stsb")
    scores = np.array([0.0, 0.1, 0.3, 0.5, 2.6, 2.57, 3.0, 4.9, 5.0], dtype=np.float32)
    text = glue_as_text(task, glue(True, scores))
    assert text["source"][0].as_py() == "stsb sentence1: first 0 sentence2: second 0"
    # Halves go to the even multiple of 0.2.
    assert text["target"].to_pylist() == ["0.0", "0.0", "0.4", "0.4", "2.6", "2.6", "3.0", "4.8", "5.0"]
    words = label_words(task)
    assert (len(words), words[0], words[13], words[-1]) == (26, "0.0", "2.6", "5.0")
    back = label_accuracy(text["target"].to_pylist(), words) / 5
    assert np.abs(back - scores).max() <= 0.1 + 1e-6


def test_glue_without_labels_and_other_tasks():
    some = glue(True, [0, 1])
    bare = Examples(ids=some.ids, columns=some.columns, source="t")
    assert glue_as_text(find_task("rte"), bare).get("target") is None
    assert set(GLUE_FORMATS) == {name for name, task in TASKS.items() if task.submissions}
    with pytest.raises(UserError, match="paws has no form as text to text; T5 has cola, sst2"):
        glue_as_text(find_task("paws"), some)
    with pytest.raises(UserError, match="imdb has no form"):
        label_words(find_task("imdb"))
