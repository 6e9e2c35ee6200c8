"""`stillery predict`: any file in, any file out, row by row."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv

from stillery.data.readers.files import read_batches, write_rows


def rows_of(path):
    return [row for batch in read_batches(path) for row in batch.to_pylist()]


@pytest.mark.parametrize("given", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("wanted", ["csv", "tsv", "jsonl", "parquet", "csv.gz"])
def test_any_format_in_and_out(command, tiny_teacher, texts, tmp_path, given, wanted):
    data, out = tmp_path / f"in.{given}", tmp_path / f"out.{wanted}"
    with write_rows(data, ["number", "text"]) as writer:
        writer.write({"number": list(range(6)), "text": [f'{text} "quoted", and\ttabbed' for text in texts[:6]]})
    done = command("predict", tiny_teacher, "--data", data, "--out", out)
    assert done.code == 0, done.err
    assert done.out == f"6 rows written to {out}\n"
    found = rows_of(out)
    assert [str(row["number"]) for row in found] == ["0", "1", "2", "3", "4", "5"]
    assert [row["text"] for row in found] == [row["text"] for row in rows_of(data)]
    for row in found:
        shares = {name: float(row[f"probability_{name}"]) for name in ("negative", "positive")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert row["prediction"] == max(shares, key=shares.__getitem__)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, out.name])


def test_predictions_are_those_of_the_run(command, tiny_teacher, texts, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    rows = [(text, ("negative", "positive")[row % 2]) for row, text in enumerate(texts)]
    for part, some in (("train", rows[:20]), ("dev", rows[20:30]), ("test", rows[30:])):
        write_csv(data / f"{part}.csv", ("text", "label"), some)
    out = tmp_path / "run"
    options = ("--layers", 2, "--max-steps", 3, "--batch-size", 8, "--lr", 0.01, "--keep", "last")
    assert command("distill", "--teacher", tiny_teacher, "--data", data, *options, "--out", out).code == 0
    # Labels of the file are left alone, and a run folder is a model.
    assert command("predict", out, "--data", data / "test.csv", "--out", tmp_path / "new.csv").code == 0
    told = pq.read_table(out / "predictions.parquet").to_pylist()
    found = read_csv(tmp_path / "new.csv")
    assert [row["prediction"] for row in found] == [row["prediction"] for row in told]
    assert [row["label"] for row in found] == [row["label"] for row in told]
    for row, told_row in zip(found, told, strict=True):
        assert float(row["probability_negative"]) == pytest.approx(told_row["probabilities"][0], abs=1e-5)


def test_regression_predicts_a_number(command, make_bert, texts, tmp_path):
    data = write_csv(tmp_path / "in.csv", ("text",), [(text,) for text in texts[:3]])
    model = make_bert(num_labels=1, problem_type="regression")
    assert command("predict", model, "--data", data, "--out", tmp_path / "out.csv").code == 0
    found = read_csv(tmp_path / "out.csv")
    assert list(found[0]) == ["text", "prediction"]
    assert all(float(row["prediction"]) == float(row["prediction"]) for row in found)


def test_many_batches_and_keys_that_come_late(command, tiny_teacher, tmp_path):
    """Two thousand rows are three batches; the last rows have a key the first have not, and the other way round."""
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [{"text": f"number {row}", **({"early": row} if row < 900 else {"late": str(row)})} for row in range(2100)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = command("predict", tiny_teacher, "--data", data, "--out", out, "--batch-size", 256)
    assert done.code == 0, done.err
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["text"] for row in found] == [line["text"] for line in lines]
    assert [row["late"] for row in found] == [line.get("late") for line in lines]
    assert [row["early"] for row in found] == [line.get("early") for line in lines]
    # A row's answer does not depend on its batch.
    write_csv(tmp_path / "one.csv", ("text",), [("number 2050",)])
    assert command("predict", tiny_teacher, "--data", tmp_path / "one.csv", "--out", tmp_path / "two.csv").code == 0
    (alone,) = read_csv(tmp_path / "two.csv")
    assert float(alone["probability_negative"]) == pytest.approx(found[2050]["probability_negative"], abs=1e-5)


def test_texts_that_were_cut_are_counted(command, tiny_teacher, tmp_path):
    data = write_csv(tmp_path / "in.csv", ("text",), [("word " * 30,), ("short",)])
    done = command("predict", tiny_teacher, "--data", data, "--out", tmp_path / "out.csv", "--max-length", 8)
    assert "1 of 2 texts are longer than 8 tokens and were cut" in done.err


def test_a_pair_of_texts(command, tiny_teacher, tmp_path):
    data = write_csv(tmp_path / "in.csv", ("a", "b"), [("one", "two"), ("one", "three")])
    options = ("--text", "a", "--text-pair", "b", "--out", tmp_path / "out.csv")
    assert command("predict", tiny_teacher, "--data", data, *options).code == 0
    first, second = read_csv(tmp_path / "out.csv")
    assert first["probability_negative"] != second["probability_negative"]
