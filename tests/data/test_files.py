"""Every format comes back as it was written, and every bad file is one line with its row."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillery.data.readers.files import WRITTEN, read_batches, write_rows
from stillery.errors import UserError

ROWS = {"text": ['a, "b"', "two\nlines", "tab\there", "plain"], "label": ["x", "y", "x", "y"]}


def read(path, **options):
    return pa.Table.from_batches(list(read_batches(path, **options))).to_pydict()


def error(path, content=None):
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as caught:
        list(read_batches(path))
    assert len(caught.value.lines) == 1
    return caught.value.lines[0]


@pytest.mark.parametrize("suffix", WRITTEN)
def test_round_trip(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    with write_rows(path, ["text", "label"]) as out:
        out.write({"text": ROWS["text"][:2], "label": ROWS["label"][:2]})
        out.write({"text": ROWS["text"][2:], "label": ROWS["label"][2:]})
    assert read(path) == ROWS
    assert [batch.num_rows for batch in read_batches(path, batch_rows=3)] == [3, 1]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_numbers_and_lists_are_written(tmp_path):
    import numpy as np

    rows = {"label": np.array([1, 2]), "probabilities": [np.array([0.25, 0.75]), [0.5, 0.5]]}
    for suffix in (".jsonl", ".parquet"):
        with write_rows(tmp_path / f"p{suffix}", list(rows)) as out:
            out.write(rows)
        assert read(tmp_path / f"p{suffix}") == {"label": [1, 2], "probabilities": [[0.25, 0.75], [0.5, 0.5]]}
    with write_rows(tmp_path / "p.csv", list(rows)) as out:
        out.write(rows)
    assert read(tmp_path / "p.csv")["probabilities"] == ["[0.25, 0.75]", "[0.5, 0.5]"]


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufefftext,label\r\n"a\r\nb",1\r\n\r\nc,2\r\n'.encode())
    assert read(path) == {"text": ["a\r\nb", "c"], "label": ["1", "2"]}
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"text": "é", "label": 1}\r\n\r\n{"text": "b", "label": 2}\r\n'.encode())
    assert read(path) == {"text": ["é", "b"], "label": [1, 2]}
    path = tmp_path / "mac.csv"
    path.write_bytes(b"text,label\ra,1\rb,2\r")
    assert read(path) == {"text": ["a", "b"], "label": ["1", "2"]}


def test_csv_guesses_no_types(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n007,1.0\nNA,true\n")
    assert read(path) == {"text": ["007", "NA"], "label": ["1.0", "true"]}


def test_long_field(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x" * 500_000 + ",1\n")
    assert len(read(path)["text"][0]) == 500_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('"a"\t1\nb\t2\n', ["a", "b"]),
        ('"a\nb"\t1\nc\t2\n', ["a\nb", "c"]),
        ('5" disk\t1\n"open\t2\nplain\t3\n', ['5" disk', '"open', "plain"]),
        # Both quotes together would swallow a line and still leave two well-formed columns.
        ('"open\t1\nplain\t2\nshut"\t3\n', ['"open', "plain", 'shut"']),
        ('"so" he said\t1\nb\t2\n', ['"so" he said', "b"]),
    ],
)
def test_tsv_with_and_without_quoting(tmp_path, body, expected):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + body)
    assert read(path)["text"] == expected


def test_json_types_are_kept_and_mixed_ones_become_text(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [{"text": "a", "label": 1, "mixed": 1}, {"text": "b", "label": 2.5, "mixed": "x"}, {"text": "c"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read(path) == {"text": ["a", "b", "c"], "label": [1.0, 2.5, None], "mixed": ["1", "x", None]}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "\n \n", "empty"),
        ("a.jsonl", "\n\n", "empty"),
        ("a.csv", "text,label\n", "no rows"),
        ("a.csv", "text,label\na,1\nb,2,3\n", "a.csv, row 2: 3 fields where the header has 2"),
        ("a.csv", "text,label\na,1\nb\n", "a.csv, row 2: 1 fields"),
        ("a.csv", 'text,label\n"a\nb",1\nc,2,3\n', "a.csv, row 2:"),
        ("a.csv", 'text,label\na,1\n"b,2\nc,3\n', "a.csv, row 2: a quote is opened and never closed"),
        ("a.csv", 'text,label\n"a" b,1\n', "a.csv, row 1: text after a closing quote"),
        ("a.tsv", "text\tlabel\na\t1\nb\t2\t3\n", "a.tsv, row 2: 3 fields"),
        ("a.csv", b"text,label\na,1\ncaf\xe9,2\n", "a.csv, row 2: not UTF-8"),
        ("a.csv", b"t\xe9xt,label\na,1\n", "a.csv, header: not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', "a.jsonl, row 2: not UTF-8"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl, row 2: not valid JSON"),
        ("a.jsonl", '{"text": "a"}\n\n[1, 2]\n', "a.jsonl, row 2: a JSON list"),
        ("a.jsonl", '{"text": "a"}\n{"text": "\\ud83d"}\n', "a.jsonl, row 2: half of a surrogate pair"),
        ("a.jsonl", "[" * 100_000, "JSON"),
        ("a.json", '[\n{"text": "a"}\n{"text": "b"}]', "a.json, row 2: not valid JSON (no comma before it"),
        ("a.json", '[{"text": "a"}, {"text": ]', "a.json, row 2: not valid JSON (Expecting value at character 10)"),
        ("a.json", '[{"text": "a"}, 3]', "a.json, row 2: a JSON int, not an object"),
        ("a.json", '[{"text": "a"}', "a.json, row 2: not valid JSON"),
        ("a.jsonl", b'[{"text": "a"}, {"text": "\xe9"}]', "a.jsonl, row 2: not UTF-8"),
        ("a.json", "[]", "empty"),
        ("a.csv", "text,label,text\na,1,b\n", "'text'"),
        ("a.csv", "text,label\na,1\n".encode("utf-16"), "UTF-16"),
        ("a.csv.gz", b"text,label\na,1\n", "not valid gz"),
        ("a.parquet", b"PAR1 this is none", "Parquet"),
        ("a.xls", "x", "format is not known"),
        ("a.gz", "x", "format is not known"),
    ],
)
def test_bad_files(tmp_path, name, content, said):
    line = error(tmp_path / name, content)
    assert said in line
    assert name in line


def test_missing_file_and_folder_are_refused_before_reading(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_batches(tmp_path / "none.csv")
    with pytest.raises(UserError, match="folder"):
        read_batches(tmp_path)


def test_gz_that_is_cut_off(tmp_path):
    lines = [f"text {i * 7919 % 104729},{i}" for i in range(20_000)]
    whole = gzip.compress(("text,label\n" + "\n".join(lines)).encode())
    line = error(tmp_path / "a.csv.gz", whole[: len(whole) // 2])
    assert "cut off" in line
    assert "row" in line
    assert "cut off" in error(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 10)[:-6])


def test_cut_off_parquet_and_twice_named_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1000}), path)
    assert "Parquet" in error(path, path.read_bytes()[:-20])
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    assert "more than one column" in error(path)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert "no rows" in error(path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl.gz", ".parquet"])
def test_a_failed_write_leaves_nothing_and_keeps_what_was_there(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"before")

    def write_and_fail():
        with write_rows(path, ["a"]) as out:
            out.write({"a": [1, 2]})
            assert path.read_bytes() == b"before"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"before"


def test_an_unwritable_target_is_refused_before_anything_is_written(tmp_path):
    for path, said in (
        ("out.txt", "no columns to write"),
        ("out.xml", "not known"),
        ("none/out.csv", "does not exist"),
        (".", "a folder|not known"),
    ):
        with pytest.raises(UserError, match=said), write_rows(tmp_path / path, ["a"]):
            raise AssertionError
    assert not list(tmp_path.iterdir())


def test_a_file_without_rows_has_its_columns(tmp_path):
    with write_rows(tmp_path / "a.parquet", ["a", "b"]):
        pass
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["a", "b"]
