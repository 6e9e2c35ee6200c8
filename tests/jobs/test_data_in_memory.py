"""The Python names take tables and models in memory; pandas and pyarrow as they are, polars and datasets by stand-ins
that have their methods, because those two are not installed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import stillery
from stillery.api.tables import as_table, splits_of
from stillery.errors import UserError
from stillery.jobs.config.run_file import read_toml

Rows = list[dict[str, str]]
SMALL = {"max_steps": 1, "batch_size": 8, "layers": 2, "method": "kd"}


class Dataset:
    """What a `datasets.Dataset` offers: rows behind an index, and an Arrow view of them."""

    def __init__(self, table: pa.Table, index: Sequence[int] | None = None) -> None:
        self._table, self._index = table, index
        self.column_names = table.column_names

    def __len__(self) -> int:
        return self._table.num_rows if self._index is None else len(self._index)

    def select(self, index: Sequence[int]) -> Dataset:
        return Dataset(self._table, index)

    def with_format(self, kind: str) -> Dataset:
        assert kind == "arrow"
        return self

    def __getitem__(self, key: slice) -> pa.Table:
        assert key == slice(None)
        return self._table if self._index is None else self._table.take(list(self._index))


class DatasetDict(dict[str, Dataset]):
    """A `datasets.DatasetDict` is a dict that has column names too."""

    @property
    def column_names(self) -> dict[str, list[str]]:
        return {name: split.column_names for name, split in self.items()}


class PolarsFrame:
    """A polars DataFrame, for the two things that are asked of it."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names

    def to_arrow(self) -> pa.Table:
        return self._table


def table_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows)


