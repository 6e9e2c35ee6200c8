"""A part may be several files; what belongs together is never guessed, and rows are named with their file."""

import gzip

import pytest
from reading import load, load_file, load_inputs, load_to_score

from stillery.data.schema.labels import Labels
from stillery.data.schema.split_folders import find_splits
from stillery.errors import UserError


def csv(path, count=4, start=0, header="text,label", label=("neg", "pos")):
    path.parent.mkdir(exist_ok=True)
    rows = [f"text {start + i},{label[i % len(label)]}" for i in range(count)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")


@pytest.mark.parametrize(
    ("names", "train"),
    [
        (["train.csv"], ["train.csv"]),
        (["Training.CSV.gz"], ["Training.CSV.gz"]),
        (["train-2.csv", "train-1.csv"], ["train-1.csv", "train-2.csv"]),
        (["train1.csv", "train_2.csv"], ["train1.csv", "train_2.csv"]),
        (["train-2023-12.csv", "train-2024-01.csv"], ["train-2023-12.csv", "train-2024-01.csv"]),
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"], None),
        (["train-00000-of-00001-a09b74b3ef9c3b56.parquet"], None),
        (["train_subset.parquet"], ["train_subset.parquet"]),
        (["train-clean-1.csv", "train-clean-2.csv"], ["train-clean-1.csv", "train-clean-2.csv"]),
        (["train/a.csv", "train/b.csv", "train/notes.md"], ["a.csv", "b.csv"]),
        # A plain name comes before one with more to it, which is said.
        (["train.csv", "train_subset.csv"], ["train.csv"]),
    ],
)
def test_the_files_of_a_part(tmp_path, names, train):
    touch(tmp_path, *names, "dev.csv")
    found = find_splits(tmp_path)
    assert [path.name for path in found.splits["train"]] == (train or names)
    assert not found.whole
    assert ("train_subset.csv" in found.note) == (len(names) > len(train or names) and train == ["train.csv"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train.csv", "train.jsonl"], r"more than one train file \(train.csv, train.jsonl\)"),
        (["train.csv", "train-1.csv"], "more than one train file"),
        (["train.csv", "train/a.csv"], r"more than one train file \(train.csv, train/\)"),
        (["train-1.csv", "train-2.csv", "train-extra.csv"], "more than one train file.*train-extra.csv"),
        (["train-1.csv", "train-1.jsonl"], "more than one train file"),
        (["train-1.csv", "train_01.csv"], "a number appears twice among the train files"),
        (["train-0-of-3.csv", "train-2-of-3.csv"], "2 train files, and their names say 3"),
        (["train.csv", "dev_matched.csv", "dev_mismatched.csv"], "dev file .dev_matched.csv, dev_mismatched.csv"),
        (["train.csv", "dev.csv", "validation.csv"], r"more than one dev file \(dev.csv, validation.csv\)"),
        (["dev.csv", "test.csv"], "no train file.*the folder has dev.csv, test.csv"),
        (["reviews_train.csv", "reviews_test.csv"], "look like splits of a task"),
        (["config.json", "vocab.txt"], "holds a model, not data"),
        (["README.txt"], "no data files"),
    ],
)
def test_what_is_not_clear_is_a_fault(tmp_path, names, said):
    touch(tmp_path, *names)
    with pytest.raises(UserError, match=said):
        find_splits(tmp_path)


def test_one_variant_of_another_part_is_taken(tmp_path):
    touch(tmp_path, "train.csv", "dev_matched.tsv", "test-2.csv", "test-1.csv")
    found = find_splits(tmp_path)
    assert {part: [path.name for path in some] for part, some in found.splits.items()} == {
        "train": ["train.csv"], "dev": ["dev_matched.tsv"], "test": ["test-1.csv", "test-2.csv"]
    }  # fmt: skip


def test_shards_are_one_part_with_ids_of_their_own(tmp_path):
    csv(tmp_path / "train-1.csv", 6)
    csv(tmp_path / "train-2.csv", 4, start=6)
    csv(tmp_path / "dev.csv", 2)
    parts = load(tmp_path)
    assert parts.train["text"].to_pylist() == [f"text {i}" for i in range(10)]
    assert parts.train.labels.tolist() == [0, 1] * 5
    assert parts.train.ids == tuple([f"train-1-{i}" for i in range(1, 7)] + [f"train-2-{i}" for i in range(1, 5)])
    assert parts.dev.ids == ("1", "2")
    assert load_to_score(tmp_path, split="train", labels=parts.labels).fingerprint == parts.train.fingerprint


def test_labels_are_those_of_all_files(tmp_path):
    csv(tmp_path / "train-1.csv", label=("b",))
    csv(tmp_path / "train-2.csv", label=("a",), start=9)
    assert load(tmp_path).labels.names == ("a", "b")


def test_a_folder_without_parts_is_one_set(tmp_path):
    folder = tmp_path / "logs"
    csv(folder / "logs-2024-01.csv", 30)
    csv(folder / "logs-2024-02.csv", 20, start=25)
    (folder / "README.txt").write_text("what this is\n")
    parts = load(folder)
    sizes = [len(part) for part in (parts.train, parts.dev, parts.test)]
    assert sum(sizes) == 50 and min(sizes) > 0
    assert f"the 2 files of logs are one set, split by texts: {sizes[0]} train" in parts.note
    said = [set(part["text"].to_pylist()) for part in (parts.train, parts.dev, parts.test)]
    assert not said[0] & said[1] and not said[0] & said[2] and not said[1] & said[2]
    assert len({name for part in (parts.train, parts.dev, parts.test) for name in part.ids}) == 50
    assert len(load_to_score(folder, labels=parts.labels)) == 50
    assert load_to_score(folder, split="dev", labels=parts.labels).fingerprint == parts.dev.fingerprint
    assert len(load_inputs(folder)) == 50


def test_row_faults_name_their_file(tmp_path):
    csv(tmp_path / "train-1.csv", 3)
    csv(tmp_path / "train-2.csv", 3, label=("neg", "pos", "neutral"))
    csv(tmp_path / "dev.csv", 2)
    with pytest.raises(UserError, match=r"train-2.csv, row 3: the label 'neutral'"):
        load(tmp_path, labels=Labels(names=("neg", "pos")))
    (tmp_path / "train-1.csv").write_text("text,label\na,neg\n,pos\n")
    (tmp_path / "train-2.csv").write_text("text,label\n,neg\n")
    with pytest.raises(UserError) as caught:
        load(tmp_path)
    assert [line.split(":")[0] for line in caught.value.lines] == ["train-1.csv, row 2", "train-2.csv, row 1"]


def test_files_of_one_part_have_the_same_columns(tmp_path):
    csv(tmp_path / "train-1.csv")
    csv(tmp_path / "train-2.csv", header="sentence,label")
    with pytest.raises(
        UserError, match=r"train-2.csv: its columns .text 'sentence', label 'label'. are not those of train-1"
    ):
        load(tmp_path)


def test_ids_are_unique_over_files(tmp_path):
    (tmp_path / "a-1.csv").write_text("text,label,id\na,x,7\nb,y,8\n")
    (tmp_path / "a-2.csv").write_text("text,label,id\nc,x,9\nd,y,7\n")
    with pytest.raises(UserError, match=r"a-2.csv, row 2: the id '7' in column 'id' is already that of a-1.csv, row 1"):
        load(tmp_path)


def test_text_files_are_texts_alone(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufefffirst line, with a comma\r\n\r\n  second\n \u200b\nthird".encode())
    for file in (path, tmp_path / "lines.txt.gz"):
        if file != path:
            file.write_bytes(gzip.compress(path.read_bytes()))
        assert load_inputs(file)["text"].to_pylist() == ["first line, with a comma", "  second", "third"]
    assert load_file(path, need_labels=False)[0].labels is None
    with pytest.raises(UserError, match=r"no label column.*or use --unlabelled to distil on texts alone$"):
        load(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\n\nb\ncaf\xe9\n", "lines.txt, row 4: not UTF-8"),
        (b"a\n\n\nNaN\n", "lines.txt, row 4: the text is 'NaN'"),
        (b"\n \n", "empty"),
        (b"", "empty"),
    ],
)
def test_faults_of_text_files_name_the_line(tmp_path, content, said):
    (tmp_path / "lines.txt").write_bytes(content)
    with pytest.raises(UserError, match=said):
        load_inputs(tmp_path / "lines.txt")


def test_without_labels_a_train_part_has_none(tmp_path):
    (tmp_path / "train.txt").write_text("".join(f"text {i}\n" for i in range(10)))
    csv(tmp_path / "dev.csv", 4, start=20)
    csv(tmp_path / "test.csv", 2, header="text,note")
    teacher = Labels(names=("pos", "neg"))
    parts = load(tmp_path, labels=teacher, need_labels=False)
    assert (len(parts.train), parts.train.labels, parts.test.labels) == (10, None, None)
    assert parts.dev.labels.tolist() == [1, 0, 1, 0]
    assert parts.labels == teacher
    assert load(tmp_path, need_labels=False).labels.names == ("neg", "pos")
    with pytest.raises(UserError, match="no label column"):
        load(tmp_path)


def test_labels_of_the_train_part_cannot_be_at_fault_when_they_are_not_needed(tmp_path):
    path = csv(tmp_path / "train.csv", 40)
    csv(tmp_path / "dev.csv", 4)
    path.write_text(path.read_text() + "another,unheard of\nmore,\n")
    teacher = Labels(names=("pos", "neg"))
    assert load(tmp_path, labels=teacher, need_labels=False).train.labels is None
    # One file: the rows held out of it have their labels, and only those are read.
    whole = load(csv(tmp_path / "one.csv", 40), labels=teacher)
    lines = (tmp_path / "one.csv").read_text().splitlines()
    for row, text in enumerate(lines):
        if text.split(",")[0] in whole.train["text"].to_pylist():
            lines[row] = text.split(",")[0] + ","
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n")
    parts = load(tmp_path / "one.csv", labels=teacher, need_labels=False)
    assert parts.train.labels is None
    assert parts.dev.fingerprint == whole.dev.fingerprint and parts.test.fingerprint == whole.test.fingerprint
    with pytest.raises(UserError, match="no column 'verdict'"):
        load(tmp_path / "one.csv", labels=teacher, label="verdict", need_labels=False)


def test_a_label_column_of_nothing_is_no_label(tmp_path):
    path = csv(tmp_path / "one.csv", 20, label=("",))
    parts = load(path, labels=Labels(names=("pos", "neg")), need_labels=False)
    assert parts.dev.labels is None and parts.test.labels is None


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", "text;label\na, b;neg\nc;pos\n", ["a, b", "c"]),
        ("a.csv", "text;label\na;neg\nb;pos\n", ["a", "b"]),
        ("a.csv", 'text;label\n"a; b";neg\nc;pos\n', ["a; b", "c"]),
        ("a.csv", '"text";"label"\n"a, ""b""";neg\nc;pos\n', ['a, "b"', "c"]),
        ("a.csv", "text\tlabel\na, b\tneg\nc\tpos\n", ["a, b", "c"]),
        ("a.csv", "text|label\na, b|neg\nc|pos\n", ["a, b", "c"]),
        ("a.tsv", 'text,label\n"a, b",neg\nc,pos\n', ["a, b", "c"]),
    ],
)
def test_another_separator_is_read(tmp_path, name, content, texts):
    (tmp_path / name).write_text(content)
    for asked in ({}, {"text": "text", "label": "label"}):
        examples, labels = load_file(tmp_path / name, **asked)
        assert examples["text"].to_pylist() == texts
        assert labels.names == ("neg", "pos") and examples.labels.tolist() == [0, 1]


