"""`stillery predict` with a model that generates text: sources in, texts out, as the model's run wrote them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from csv_files import read_csv, write_csv
from text_models import SHORT, SMALL, make_writer, write_pairs

import stillery


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_texts_are_those_the_run_wrote(command, tmp_path, family):
    model, pairs, out = make_writer(tmp_path / "model", family, layers=2), write_pairs(tmp_path / "p.csv"), tmp_path
    say = ("--prefix", "w1 ") if family == "t5" else ("--prompt", "w2 {source} w4 ")
    done = command("finetune", "--model", model, "--data", pairs, *SMALL, *SHORT, *say, "--out", out / "run")
    assert done.code == 0, done.err
    told = pq.read_table(out / "run" / "predictions.parquet").to_pylist()
    data = write_csv(tmp_path / "new.csv", ("number", "source"), [(row, one["source"]) for row, one in enumerate(told)])
    done = command("predict", out / "run", "--data", data, "--out", tmp_path / "new.jsonl", "--batch-size", 2)
    assert done.code == 0, done.err
    assert done.out == f"{len(told)} rows written to {tmp_path / 'new.jsonl'}\n"
    found = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    assert [row["output"] for row in found] == [row["output"] for row in told]
    assert [str(row["number"]) for row in found] == [str(row) for row in range(len(told))]


def test_a_text_file_of_sources(command, tmp_path):
    model = make_writer(tmp_path / "model", "t5", layers=1)
    (tmp_path / "in.txt").write_text("w1 w2\nw3 w4 w5 w6 w7 w8 w9 w10\n")
    asked = ("predict", model, "--data", tmp_path / "in.txt", "--beams", 1, "--max-new-tokens", 3, "--max-length", 6)
    done = command(*asked, "--out", tmp_path / "out.csv")
    assert done.code == 0, done.err
    assert [row["text"].split()[0] for row in read_csv(tmp_path / "out.csv")] == ["w1", "w3"]
    assert "1 of 2 sources are longer than 6 tokens and were cut" in done.err
    rows = stillery.predict(model, data=tmp_path / "in.txt", out=tmp_path / "again.csv", beams=1, max_new_tokens=3,
                            max_length=6)  # fmt: skip
    assert rows == 2 and (tmp_path / "again.csv").read_text() == (tmp_path / "out.csv").read_text()


def test_what_does_not_go_with_a_kind_of_model(command, tiny_teacher, tmp_path):
    t5 = make_writer(tmp_path / "t5", "t5", layers=1)
    data, out = write_csv(tmp_path / "in.csv", ("source", "text"), [("w1", "w2")]), tmp_path / "out.csv"
    there = write_csv(tmp_path / "there.csv", ("source", "output"), [("w1", "w2")])
    done = command("predict", t5, "--data", there, "--out", out)
    assert done.code == 2 and "the column 'output' is there already" in done.err and not out.exists()
    for model, given, said in (
        (t5, ("--text", "source"), "--text is for classifiers"),
        (t5, ("--source", "sorce"), "no column 'sorce' (--source)"),
        (t5, ("--beams", 0), "--beams"),
        (t5, ("--prompt", "{source}"), "--prompt is for decoders"),
        (tiny_teacher, ("--beams", 2), "--beams is for models that generate text"),
        (tiny_teacher, ("--prefix", "x"), "--prefix is for models that generate text"),
    ):
        done = command("predict", model, "--data", data, "--out", out, *given)
        assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1, done.err
        assert not out.exists()
