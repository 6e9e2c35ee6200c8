"""A kind of answer that is written here is read, split and scored by the same loader as labels and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from stillery.data.schema.answer import Rows, Selected, rows_by_table
from stillery.data.schema.columns import Columns
from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.schema.load_splits import load, load_inputs, load_to_score
from stillery.data.schema.new_texts import open_texts
from stillery.data.schema.roles import Role, Schema
from stillery.data.schema.table import Table
from stillery.data.schema.values import empty_lists, list_column
from stillery.errors import UserError

WORDS = Role(
    name="tokens",
    option="--tokens",
    usual=("tokens", "words"),
    word="list of tokens",
    title="token",
    read=list_column,
    empty=empty_lists,
)
TAGS = Role(name="tags", option="--tags", usual=("tags", "ner_tags"), word="list of tags", title="tag")


@dataclass(frozen=True)
class TagAnswers:
    """A tag for each token."""

    labels: Labels | None = None

    role: ClassVar[Role] = TAGS
    plural: ClassVar[str] = "tags"

    def read(self, batch: pa.RecordBatch, columns: Columns, where: str, before: int) -> pa.Array:
        return list_column(batch, columns["tags"], where, before, TAGS.option)

    def joined(self, pieces: Sequence[pa.Array], columns: Columns, where: str) -> tuple[pa.Array, bool]:
        return pa.concat_arrays(pieces), False

    def left_out(self, tables: Sequence[Table]) -> bool:
        return not self.found(tables)

    def found(self, tables: Sequence[Table], rows: Rows = None) -> bool:
        return any(table.answers is not None for table, _ in rows_by_table(tables, rows))

    def attach(self, chosen: Mapping[str, Selected], name: str, need: bool) -> tuple[dict[str, Examples], Labels]:
        found = {split: one.examples for split, one in chosen.items()}
        for split, one in chosen.items():
            if one.answered:
                tags = pa.concat_arrays([table.answers for table in one.tables])
                tags = tags if one.rows is None else tags.take(pa.array(one.rows))
                found[split] = replace(one.examples, columns={**one.examples.columns, "tags": tags})
        seen = {tag for some in found.values() if "tags" in some.columns for tag in some["tags"].flatten().to_pylist()}
        return found, self.labels or Labels(names=tuple(sorted(seen)))


def tagging(tokens: str | None = None, tags: str | None = None) -> Schema:
    return Schema(inputs=(WORDS,), answer=TagAnswers(), asked={"tokens": tokens, "tags": tags})


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sentences(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"words": ["in", f"Town{start + row}"], "ner_tags": ["O", "B-LOC"]} for row in range(count)]


def test_a_folder_of_sentences_with_tags(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", sentences(20))
    write(tmp_path / "test.jsonl", [{"words": ["only"]}])
    splits = load(tmp_path, tagging())
    assert (len(splits.train), len(splits.dev), splits.test) == (18, 2, None)
    assert splits.label_space.names == ("B-LOC", "O")
    assert "test.jsonl has no tags and is left out" in splits.note
    assert splits.dev["tokens"].to_pylist()[0][0] == "in" and splits.dev["tags"].to_pylist()[0] == ["O", "B-LOC"]
    scored = load_to_score(tmp_path, tagging(), "dev")
    assert scored.ids == splits.dev.ids and scored.fingerprint == splits.dev.fingerprint
    bare = load_inputs(tmp_path, tagging())
    assert list(bare.columns) == ["tokens"] and len(bare) == 20
    assert np.array_equal(bare.take([3])["tokens"].to_pylist(), [["in", "Town3"]])


def test_fingerprints_tell_tokens_and_tags_apart(tmp_path: Path) -> None:
    rows = sentences(12)
    whole = load_to_score(write(tmp_path / "a.jsonl", rows), tagging())
    rows[3]["ner_tags"] = ["O", "O"]
    tagged = load_to_score(write(tmp_path / "a.jsonl", rows), tagging())
    rows[3]["words"] = ["in Town3"]
    joined = load_to_score(write(tmp_path / "a.jsonl", rows), tagging())
    assert whole.text_fingerprint == tagged.text_fingerprint != joined.text_fingerprint
    assert len({one.fingerprint for one in (whole, tagged, joined)}) == 3
    # Sentences of the same words are in one split, however the words are cut.
    keys = [set(some.ids) for some in (load(tmp_path / "a.jsonl", tagging()).dev,)]
    rows[3]["words"] = ["in", "Town3"]
    assert [set(load(write(tmp_path / "a.jsonl", rows), tagging()).dev.ids)] == keys


def test_errors_are_worded_by_the_roles(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = sentences(6)
    rows[1]["words"], rows[4]["words"] = [], ["fine", ""]
    path = write(tmp_path / "a.jsonl", rows)
    empty = r"a.jsonl, row 2 \(also 5\): the list of tokens in column 'words' is empty; fill it in"
    for read in (load_to_score, open_texts):
        with pytest.raises(UserError, match=empty):
            read(path, tagging())
    with pytest.raises(UserError) as raised:
        load(write(tmp_path / "b.jsonl", [{"a": 1}]), tagging())
    assert raised.value.lines == (
        "b.jsonl: no token column; the columns are 'a'; name one with --tokens",
        "b.jsonl: no tag column; the columns are 'a'; name one with --tags",
    )
    with pytest.raises(UserError, match=r"c.jsonl, row 1: column 'words' holds int64, not lists of texts"):
        load(write(tmp_path / "c.jsonl", [{"words": 3, "tags": ["O"]}]), tagging())
    with pytest.raises(UserError, match="--tokens and --tags both name the column 'words'"):
        load(path, tagging("words", "words"))
