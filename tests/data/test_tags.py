"""Columns of words and tags: what they hold, what is wrong with them by row and token, and what tags are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillery.data.readers.files import read_batches
from stillery.data.schema.tags import (
    encode_tags,
    infer_tags,
    place_in,
    place_of,
    refuse_other_lengths,
    tag_column,
    word_column,
)
from stillery.errors import UserError


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def columns(path: Path, tokens: str = "tokens", tags: str = "tags", at_once: int = 1000) -> tuple[list[Any], list[Any]]:
    """The words and tags of a file as Python lists."""
    words, found, before = [], [], 0
    for batch in read_batches(path, at_once):
        words.append(word_column(batch, tokens, path.name, before, "--text"))
        found.append(tag_column(batch, tags, path.name, before, "--label"))
        refuse_other_lengths(words[-1], found[-1], place_of(batch, path.name, before))
        before += batch.num_rows
    assert {one.type for one in (*words, *found)} == {pa.list_(pa.large_string())}
    return tuple(pa.chunked_array(one).to_pylist() for one in (words, found))  # type: ignore[return-value]


def error(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        columns(path, **options)
    (line,) = caught.value.lines
    return line


ROWS = [
    {"tokens": ["EU", "nan", "\u200b"], "tags": ["B-ORG", "O", "O"]},
    {"tokens": ["Peter"], "tags": ["B-PER"]},
    {"tokens": ["a", "b"], "tags": ["O", "O"]},
]


@pytest.mark.parametrize("at_once", [1, 1000])
def test_json_lines_parquet_and_conll_say_the_same(tmp_path: Path, at_once: int) -> None:
    expected = [row["tokens"] for row in ROWS], [row["tags"] for row in ROWS]
    assert columns(write(tmp_path / "a.jsonl", ROWS), at_once=at_once) == expected
    table = pa.table({name: [row[name] for row in ROWS] for name in ("tokens", "tags")})
    pq.write_table(table, tmp_path / "a.parquet")
    assert columns(tmp_path / "a.parquet", at_once=at_once) == expected
    large = table.cast(pa.schema([(name, pa.large_list(pa.large_string())) for name in table.column_names]))
    pq.write_table(large, tmp_path / "b.parquet", store_schema=True)
    assert columns(tmp_path / "b.parquet", at_once=at_once) == expected
    pairs = [zip(row["tokens"], row["tags"], strict=True) for row in ROWS]
    text = "\n\n".join("\n".join(f"{token}\t{tag}" for token, tag in one) for one in pairs)
    (tmp_path / "a.conll").write_text(text, encoding="utf-8")
    assert columns(tmp_path / "a.conll", at_once=at_once) == expected


def test_numbers_have_the_names_that_the_file_gives_them(tmp_path: Path) -> None:
    """As the datasets library writes its ClassLabel."""
    table = pa.table({"tokens": [["a", "b"], ["c"]], "ner_tags": [[0, 1], [2]]})
    names = {"names": ["O", "B-PER", "I-PER"], "_type": "ClassLabel"}
    for kind in ("Sequence", "List"):
        features = {"ner_tags": {"feature": names, "_type": kind}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
        assert columns(tmp_path / "a.parquet", tags="ner_tags")[1] == [["O", "B-PER"], ["I-PER"]]
    wrong = table.set_column(1, "ner_tags", pa.array([[0, 1], [3]])).replace_schema_metadata(metadata)
    pq.write_table(wrong, tmp_path / "b.parquet")
    assert error(tmp_path / "b.parquet", tags="ner_tags") == (
        "b.parquet, row 2, token 1: the tag is the number 3, and there are 3 names"
    )
    pq.write_table(table, tmp_path / "c.parquet")
    said = "the tag is the number 0, and nothing says what that is called; write names, such as B-PER, in place of"
    assert said in error(tmp_path / "c.parquet", tags="ner_tags")
    path = write(tmp_path / "c.jsonl", [{"tokens": ["a"], "ner_tags": ["O"]}, {"tokens": ["b"], "ner_tags": [4]}])
    assert error(path, tags="ner_tags").startswith("c.jsonl, row 2, token 1: the tag is the number 4, and nothing")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 2: 2 tokens and 1 tags; give each token one tag"),
        ({"tokens": [], "tags": []}, "row 2: the sentence has no tokens; fill them in or remove it"),
        ({"tokens": ["a"], "tags": []}, "row 2: the sentence has no tags; fill them in or remove it"),
        ({"tokens": ["a"]}, "row 2: the sentence has no tags; fill them in or remove it"),
        (
            {"tokens": ["a", " "], "tags": ["O", "O"]},
            "row 2, token 2: the token is empty; fill it in or remove the row",
        ),
        (
            {"tokens": ["a", None], "tags": ["O", "O"]},
            "row 2, token 2: the token is empty; fill it in or remove the row",
        ),
        ({"tokens": ["a"], "tags": [""]}, "row 2, token 1: the tag is empty; fill it in or remove the row"),
        ({"tokens": ["a", 3], "tags": ["O", "O"]}, "row 2, token 2: the token is 3, not text; write it in quotes"),
        ({"tokens": ["a"], "tags": [True]}, "row 2, token 1: the tag is true, not text; write it in quotes"),
        ({"tokens": ["a"], "tags": [["O"]]}, 'row 2, token 1: the tag is ["O"], not text; write it in quotes'),
        (
            {"tokens": "New York", "tags": ["O", "O"]},
            'row 2: "New York" is not a list of tokens; write one for each word',
        ),
    ],
)
def test_what_is_wrong_is_named_by_row_and_token(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "a.jsonl", [ROWS[0], row, ROWS[2]])
    assert error(path) == f"a.jsonl, {said}"
    # A row by itself has the type that it has, and the line may say so.
    assert error(path, at_once=1).startswith("a.jsonl, row 2")


def test_texts_are_no_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"tokens": "New York", "tags": "O"}])
    assert error(path) == (
        "a.jsonl, row 1: column 'tokens' holds large_string values, not a list of tokens for each sentence; choose "
        "with --text, or give CoNLL, JSON Lines or Parquet"
    )
    (tmp_path / "a.csv").write_text('tokens,tags\n"[""a""]","[""O""]"\n')
    assert "not a list of tokens for each sentence" in error(tmp_path / "a.csv")


def test_a_conll_file_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# text = a\na O\nb B-PER\n\nc B-PRE\nd O\n", encoding="utf-8")
    (batch,) = read_batches(path)
    tags = tag_column(batch, "tags", path.name, 0, "--label")
    with pytest.raises(UserError) as caught:
        encode_tags(tags, ("O", "B-PER", "I-PER"), place_of(batch, path.name, 0))
    assert caught.value.lines == (
        "a.conll, line 5 (sentence 2, token 1): the tag 'B-PRE' is not known; did you mean 'B-PER'?",
    )


def lists(*rows: str) -> pa.Array:
    return pa.array([row.split() for row in rows], type=pa.list_(pa.large_string()))


def test_the_order_of_tags_is_that_of_their_types() -> None:
    tags = lists("I-PER B-PER O", "S-LOC E-LOC I-LOC B-LOC")
    order = ("O", "B-LOC", "I-LOC", "S-LOC", "E-LOC", "B-PER", "I-PER")
    assert infer_tags([tags], "a") == order == infer_tags([tags[1:], tags[:1]], "a")
    assert infer_tags([lists("VERB NOUN ADJ X-RAY")], "a") == ("ADJ", "NOUN", "VERB", "X-RAY")
    assert encode_tags(tags, order, place_in("a")).tolist() == [6, 5, 0, 3, 4, 2, 1]
    assert encode_tags(tags[1:], order, place_in("a")).tolist() == [3, 4, 2, 1]


def test_tags_that_cannot_be_learnt() -> None:
    with pytest.raises(UserError, match=r"a.conll: all tags are the same \('O'\); training needs at least two"):
        infer_tags([lists("O O", "O")], "a.conll")
    with pytest.raises(UserError, match="more than 1000 different tags; is this the column of the tags"):
        infer_tags([lists(" ".join(map(str, range(1001))))], "a.conll")
    with pytest.raises(UserError, match=r"a, row 2, token 2 \(and 1 more\): the tag 'I-X' is not known; known: B-Y, O"):
        encode_tags(lists("O", "O I-X I-X"), ("O", "B-Y"), place_in("a"))
    with pytest.raises(UserError, match=r"a, row 2 \(and 1 more\): 1 tokens and 2 tags"):
        refuse_other_lengths(lists("a", "b", "c"), lists("O", "O O", "O O"), place_in("a"))