def test_rows_are_checked_with_the_separator_that_was_found(tmp_path):
    (tmp_path / "a.csv").write_text("text;label\na;neg\nb;pos;x\nc;pos\nd\n")
    with pytest.raises(UserError) as error:
        load_file(tmp_path / "a.csv")
    assert error.value.lines == (
        "a.csv, row 2: 3 fields where the header has 2; put a field that holds a semicolon in quotes",
        "a.csv, row 4: 1 fields where the header has 2; is a semicolon missing?",
    )


def test_wrong_quotes_do_not_hide_the_separator(tmp_path):
    (tmp_path / "a.csv").write_text('text;label\n"so" he said;neg\nb;pos\n')
    with pytest.raises(
        UserError, match=r"a\.csv, row 1: text after a closing quote; write a quote inside quotes twice"
    ):
        load_file(tmp_path / "a.csv")


def test_a_file_of_one_column_stays_one(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n" + "".join(f"film {row}\n" for row in range(8)) + "good; bad\n")
    examples = load_inputs(tmp_path, text="a;b")
    assert examples["text"].to_pylist()[-1] == "good; bad" and len(examples) == 9
    with pytest.raises(UserError, match="no text column; the header is one column 'a;b': the separator looks like ';'"):
        load_inputs(tmp_path)
