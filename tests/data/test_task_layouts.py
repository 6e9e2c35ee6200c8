"""Named tasks in a data folder: GLUE's official files, Parquet files, the hub's names."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from glue_slices import write_official, write_parquet, write_tsv

from stillery.data.schema.labels import Labels
from stillery.data.tasks.load_task import TASKS, load_task, load_task_test, load_task_to_score
from stillery.errors import UserError

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def glue(tmp_path):
    return write_official(tmp_path)


@pytest.mark.parametrize("name", GLUE)
def test_official_files(glue, name):
    parts = load_task(name, data_dir=glue)
    assert (len(parts.train), len(parts.dev), parts.test) == (6, 3, None)
    assert parts.source == name and parts.labels == TASKS[name].labels and parts.metrics == TASKS[name].metrics
    assert f"{name} is read from {TASKS[name].folders[0]} in the data folder" in parts.note
    assert parts.train.ids == tuple(f"{name}-train-{row}" for row in range(1, 7))
    assert str(parts.train["text"].type) == "large_string"
    assert ("text_pair" in parts.train.columns) == (name not in ("cola", "sst2"))


@pytest.mark.parametrize(
    ("name", "text", "pair", "labels"),
    [
        ("cola", 'train "sentence 0', None, [0, 1, 0, 1, 0, 1]),
        ("sst2", '" train film 0 ', None, [0, 1, 0, 1, 0, 1]),
        ("mrpc", 'train "0', "other", [0, 1, 0, 1, 0, 1]),
        ("stsb", "train a 0", "b 0", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        ("qqp", "train what is 0?", 'why "0?', [0, 1, 0, 1, 0, 1]),
        ("mnli", 'train premise "0', "train hypothesis 0", [2, 0, 1, 2, 0, 1]),
        ("qnli", "train 0", "b 0", [0, 1, 0, 1, 0, 1]),
        ("rte", "train 0", "b 0", [0, 1, 0, 1, 0, 1]),
    ],
)
def test_official_columns_quotes_and_labels(glue, name, text, pair, labels):
    train = load_task(name, data_dir=glue).train
    assert train["text"][0].as_py() == text
    assert (train["text_pair"][0].as_py() if "text_pair" in train.columns else None) == pair
    assert train.labels.tolist() == labels
    assert train.labels.dtype == (np.float32 if name == "stsb" else np.int64)


def test_mnlis_mismatched_part_comes_along(glue):
    parts = load_task("mnli", data_dir=glue)
    assert parts.dev["text"][0].as_py() == 'matched premise "0'
    assert list(parts.more) == ["dev_mismatched"]
    assert parts.more["dev_mismatched"]["text"][0].as_py() == 'mismatched premise "0'
    assert parts.more["dev_mismatched"].ids[0] == "mnli-dev_mismatched-1"
    scored = load_task_to_score("mnli", TASKS["mnli"].labels, data_dir=glue)
    assert (scored.split, list(scored.more)) == ("dev", ["dev_mismatched"])
    alone = load_task_to_score("mnli", TASKS["mnli"].labels, "dev_mismatched", glue)
    assert alone.examples["text"][0].as_py() == 'mismatched premise "0' and not alone.more
    # A teacher's order holds for that part too.
    turned = load_task("mnli", Labels(names=("contradiction", "neutral", "entailment")), glue)
    assert turned.more["dev_mismatched"].labels.tolist() == [0, 2, 1]


def test_tests_without_labels_are_for_submissions_only(glue):
    parts = load_task("sst2", data_dir=glue)
    assert "test.tsv has no labels and is left out" in parts.note
    tests = load_task_test("mnli", glue)
    assert {name: len(examples) for name, examples in tests.items()} == {"MNLI-m": 4, "MNLI-mm": 4}
    assert tests["MNLI-mm"]["text"][0].as_py() == 'mismatched premise "0' and tests["MNLI-mm"].labels is None
    assert load_task_test("cola", glue)["CoLA"]["text"][3].as_py() == "cola test 3"
    with pytest.raises(UserError, match="rte: no test split in RTE in the data folder"):
        load_task_test("rte", glue)
    with pytest.raises(UserError, match="imdb has no leaderboard"):
        load_task_test("imdb", glue)


def test_broken_rows_are_left_out_and_counted(glue):
    path = glue / "QQP" / "train.tsv"
    text = path.read_text().replace("train what is 2?\t", "").replace('train what is 3?\twhy "3?\t1', " \t \t1")
    path.write_text(text)
    parts = load_task("qqp", data_dir=glue)
    assert parts.train.ids == ("qqp-train-1", "qqp-train-2", "qqp-train-5", "qqp-train-6")
    assert "train without 1 rows with too many or too few columns, 1 rows without a text" in parts.note
    path = glue / "MNLI" / "dev_matched.tsv"
    path.write_text(path.read_text().replace("contradiction\n", "-\n"))
    parts = load_task("mnli", data_dir=glue)
    assert parts.dev.ids == ("mnli-dev-2", "mnli-dev-3") and "dev without 1 rows without a label" in parts.note
    # The leaderboard counts rows, so none may go.
    path = write_tsv(glue / "SST-2" / "test.tsv", [("index", "sentence"), (0, "one"), (1,), (2, "")])
    with pytest.raises(UserError, match=r"test.tsv, row 2: too many or too few columns"):
        load_task_test("sst2", glue)
    write_tsv(path, [("index", "sentence"), (0, "one"), (1, "")])
    assert load_task_test("sst2", glue)["SST-2"]["text"].to_pylist() == ["one", ""]


def test_damaged_files_are_one_line(glue):
    (glue / "SST-2" / "dev.tsv").write_text("")
    with pytest.raises(UserError, match=r"dev.tsv: the file has no rows"):
        load_task("sst2", data_dir=glue)
    (glue / "SST-2" / "dev.tsv").write_bytes(b"sentence\tlabel\ngood\t1\nb\xe4d\t0\n")
    with pytest.raises(UserError, match=r"dev.tsv, row .* not UTF-8"):
        load_task("sst2", data_dir=glue)
    write_tsv(glue / "SST-2" / "dev.tsv", [("sentence", "label"), ("good", "great")])
    with pytest.raises(UserError, match="'great' is not known; known labels: negative, positive"):
        load_task("sst2", data_dir=glue)
    write_tsv(glue / "SST-2" / "dev.tsv", [("review", "label"), ("good", "1")])
    with pytest.raises(UserError, match="sst2 needs the columns sentence; the file has review, label"):
        load_task("sst2", data_dir=glue)
    write_tsv(glue / "RTE" / "train.tsv", [("sentence1", "sentence2", "label"), ("a", "b", 1), ("c", "d", 1)])
    with pytest.raises(UserError, match="all labels are the same"):
        load_task("rte", data_dir=glue)


def test_the_first_publication_of_mrpc(tmp_path):
    head = ("\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    folder = tmp_path / "MRPC"
    write_tsv(folder / "msr_paraphrase_train.txt", [head, *((r % 2, r, 9 + r, f'a "{r}', f"b {r}") for r in range(6))])
    write_tsv(folder / "msr_paraphrase_test.txt", [head, (1, 70, 71, "x", "y"), (0, 72, 73, "v", "w")])
    parts = load_task("mrpc", data_dir=tmp_path)
    assert (len(parts.train) + len(parts.dev), len(parts.test)) == (6, 2) and "no dev file" in parts.note
    write_tsv(folder / "dev_ids.tsv", [(1, 10), (4, 13)])
    parts = load_task("mrpc", data_dir=tmp_path)
    assert parts.dev["text"].to_pylist() == ['a "1', 'a "4'] and parts.dev.labels.tolist() == [1, 0]
    assert parts.train.ids == tuple(f"mrpc-train-{row}" for row in (1, 3, 4, 6))
    assert parts.test.labels.tolist() == [1, 0]
    assert load_task_to_score("mrpc", TASKS["mrpc"].labels, data_dir=tmp_path).split == "test"


def test_parquet_folders(tmp_path):
    texts = [f"film {row}" for row in range(20)]
    write_parquet(tmp_path / "sst2" / "train.parquet", sentence=texts, label=[0, 1] * 10, idx=range(20))
    write_parquet(tmp_path / "sst2" / "dev.parquet", sentence=["a", "b"], label=[1, 0])
    write_parquet(tmp_path / "sst2" / "test.parquet", sentence=["c", "d"], label=[-1, -1])
    parts = load_task("sst2", data_dir=tmp_path)
    assert (len(parts.train), parts.dev.labels.tolist(), parts.test) == (20, [1, 0], None)
    assert "sst2 in the data folder (train.parquet, dev.parquet, test.parquet)" in parts.note
    assert load_task_test("sst2", tmp_path)["SST-2"]["text"].to_pylist() == ["c", "d"]
    # Labels that are there make it a test to score on.
    write_parquet(tmp_path / "sst2" / "test.parquet", sentence=["c", "d"], label=[1, 1])
    assert load_task("sst2", data_dir=tmp_path).test.labels.tolist() == [1, 1]
    write_parquet(tmp_path / "stsb" / "train.parquet", sentence1=texts, sentence2=texts, label=np.arange(20) / 4)
    write_parquet(tmp_path / "stsb" / "test.parquet", sentence1=["a"], sentence2=["b"], label=[-1.0])
    parts = load_task("stsb", data_dir=tmp_path)
    assert parts.test is None and parts.train.labels.dtype == np.float32


def test_no_dev_file_and_no_train_file(tmp_path):
    questions = [f"what is {row}?" for row in range(40)]
    write_parquet(
        tmp_path / "qqp" / "train_subset.parquet", question1=questions, question2=questions, label=[0, 1] * 20
    )
    parts = load_task("qqp", data_dir=tmp_path)
    assert (len(parts.train), len(parts.dev)) == (36, 4)
    assert "no dev file: 4 of the train rows are held out as the dev split" in parts.note
    scored = load_task_to_score("qqp", TASKS["qqp"].labels, data_dir=tmp_path)
    assert scored.examples.ids == parts.dev.ids
    assert load_task_to_score("qqp", TASKS["qqp"].labels, "train", tmp_path).examples.ids == parts.train.ids
    write_parquet(tmp_path / "qnli" / "dev.parquet", question=["q", "r"], sentence=["s", "t"], label=[0, 1])
    assert len(load_task_to_score("qnli", TASKS["qnli"].labels, data_dir=tmp_path).examples) == 2
    with pytest.raises(UserError, match=r"no train split in qnli in the data folder .* scored on it but not trained"):
        load_task("qnli", data_dir=tmp_path)
    with pytest.raises(UserError, match=r"qnli: no test split with labels in .* choose from dev"):
        load_task_to_score("qnli", TASKS["qnli"].labels, "test", tmp_path)
    with pytest.raises(UserError, match="no split 'tset'; did you mean 'test'"):
        load_task_to_score("qnli", TASKS["qnli"].labels, "tset", tmp_path)


def test_the_hubs_names_and_shards(tmp_path):
    folder = tmp_path / "mnli"
    for number, rows in ((1, range(3, 6)), (0, range(3))):
        columns = {"premise": [f"p{row}" for row in rows], "hypothesis": [f"h{row}" for row in rows]}
        write_parquet(folder / f"train-0000{number}-of-00002.parquet", **columns, label=[row % 3 for row in rows])
    for part in ("matched", "mismatched"):
        write_parquet(folder / f"validation_{part}-00000-of-00001.parquet", premise=[part], hypothesis=["h"], label=[1])
    parts = load_task("mnli", data_dir=tmp_path)
    assert parts.train["text"].to_pylist() == ["p0", "p1", "p2", "p3", "p4", "p5"]
    assert parts.train.ids[-1] == "mnli-train-6"
    assert (parts.dev["text"][0].as_py(), parts.more["dev_mismatched"]["text"][0].as_py()) == ("matched", "mismatched")
    (folder / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(UserError, match="1 of the 2 files of train are there"):
        load_task("mnli", data_dir=tmp_path)


def test_out_of_domain_folders(tmp_path):
    write_tsv(tmp_path / "SciTail" / "scitail_1.0_test.tsv", [('p "1', "h 1", "entails"), ("p 2", "h 2", "neutral")])
    mnli = Labels(names=("contradiction", "neutral", "entailment"))
    scitail = load_task_to_score("scitail", mnli, data_dir=tmp_path)
    assert (scitail.split, scitail.examples.labels.tolist(), scitail.groups) == ("test", [0, 1], ((2,), (0, 1)))
    assert scitail.examples["text"][0].as_py() == 'p "1'
    assert scitail.note == "labels: entailment -> entails; contradiction, neutral -> neutral"
    assert scitail.labels == TASKS["scitail"].labels
    write_parquet(tmp_path / "paws_qqp" / "dev.parquet", sentence1=["a"], sentence2=["b"], label=[1])
    paws = load_task_to_score("paws", TASKS["qqp"].labels, data_dir=tmp_path)
    assert paws.note == "labels: not_duplicate -> not_paraphrase; duplicate -> paraphrase"
    write_parquet(tmp_path / "imdb" / "test.parquet", sentence=["fine", "dull"], label=[1, 0], rating=[8, 2])
    imdb = load_task_to_score("imdb", TASKS["sst2"].labels, data_dir=tmp_path)
    assert imdb.examples.labels.tolist() == [1, 0] and "imdb in the data folder" in imdb.source


def test_paws_as_its_script_writes_it(tmp_path):
    first = ("What is a 'b' ?", "Is caf\u00e9 open ?", "b'tis said", "two\tparts")
    written = (str(first[0].encode()), str(first[1].encode()), first[2], str(first[3].encode()))
    rows = [(row, text, f"b'other {row}'", row % 2) for row, text in enumerate(written)]
    assert written[0].startswith('b"') and r"\xc3" in written[1]
    write_tsv(tmp_path / "paws_qqp" / "dev.tsv", [("id", "sentence1", "sentence2", "label"), *rows])
    found = load_task_to_score("paws", TASKS["paws"].labels, data_dir=tmp_path).examples
    assert found["text"].to_pylist() == list(first)
    assert found["text_pair"].to_pylist() == [f"other {row}" for row in range(4)]
    assert found.labels.tolist() == [0, 1, 0, 1]
    # Other tasks' texts are what they are.
    write_tsv(tmp_path / "RTE" / "dev.tsv", [("index", "sentence1", "sentence2", "label"), (0, "b'x'", "y", 0)])
    rte = load_task_to_score("rte", TASKS["rte"].labels, data_dir=tmp_path).examples
    assert rte["text"].to_pylist() == ["b'x'"]


def test_official_files_come_first_and_may_be_packed(glue):
    packed = glue / "RTE" / "train.tsv.gz"
    packed.write_bytes(gzip.compress((glue / "RTE" / "train.tsv").read_bytes()))
    (glue / "RTE" / "train.tsv").unlink()
    write_parquet(glue / "RTE" / "train.parquet", sentence1=["x"], sentence2=["y"], label=[0])
    assert load_task("rte", data_dir=glue).train["text"][0].as_py() == "train 0"
