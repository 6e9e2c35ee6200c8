"""Every file of `bad_inputs` loads as it should, or is one line with its file and row; no input gives a traceback.

`EXPECTED` has an entry for each of them. A refusal is one string for each line: the place, which must be in the line as
it stands (the file's own name is put before it), and after the colon words that must all be in it.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import load, load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForSequenceClassification, BertConfig, PreTrainedTokenizerFast

from stillery.cli.main import main
from stillery.data.readers.files import read_batches
from stillery.errors import ErrorList, UserError

FOLDER = Path(__file__).parent / "bad_inputs"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.name not in ("README.md", ".gitattributes"))
SLEEP = "it put me to sleep"


@dataclass(frozen=True, kw_only=True)
class Loads:
    """What a file that loads has in it; `text` and `label` are what one row says."""

    rows: int = 6
    labels: tuple[str, ...] = ("negative", "positive")
    row: int = 2
    text: str = "a dull and endless film"
    label: int | float = 0


def refused(*lines: str) -> tuple[str, ...]:
    return lines


EXPECTED: dict[str, Loads | tuple[str, ...]] = {
    # Encodings.
    "latin1.csv": refused("row 4: UTF-8 --encoding latin-1"),
    "latin1_header.csv": refused("header: UTF-8 --encoding latin-1"),
    "latin1.tsv": refused("row 3: UTF-8 --encoding latin-1"),
    "latin1.jsonl": refused("row 5: UTF-8 --encoding latin-1"),
    "latin1.txt": refused("row 3: UTF-8 --encoding latin-1", ": label column --label"),
    "latin1.parquet": refused("row 3: 'text' UTF-8"),
    "latin1_dictionary.parquet": refused("row 4: 'text' UTF-8"),
    "latin1_extra.parquet": refused("row 3: 'author' UTF-8"),
    "utf16.csv": refused("header: UTF-16 save UTF-8 --encoding utf-16"),
    "utf16_no_mark.csv": refused("header: UTF-16 save UTF-8 --encoding utf-16-le"),
    "utf16.jsonl": refused("row 1: UTF-16 save UTF-8 --encoding utf-16"),
    "utf32.tsv": refused("header: UTF-32 save UTF-8 --encoding utf-32"),
    "bom.csv": Loads(row=1, text="a warm and funny film", label=1),
    "bom_quoted_header.csv": Loads(),
    "bom_twice.csv": Loads(),
    "bom.jsonl": Loads(),
    "bom.tsv.gz": Loads(),
    "nul_byte.csv": refused("row 3: NUL"),
    "nul_byte_late.csv": refused("row 251: NUL"),
    "nul_byte.jsonl": refused("row 2: control character"),
    "nul_byte.txt.gz": refused("row 2: NUL", ": label column --label"),
    "cut_inside_a_character.csv": refused("row 6: 1 fields"),
    # The shape of rows.
    "too_many_fields.csv": refused("row 3: 3 fields header 2 comma quotes"),
    "too_few_fields.csv": refused("row 5: 1 fields header 2 comma missing"),
    "too_many_fields.tsv": refused("row 2: 3 fields tab"),
    "too_many_fields_after_quotes.tsv": refused("row 5: 3 fields"),
    "too_many_fields_after_line_break.csv": refused("row 4: 3 fields"),
    "trailing_commas.csv": refused("row 1 (also 2, 3, 4, 5 and 1 more): 3 fields"),
    "quote_inside_field.csv": Loads(text='a 5" film'),
    "quote_never_closed.csv": refused("row 4: quote never closed"),
    "quote_closed_too_early.csv": refused("row 5: closing quote"),
    "quote_never_closed.tsv": Loads(row=4, text=f'"{SLEEP}'),
    "header_only.csv": refused(": no rows"),
    "header_only.tsv.gz": refused(": no rows"),
    "empty.csv": refused(": empty"),
    "empty.jsonl": refused(": empty"),
    "empty.csv.gz": refused(": empty"),
    "empty.parquet": refused(": Parquet"),
    "blank_lines_only.csv": refused(": empty"),
    "blank_lines_only.jsonl": refused(": empty"),
    "blank_lines_only.txt": refused(": empty"),
    "blank_lines_between.csv": Loads(row=4, text=SLEEP),
    "header_twice.csv": refused("row 5: header"),
    "same_name_twice.csv": refused("header: more than one 'text'"),
    "header_in_capitals_with_spaces.csv": Loads(text=" a dull and endless film"),
    "no_header.csv": refused(": text column 'a warm and funny film' --text", ": label column --label"),
    "windows_lines.csv": Loads(text="a dull\r\nand endless film"),
    "windows_lines.jsonl": Loads(),
    "old_mac_lines.csv": Loads(),
    "old_mac_lines.jsonl": refused("row 1: JSON object per line"),
    "mixed_line_ends.csv": Loads(row=4, text=SLEEP),
    "no_last_line_end.csv": Loads(row=6, text="not one joke lands"),
    "semicolons.csv": Loads(),
    "semicolons_and_commas.csv": Loads(text="a dull, endless film"),
    "commas.tsv": Loads(),
    "tabs.csv": Loads(),
    "tab_inside_field.csv": Loads(text="a dull\tfilm"),
    "unicode_line_separators.csv": Loads(text="a dull\u2028and\x85endless\x0bfilm"),
    "huge_field.csv.gz": Loads(row=4, text=f"{SLEEP} " * 11_000),
    "huge_field.jsonl.gz": Loads(row=4, text=f"{SLEEP} " * 11_000),
    "huge_label.csv.gz": refused("row 22: label 200 characters --label"),
    "field_over_the_limit.csv.gz": refused("row 3: 16777216 characters"),
    "many_columns.csv": Loads(),
    "control_characters.csv": Loads(text="a \x01dull\x1b[31m film\x7f"),
    "emoji_and_right_to_left.csv": Loads(text="סרט ארוך ומשעמם"),
    # Labels.
    "labels_whole_floats.csv": Loads(labels=("0", "1")),
    "labels_scores.csv": Loads(labels=("score",), label=0.25),
    "labels_scores_and_a_word.csv": refused("row 5: 'good' number"),
    "labels_scores_and_infinity.csv": refused("row 3: 'inf' finite number"),
    "labels_scores_decimal_comma.csv": refused(": 24 different values --label"),
    "labels_numbers_and_words.csv": Loads(labels=("0", "1", "good"), row=5, text="every scene is a joy", label=2),
    "labels_with_spaces.csv": Loads(row=4, text=SLEEP),
    "label_empty.csv": refused("row 4: label missing"),
    "label_blank.csv": refused("row 2 (also 6): label missing"),
    "label_nan.csv": refused("row 4: label missing"),
    "label_null.jsonl": refused("row 3 (also 6): label missing"),
    "label_nan.jsonl": refused("row 3: label missing"),
    "label_nan.parquet": refused("row 4: label missing"),
    "label_infinity.jsonl": refused("row 5: 'inf' finite number"),
    "label_infinity.parquet": refused("row 5: 'inf' finite number"),
    "label_true_false.jsonl": Loads(labels=("False", "True")),
    "label_object.jsonl": refused("row 4: 'label' object"),
    "label_struct.parquet": refused(": 'label' struct --label"),
    "label_many_digits.csv": refused("row 2 (also 4, 6): label 200 characters"),
    "label_dates.parquet": refused(": 'label' date --label"),
    "label_timestamps.parquet": refused(": 'label' timestamp --label"),
    "label_decimals.parquet": Loads(labels=("0", "1"), label=1),
    "labels_one_class.csv": refused(": same class 'positive'"),
    "labels_one_score.tsv": refused(": same score 0.5"),
    "labels_all_different.csv": refused(": 24 different values 24 rows --label"),
    "labels_all_missing.csv": refused(": no row has a label"),
    # Texts, ids and columns.
    "text_empty.csv": refused("row 3: 'text' empty"),
    "text_empty_often.csv": refused("row 2 (also 4, 6, 8, 10 and 3 more): 'text' empty"),
    "text_blank.csv": refused("row 2 (also 5): 'text' empty"),
    "text_nan.csv": refused("row 6: 'text' empty"),
    "text_zero_width.csv": refused("row 4: 'text' empty"),
    "text_null.jsonl": refused("row 2: 'text' empty"),
    "text_null.parquet": refused("row 2: 'text' empty"),
    "text_all_null.parquet": refused("row 1 (also 2, 3, 4, 5 and 1 more): 'text' empty"),
    "text_number.jsonl": Loads(text="2012"),
    "text_numbers.jsonl": refused("row 1: 'text' int64 not text"),
    "text_int.parquet": refused("row 1: 'text' int64 not text"),
    "text_object.jsonl": refused("row 5: 'text' object"),
    "text_objects.jsonl": refused("row 2: 'text' struct not text"),
    "text_struct.parquet": refused("row 1: 'text' struct not text"),
    "text_list.parquet": refused("row 1: 'text' list not text"),
    "text_column_missing.csv": refused(": text column 'verdict on it' --text"),
    "label_column_missing.csv": refused(": label column 'verdict' --label"),
    "lines.txt": refused(": label column --label"),
    "both_columns_missing.csv": refused(": text column --text", ": label column --label"),
    "pair_missing.jsonl": refused("row 2 (also 5): 'hypothesis' empty"),
    "pair_empty.tsv": refused("row 3: 'sentence2' empty"),
    "id_twice.csv": refused("row 5: '1' 'id' already row 2"),
    "id_twice.parquet": refused("row 4 (also 6): '2' 'idx' already row 2"),
    "id_missing.csv": refused("row 4: 'id' no value"),
    "id_twice_text_empty.csv": refused("row 2: 'text' empty", "row 3: 'a' 'id' already row 1"),
    "id_object.jsonl": refused(": 'id' struct"),
    # JSON.
    "broken_line.jsonl": refused("row 4: JSON"),
    "single_quotes.jsonl": refused("row 2: JSON double quotes"),
    "two_objects_in_a_line.jsonl": refused("row 3: JSON extra data"),
    "array.jsonl": Loads(),
    "array.json": Loads(),
    "one_object.json": Loads(),
    "columns.json": Loads(),
    "scalar_line.jsonl": refused("row 3: object"),
    "text_line.jsonl": refused("row 2: object"),
    "list_line.jsonl": refused("row 5: object"),
    "empty_object.jsonl": refused("row 4: empty object"),
    "different_keys.jsonl": Loads(),
    "key_missing.jsonl": refused("row 4: 'text' empty"),
    "key_twice.jsonl": refused("row 3: 'label' twice"),
    "nested_extra.jsonl": Loads(),
    "nested_extra.parquet": Loads(),
    "half_surrogate.jsonl": refused("row 6: surrogate"),
    "half_surrogate_key.jsonl": refused("row 2: surrogate"),
    "half_surrogate_nested.jsonl": refused("row 4: surrogate"),
    "surrogate_pair.jsonl": Loads(text="a dull film \U0001f634"),
    "control_character.jsonl": refused("row 3: control character"),
    "deep.jsonl": refused("row 2: nested deep"),
    "too_deep.jsonl": refused("row 2: nested deep"),
    "deep_but_valid.jsonl": Loads(text="a dull film"),
    "long_number.jsonl": refused("row 2: number digits"),
    "large_number.jsonl": Loads(text="a dull film"),
    # gz.
    "cut.csv.gz": refused("row 264: gz cut off"),
    "cut.tsv.gz": refused("row 264: gz cut off"),
    "cut.jsonl.gz": refused("row 263: gz cut off"),
    "cut_in_the_header.csv.gz": refused("row 1: gz cut off"),
    "cut_before_the_checksum.csv.gz": refused("row 7: gz cut off"),
    "damaged.csv.gz": refused("row 400 or before: gz damaged"),
    "wrong_checksum.csv.gz": refused("row 6 or before: gz damaged checksum"),
    "garbage_after_the_end.csv.gz": refused("row 7: not gz"),
    "zeros_after_the_end.csv.gz": Loads(),
    "two_members.csv.gz": Loads(rows=12, row=8, text="a dull and endless film again"),
    "plain_text.csv.gz": refused("row 1: not gz .gz"),
    "twice_packed.csv.gz": refused("header: gz within gz"),
    "gz_without_its_name.csv": refused("header: gz .gz name"),
    "ragged.csv.gz": refused("row 3: 1 fields"),
    # Other files by a wrong name.
    "workbook.csv": refused("header: zip .xlsx CSV"),
    "table.xlsx": refused(": workbook export CSV"),
    "picture.csv": refused("header: picture"),
    "picture.jsonl": refused("row 1: picture"),
    "no_suffix": refused(": format .csv .parquet"),
    "page.csv": refused("row 2 (also 4): 2 fields", ": text column --text", ": label column --label"),
    "pointer.csv": refused(": text column --text", ": label column --label"),
    "csv_inside.parquet": refused(": Parquet"),
    "jsonl_inside.csv": refused(": text column --text", ": label column --label"),
    "parquet_inside.csv": refused("header: Parquet .parquet"),
    # Parquet.
    "cut.parquet": refused(": Parquet"),
    "cut_at_start.parquet": refused(": Parquet"),
    "damaged.parquet": refused(": Parquet"),
    "dictionary.parquet": Loads(),
    "bytes.parquet": Loads(),
    "bytes_latin1.parquet": refused("row 4: 'text' UTF-8"),
    "label_bytes_latin1.parquet": refused("row 5: 'label' UTF-8"),
    "no_rows.parquet": refused(": no rows"),
    "no_columns.parquet": refused(": no rows"),
    "same_name_twice.parquet": refused("header: more than one 'text'"),
    # Folders and names.
    "folder_empty_dev": refused("dev.csv: empty"),
    "folder_new_label": refused("dev.csv, row 1: 'neutral' not known negative, positive"),
    "folder_three_faults": refused(
        "train.csv, row 2: 'text' empty", "dev.tsv, row 2: 1 fields", "test.jsonl, row 2: JSON"
    ),
    "folder_two_trains": refused(": train train.csv train.jsonl"),
    "folder_no_train": refused(": no train file dev.csv test.csv"),
    "folder_other_columns": refused("dev.csv: no column 'text'"),
    "folder_other_format": refused("dev.jsonl, row 3 (also 4, 5, 6): 'id' no value"),
    "folder_label_types": Loads(rows=12, labels=("0", "1"), label=1),
    "folder_unlabelled_test": Loads(rows=12),
    "folder.csv": refused(": no data"),
    "file name with spaces, and 'quotes'.csv": refused("row 2: 'text' empty"),
}
LOADED = [name for name, expected in EXPECTED.items() if isinstance(expected, Loads)]
REFUSED = [name for name, expected in EXPECTED.items() if not isinstance(expected, Loads)]


def place_of(name: str, line: str) -> tuple[str, str]:
    """The place a line must name, and the words that must be in it."""
    place, words = line.split(":", 1)
    if "." not in place:
        place = f"{name}, {place}" if place else name
    return f"{place}:", words


def check_lines(name: str, said: list[str]) -> None:
    expected = EXPECTED[name]
    assert isinstance(expected, tuple) and len(said) == len(expected), said
    for line, wanted in zip(said, expected, strict=True):
        place, words = place_of(name, wanted)
        assert place in line
        missing = [word for word in words.split() if word.lower() not in line.lower()]
        assert not missing, (missing, line)
        assert len(line) < 400 + len(str(FOLDER)), "a line for people to read"


def test_every_file_has_an_expectation_and_is_described():
    assert set(EXPECTED) == set(FILES)
    described = re.findall(r"^\| `(.+)` \| .+ \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert sorted(described) == FILES


@pytest.mark.parametrize("name", LOADED)
def test_loads(name: str) -> None:
    expected, path = EXPECTED[name], FOLDER / name
    assert isinstance(expected, Loads)
    if path.is_dir():
        parts = load(path)
        assert len(parts.train) + len(parts.dev) == expected.rows
        examples, labels = parts.train, parts.labels
    else:
        examples, labels = load_file(path)
        assert len(examples) == expected.rows
    assert labels.names == expected.labels
    assert examples["text"][expected.row - 1].as_py() == expected.text
    assert examples.labels[expected.row - 1] == expected.label


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    path = FOLDER / name
    with pytest.raises(UserError) as caught:
        load(path) if path.is_dir() else load_file(path)
    check_lines(name, list(caught.value.lines))


Command = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process; its code, what it printed, and what it said."""

    def run(*arguments: object) -> tuple[int, str, list[str]]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, out, err.splitlines()

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that knows five words, so that reading it takes no time beside reading the data."""
    folder = tmp_path_factory.mktemp("model")
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "film": 3, "joke": 4}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
    tokenizer.save_pretrained(folder)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = BertConfig(**shape, max_position_embeddings=64, vocab_size=5)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder


def check_said(name: str, said: list[str]) -> None:
    assert all(line.startswith("stillery: ") for line in said), said
    check_lines(name, said)


@pytest.mark.parametrize("name", LOADED)
def test_the_command_line_loads(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text(f"job = 'finetune'\nmodel = '{model}'\ndata = '{FOLDER / name}'\n", encoding="utf-8")
    code, out, said = command("check", run)
    assert code == 0, said
    expected = EXPECTED[name]
    assert isinstance(expected, Loads)
    assert sum(map(int, re.findall(r"(\d+) (?:train|dev|test)\b", out.splitlines()[0]))) == expected.rows
    assert "regression" in out if expected.labels == ("score",) else ", ".join(expected.labels) in out


@pytest.mark.parametrize("name", REFUSED)
def test_the_command_line_refuses(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    code, out, said = command("finetune", "--model", model, "--data", FOLDER / name, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    check_said(name, said)
    assert not list(tmp_path.iterdir())


# Files whose columns have types; labels are kept as they are, so there is nothing wrong with them here.
TYPED = [name for name in FILES if name.endswith((".jsonl", ".parquet"))]
PREDICTED = [name for name in TYPED if name in LOADED or name.startswith("label")]


@pytest.mark.parametrize("name", PREDICTED)
def test_predict_writes_every_row(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    out = tmp_path / ("out.parquet" if name.endswith(".jsonl") else "out.jsonl")
    code, _, said = command("predict", model, "--data", FOLDER / name, "--out", out)
    assert code == 0, said
    read, written = (pa.Table.from_batches(list(read_batches(path))) for path in (FOLDER / name, out))
    assert written.num_rows == read.num_rows
    assert written.column_names[: read.num_columns] == read.column_names
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("name", ["cut.tsv.gz", "latin1_extra.parquet", "text_object.jsonl"])
def test_predict_writes_nothing(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    code, out, said = command("predict", model, "--data", FOLDER / name, "--out", tmp_path / "out.csv")
    assert (code, out) == (2, "")
    check_said(name, said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["latin1.parquet", "folder_three_faults"])
def test_a_process_of_its_own_refuses(name: str, stillery: Callable, model: Path, tmp_path: Path) -> None:
    done = stillery("finetune", "--model", model, "--data", FOLDER / name, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    check_said(name, done.stderr.splitlines())
    assert not list(tmp_path.iterdir())


def test_a_line_stays_one_line_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines\u2028\x1b[31m.csv"
    path.write_text("text,label\na,1\n,2\n")
    with pytest.raises(UserError, match="row 2: the text") as caught:
        load_file(path)
    assert len(caught.value.lines[0].splitlines()) == 1


@pytest.mark.parametrize("target", ["link.csv", "nowhere.csv"], ids=["loop", "dangling"])
def test_a_link_that_leads_nowhere(target: str, command: Command, model: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(target)
    for arguments in (["finetune", "--model"], ["predict"]):
        code, _, said = command(*arguments, model, "--data", link, "--out", tmp_path / "out.csv")
        assert code == 2 and said == [f"stillery: no such file: {link}"]
    assert list(tmp_path.iterdir()) == [link]


def test_a_name_that_no_file_can_have(command: Command, model: Path, tmp_path: Path) -> None:
    name = f"{'long' * 100}.csv"
    for arguments in (["finetune", "--model"], ["predict"], ["evaluate"]):
        out = [] if arguments == ["evaluate"] else ["--out", tmp_path / "out.csv"]
        code, _, said = command(*arguments, model, "--data", tmp_path / name, *out)
        assert code == 2 and len(said) == 1 and f"{name}: cannot read" in said[0]
    code, _, said = command("predict", model, "--data", FOLDER / "bom.csv", "--out", tmp_path / name)
    assert code == 2 and f"{name}: cannot be written" in said[-1]
    code, _, said = command("predict", model, "--data", FOLDER / "bom.csv", "--out", tmp_path / f"{'x' * 250}.csv")
    assert code == 0 and [path.stem for path in tmp_path.iterdir()] == ["x" * 250]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything can be read by root")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "locked.csv"
    path.write_text("text,label\na,1\nb,2\n")
    path.chmod(0)
    with pytest.raises(UserError, match=r"locked\.csv: cannot read"):
        load_file(path)


ROWS = [(f"a film, number {i}\nwith é and \U0001f634" if i % 3 else f'the "{i}"', i % 2) for i in range(8)]
QUOTED = [('"' + text.replace('"', '""') + '"', label) for text, label in ROWS]
GOOD = {
    ".csv": "text,label\n" + "".join(f"{text},{label}\n" for text, label in QUOTED),
    ".tsv": "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in QUOTED),
    ".jsonl": "".join(f'{{"text": "film {i} \\u00e9", "label": {label}}}\n' for i, (_, label) in enumerate(ROWS)),
}
PIECES = st.sampled_from(
    [b"", b"\0", b'"', b",", b"\t", b"\n", b"\r", b"\\", b"{", b"}", b"[", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80"]
    + [b"nan", b"NaN", b"-Infinity", b"1e999", b"null", b"\\ud800", b"\\u0000", b'"text":', b"\x1f\x8b", b" "]
) | st.binary(max_size=4)
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), PIECES), min_size=1, max_size=4)


def changed(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """Content with some bytes replaced, at places given as shares of its length."""
    for share, length, piece in changes:
        start = round(share * len(content))
        content = content[:start] + piece + content[start + length :]
    return content


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz"])
def test_whatever_is_changed_in_a_file_it_loads_or_is_refused(suffix: str, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("changed") / f"rows{suffix}"
    good = GOOD[suffix.removesuffix(".gz")].encode()

    @settings(max_examples=100, deadline=None)
    @given(inside=CHANGES, outside=CHANGES | st.just([]), end=st.floats(0, 1) | st.just(1))
    def check(inside: list, outside: list, end: float) -> None:
        content = changed(good, inside)
        if suffix.endswith(".gz"):
            content = changed(gzip.compress(content, mtime=0), outside)
        path.write_bytes(content[: round(end * len(content))])
        errors = ErrorList()
        with errors.catch():
            examples, _ = load_file(path)
            assert examples.labels is not None and len(examples["text"].to_pylist()) == len(examples.labels)
        assert all(path.name in line for line in errors.lines)

    check()