MAKERS: dict[str, Callable[[Rows], Any]] = {
    "dicts": lambda rows: rows,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "pandas": lambda rows: pd.DataFrame(rows, index=range(500, 500 + len(rows))),
    "categories": lambda rows: pd.DataFrame(rows).astype({"label": "category"}),
    "pyarrow": table_of,
    "batch": lambda rows: table_of(rows).to_batches()[0],
    "polars": lambda rows: PolarsFrame(table_of(rows)),
    "dataset": lambda rows: Dataset(table_of(rows)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_table_has_the_same_rows(rows: Rows, kind: str) -> None:
    assert as_table(MAKERS[kind](rows), "data").to_pylist() == rows


def test_selected_rows_of_a_dataset_are_the_ones_that_are_read(rows: Rows) -> None:
    chosen = Dataset(table_of(rows)).select([5, 2])
    assert as_table(chosen, "data").to_pylist() == [rows[5], rows[2]]


@pytest.mark.parametrize("kind", ["dicts", "pandas", "dataset"])
def test_a_table_in_memory_trains_as_its_file_does(
    tiny_teacher: Path, reviews: Path, rows: Rows, tmp_path: Path, kind: str
) -> None:
    one = stillery.distill(teacher=tiny_teacher, data=reviews, out=tmp_path / "file", **SMALL)
    other = stillery.distill(teacher=tiny_teacher, data=MAKERS[kind](rows), out=tmp_path / "memory", **SMALL)
    weights = [(run.student / "model.safetensors").read_bytes() for run in (one, other)]
    assert weights[0] == weights[1]
    written = (other.out / "run.toml").read_text(encoding="utf-8")
    assert 'data = "./given/data.parquet"' in written
    assert pq.read_table(other.out / "given" / "data.parquet").to_pylist() == rows
    prints = [read_toml(run.out / "run.toml")["fingerprints"] for run in (one, other)]
    assert prints[0] == prints[1]


def test_a_run_on_data_in_memory_is_repeated_and_gone_on_with(tiny_teacher: Path, rows: Rows, tmp_path: Path) -> None:
    run = stillery.distill(teacher=tiny_teacher, data=rows, out=tmp_path / "a", **SMALL)
    again = stillery.distill(config=run.out / "run.toml", out=tmp_path / "b")
    assert (run.student / "model.safetensors").read_bytes() == (again.student / "model.safetensors").read_bytes()
    back = stillery.distill(teacher=tiny_teacher, data=rows, out=tmp_path / "a", resume=True, **SMALL)
    assert back.metrics == run.metrics
    with pytest.raises(UserError, match="it differs in the content of data"):
        stillery.distill(teacher=tiny_teacher, data=rows[:100], out=tmp_path / "a", resume=True, **SMALL)


def test_a_dict_of_splits_is_those_splits(tiny_teacher: Path, rows: Rows, tmp_path: Path) -> None:
    splits = DatasetDict(
        {
            name: Dataset(table_of(some))
            for name, some in {"train": rows[::3], "validation": rows[1::3], "test": rows[2::3]}.items()
        }
    )
    run = stillery.distill(teacher=tiny_teacher, data=splits, out=tmp_path / "run", **SMALL)
    assert (run.metrics["split"], run.metrics["examples"]) == ("test", len(rows[2::3]))
    assert sorted(path.name for path in (run.out / "given" / "data").iterdir()) == [
        "dev.parquet", "test.parquet", "train.parquet",
    ]  # fmt: skip
    assert stillery.evaluate(run, data={"test": rows[2::3]})["metrics"] == run.metrics["metrics"]


def test_fine_tuning_restarts_on_a_table_in_memory(tiny_teacher: Path, rows: Rows, tmp_path: Path) -> None:
    run = stillery.finetune(
        model=tiny_teacher, data=rows, out=tmp_path / "run", restarts=1, max_steps=1, batch_size=8, lr=1e-9
    )
    assert read_toml(run.out / "run.toml")["data"] == str(run.out / "given" / "data.parquet")
    assert 'data = "../given/data.parquet"' in (run.out / "seed-0" / "run.toml").read_text(encoding="utf-8")


def test_a_teacher_in_memory_is_kept_with_the_run(tiny_teacher: Path, rows: Rows, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    tokenizer = AutoTokenizer.from_pretrained(tiny_teacher)
    run = stillery.distill(teacher=model, tokenizer=tokenizer, data=rows, out=tmp_path / "run", **SMALL)
    by_name = stillery.distill(teacher=tiny_teacher, data=rows, out=tmp_path / "name", **SMALL)
    assert (run.student / "model.safetensors").read_bytes() == (by_name.student / "model.safetensors").read_bytes()
    assert 'teacher = "./given/teacher"' in (run.out / "run.toml").read_text(encoding="utf-8")
    again = stillery.distill(config=run.out / "run.toml", out=tmp_path / "again")
    assert (run.student / "model.safetensors").read_bytes() == (again.student / "model.safetensors").read_bytes()
    found = stillery.evaluate(run.model, tokenizer=run.tokenizer, data=rows, split="test", against=by_name)
    assert found["metrics"] == run.metrics["metrics"] and found["agreement"] == 100
    with pytest.raises(UserError, match=r"^teacher is a model in memory, and tokenizer is not given"):
        stillery.distill(teacher=model, data=rows, out=tmp_path / "x", **SMALL)
    with pytest.raises(UserError, match=r"^tokenizer is for a teacher given as an object"):
        stillery.distill(teacher=tiny_teacher, tokenizer=tokenizer, data=rows, out=tmp_path / "x", **SMALL)
    assert not (tmp_path / "x").exists()


def test_pipelines_and_trainers_bring_their_tokenizer(tiny_teacher: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    tokenizer = AutoTokenizer.from_pretrained(tiny_teacher)
    expected = stillery.predict(tiny_teacher, data=["a quiet triumph"])
    for holder in (
        SimpleNamespace(model=model, tokenizer=tokenizer),
        SimpleNamespace(model=model, processing_class=tokenizer),
    ):
        assert stillery.predict(holder, data=["a quiet triumph"]).equals(expected)
    model.peft_config = {}
    with pytest.raises(UserError, match=r"^model has an adapter: merge it first"):
        stillery.predict(model, tokenizer=tokenizer, data=["a quiet triumph"])
    with pytest.raises(UserError, match=r"^model is a int: give a folder"):
        stillery.predict(3, data=["a quiet triumph"])


def test_a_run_without_a_folder_is_in_a_temporary_one(
    tiny_teacher: Path, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = stillery.finetune(model=tiny_teacher, data=rows, max_steps=1, batch_size=8)
    said = re.search(r"out is not given: the run is in (\S+), until", capsys.readouterr().err)
    assert said is not None and Path(said[1]) == teacher.out and (teacher.out / "run.toml").is_file()
    run = stillery.distill(teacher=teacher, data=rows, **SMALL)
    assert run.out != teacher.out and run.metrics["examples"] == teacher.metrics["examples"]
    with pytest.raises(UserError, match=r"^resume continues the run in a folder, and out is not given"):
        stillery.distill(teacher=teacher, data=rows, resume=True, **SMALL)


def test_what_a_result_holds_and_shows(tiny_teacher: Path, rows: Rows, tmp_path: Path) -> None:
    run = stillery.distill(teacher=tiny_teacher, data=rows, out=tmp_path / "<run>", **SMALL)
    assert run.model is run.model and run.model.config.num_hidden_layers == 2 and not run.model.training
    assert run.tokenizer("a film")["input_ids"]
    assert isinstance(run.predictions, pd.DataFrame) and len(run.predictions) == run.metrics["examples"]
    low, high = run.metrics["intervals"]["accuracy"]
    score = f"{run.metrics['metrics']['accuracy']:.2f} (95%: {low:.2f} to {high:.2f})"
    cost = run.metrics["cost"]
    shown = repr(run)
    for part in (score, f"{cost['parameters']:,} parameters", f"{cost['latency_ms']:.1f} ms", str(run.out)):
        assert part in shown
    page = run._repr_html_()
    assert score in page and "&lt;run&gt;" in page and "<run>" not in page


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "texts", "dicts"])
def test_predictions_come_back_as_the_table_that_was_given(
    tiny_teacher: Path, rows: Rows, tmp_path: Path, kind: str
) -> None:
    rows = rows[:6]
    data = [row["text"] for row in rows] if kind == "texts" else MAKERS[kind](rows)
    found = stillery.predict(tiny_teacher, data=data)
    assert isinstance(found, pa.Table if kind == "pyarrow" else pd.DataFrame)
    columns = found.column_names if kind == "pyarrow" else list(found.columns)
    label = [] if kind == "texts" else ["label"]
    assert columns == ["text", *label, "prediction", "probability_negative", "probability_positive"]
    if kind == "pandas":
        assert list(found.index) == list(range(500, 506))
    assert stillery.predict(tiny_teacher, data=data, out=tmp_path / "new.csv") == 6
    written = pd.read_csv(tmp_path / "new.csv")
    predicted = found["prediction"]
    assert list(written["prediction"]) == (predicted.to_pylist() if kind == "pyarrow" else list(predicted))


BAD: dict[str, tuple[Any, str]] = {
    "empty text": ([{"text": "a", "label": "x"}, {"text": "", "label": "y"}],
                   "data, row 2: the text in column 'text' is empty"),
    "no row": ([], "data has no rows"),
    "not a dict": ([{"text": "a"}, "b"], "data, row 2: a str, where each row is a dict"),
    "mixed": ([{"text": "a", "label": 1}, {"text": "b", "label": "x"}],
              "data: column 'label' holds int (row 1) and str (row 2) values"),
    "mixed pandas": (pd.DataFrame({"text": ["a", "b"], "label": [1, "x"]}),
                     "data: column 'label' holds int (row 1) and str (row 2) values"),
    "lengths": ({"text": ["a", "b"], "label": ["x"]}, "data: its columns have different numbers of rows"),
    "no text column": ([{"words": "a", "label": "x"}], "data: no text column; the columns are 'words', 'label'"),
    "an object": (object(), "data is a object: give a path, a DataFrame of pandas or polars"),
    "no train": ({"test": [{"text": "a", "label": "x"}]}, "data has no 'train' split; it has 'test'"),
    "unknown split": ({"train": [{"text": "a", "label": "x"}], "unsupervised": [{"text": "a"}]},
                      "data has a split 'unsupervised', and the splits are train, dev"),
    "in a split": ({"train": [{"text": "a", "label": "negative"}] * 9, "validation": [{"text": None, "label": "x"}]},
                   "data['validation'], row 1: the text in column 'text' is empty"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_errors_name_what_was_given(tiny_teacher: Path, tmp_path: Path, kind: str) -> None:
    data, start = BAD[kind]
    with pytest.raises(UserError) as raised:
        stillery.distill(teacher=tiny_teacher, data=data, out=tmp_path / "x", **SMALL)
    assert raised.value.lines[0].startswith(start), raised.value.lines
    assert "parquet" not in str(raised.value) and "/tmp" not in str(raised.value)
    assert not (tmp_path / "x").exists()


def test_all_errors_are_told_together(tiny_teacher: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    with pytest.raises(UserError) as raised:
        stillery.distill(teacher=model, data=[], ild_data=[], layer=2, lr=0, on_step=3, out=tmp_path / "x")
    assert raised.value.lines == (
        "layer is not a setting: did you mean 'layers'?",
        "lr is 0.0: it must be more than 0",
        "on_step is a int: give a function",
        "teacher is a model in memory, and tokenizer is not given: give the tokenizer it was trained with",
        "data has no rows",
        "ild_data has no rows",
    )


def test_messages_speak_of_what_was_given(
    tiny_teacher: Path, rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stillery.distill(teacher=tiny_teacher, data=rows, out=tmp_path / "run", verbose=True, **SMALL)
    said = capsys.readouterr().err
    assert "data: data is split by its texts: 128 train" in said and "parquet" not in said
    stillery.evaluate(run, data=rows)
    assert f"warning: {run.out} was trained on rows of data; --split test scores" in capsys.readouterr().err
    stillery.evaluate(run, data=rows[:20])
    assert "warning" not in capsys.readouterr().err


def test_columns_are_no_splits() -> None:
    assert splits_of({"text": ["a"], "label": ["b"]}, "data") is None
    assert splits_of([{"text": "a"}], "data") is None
