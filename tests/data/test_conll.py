"""CoNLL-style files come as lists of tokens and tags, and what is wrong with one is named by line and token."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stillery.data.readers.files import read_batches
from stillery.errors import UserError


def read(path: Path, content: str | bytes | None = None, **options: Any) -> dict[str, list[Any]]:
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    table = pa.Table.from_batches(list(read_batches(path, **options)))
    assert all(pa.types.is_list(one.type) for one in table.schema if one.name != "first_line")
    return table.to_pydict()


def error(path: Path, content: str | bytes) -> str:
    with pytest.raises(UserError) as caught:
        read(path, content)
    (line,) = caught.value.lines
    return line.removeprefix(f"{path.name}, ")


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # I-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


-DOCSTART- -X- -X- O

1996-08-22 CD B-NP O"""


@pytest.mark.parametrize("suffix", [".conll", ".bio", ".iob", ".CoNLL"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_by_spaces(tmp_path: Path, suffix: str, end: str) -> None:
    assert read(tmp_path / f"eng{suffix}", CONLL_2003.replace("\n", end)) == {
        "tokens": [["EU", "rejects", "#"], ["Peter", "Blackburn"], ["1996-08-22"]],
        "2": [["NNP", "VBZ", "#"], ["NNP", "NNP"], ["CD"]],
        "3": [["B-NP", "B-VP", "I-NP"], ["B-NP", "I-NP"], ["B-NP"]],
        "tags": [["B-ORG", "O", "O"], ["B-PER", "I-PER"], ["O"]],
        "first_line": [3, 7, 13],
    }


def test_columns_by_tabs(tmp_path: Path) -> None:
    """A token may hold spaces then, and be of any that do not separate."""
    content = "\ufeff# comment\nNew York\tB-LOC\n\u00a0\tO\n\n# text = # tag\n#\tO\n#hash\tO\n"
    assert read(tmp_path / "a.conll", content) == {
        "tokens": [["New York", "\u00a0"], ["#", "#hash"]],
        "tags": [["B-LOC", "O"], ["O", "O"]],
        "first_line": [2, 6],
    }


def test_only_what_separates_separates(tmp_path: Path) -> None:
    """A file that separates by spaces may have other spaces inside a token; several spaces or tabs are one."""
    found = read(tmp_path / "a.bio", "10\u00a0000   O \n \u2028x\u0085y O\n")
    assert found["tokens"] == [["10\u00a0000", "\u2028x\u0085y"]]


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("# text = # tag it\n# O\nx O\n", ["#", "x"]),
        ("x O\n\n# O\ny O\n", ["#", "y"]),
        ("# newdoc\n# newpar id = 3\nx O\n", ["x"]),
        ("# sent_id = 3\n# text = a b\nx a b O\n", ["x"]),
        ("# O\n# O\n", ["#", "#"]),
        ("#1 O\n", ["#1"]),
        ("x O\n# O\n# newdoc\n", ["x", "#", "#"]),
    ],
)
def test_a_comment_is_no_token_and_a_hash_is(tmp_path: Path, content: str, tokens: list[str]) -> None:
    assert read(tmp_path / "a.conll", content)["tokens"][-1] == tokens


def test_one_column_has_no_tags(tmp_path: Path) -> None:
    assert read(tmp_path / "a.conll", "a\nb\n\nc") == {"tokens": [["a", "b"], ["c"]], "first_line": [1, 4]}


def test_batches_and_gz(tmp_path: Path) -> None:
    path = tmp_path / "a.conll.gz"
    path.write_bytes(gzip.compress(b"\n".join(b"a%d O\nb I-X\n" % number for number in range(5))))
    batches = list(read_batches(path, batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert read(path)["first_line"] == [1, 4, 7, 10, 13]
    assert read(path)["tokens"] == [[f"a{number}", "b"] for number in range(5)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "a O\nb O\n\nc O\nd\n",
            "line 5 (sentence 2, token 2): 1 field where the file has 2; is the tag missing, or a blank line between "
            "two sentences not blank?",
        ),
        (
            "a O\nNew York B-LOC\n",
            "line 2 (sentence 1, token 2): 3 fields where the file has 2; perhaps a space in a token or tag; separate "
            "columns by tabs then",
        ),
        (
            "a\tO\nb\t\tO\n",
            "line 2 (sentence 1, token 2): 3 fields where the file has 2; is there a tab too many?",
        ),
        ("a\tO\n\nb\t\n", "line 3 (sentence 2, token 1): the tag is empty; fill it in or remove the line"),
        ("a\tO\n\n \tO\n", "line 3 (sentence 2, token 1): the token is empty; fill it in or remove the line"),
        ("a\tN\tO\nb\t\tO\n", "line 2 (sentence 1, token 2): the field 2 is empty; fill it in or remove the line"),
        (b"a O\nb\xff O\n", "line 2: not UTF-8 text; save the file as UTF-8"),
        (b"a O\nb\0 O\n", "line 2: a NUL byte, which no text has; remove it, or save the file as UTF-8 text"),
        (
            "a O\n\n#\nb O\n",
            "line 3 (sentence 2, token 1): 1 field where the file has 2; is the tag missing, or a blank line between "
            "two sentences not blank?",
        ),
    ],
)
def test_what_is_wrong_is_named_by_line_sentence_and_token(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert error(tmp_path / "a.conll", content) == said


@pytest.mark.parametrize("content", ["", "\n\n", "-DOCSTART- O\n\n", "# text = nothing\n"])
def test_no_tokens(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.conll"
    assert error(path, content) == f"{path}: the file has no tokens; it needs a token and its tag on each line"


def test_what_is_no_text(tmp_path: Path) -> None:
    assert "UTF-16" in error(tmp_path / "a.conll", "a O\n".encode("utf-16"))
    (tmp_path / "b.conll.gz").write_bytes(gzip.compress(b"a O\n" * 2000)[:-20])
    with pytest.raises(UserError, match="cut off or damaged"):
        read(tmp_path / "b.conll.gz")


def test_a_sentence_is_found_where_a_batch_ends(tmp_path: Path) -> None:
    """Errors count sentences from the beginning of the file."""
    path = tmp_path / "a.conll"
    path.write_text("a O\n\n" * 5 + "b\n")
    with pytest.raises(UserError, match=r"line 11 \(sentence 6, token 1\)"):
        list(read_batches(path, batch_rows=2))
