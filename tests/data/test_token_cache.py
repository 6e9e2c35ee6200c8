"""Tokens from the cache are the tokenizer's, bit for bit, and belong to exactly what they were made from."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerBase
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.data.tokens.token_cache import cached_tokens, token_key
from stillery.jobs.kinds.classification.inputs import tokens_of
from stillery.models.load_model import load_tokenizer

ROWS = 120
HIT = "read from the cache"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("STILLERY_CACHE", str(folder))
    monkeypatch.setattr("stillery.data.tokens.token_cache.FEWEST", 100)
    return folder


def made(rows: int = ROWS, pairs: bool = True) -> Examples:
    return Examples(
        ids=tuple(map(str, range(rows))),
        columns=columns_of(
            text=pa.array([f"a film of {row} naïve scenes " * (1 + row % 5) for row in range(rows)], pa.large_string()),
            text_pair=pa.array([f"the {row}th review" for row in range(rows)], pa.large_string()) if pairs else None,
        ),
        labels=np.arange(rows) % 3,
        source="a.csv",
    )


def same(one: Tokens, other: Tokens) -> bool:
    def content(tokens: Tokens) -> list[object]:
        arrays = [tokens.flat, tokens.offsets, tokens.types, tokens.lengths]
        bits = [array if array is None else (array.dtype, array.tobytes()) for array in arrays]
        return [*bits, tokens.truncated, tokens.max_length]

    return content(one) == content(other)


def entries(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("tokens/*") if path.is_dir())


@pytest.mark.usefixtures("verbose")
def test_the_second_reading_is_the_first(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path))
    examples = made(2100)
    fresh = tokenise(examples, tokenizer, 16)
    assert fresh.truncated > 0
    first = tokens_of(examples, tokenizer, 16, "train")
    assert HIT not in capsys.readouterr().err
    second = tokens_of(examples, tokenizer, 16, "train")
    said = capsys.readouterr().err
    assert f"tokens of 2,100 texts {HIT}" in said and f"{fresh.truncated} of 2100 texts are longer" in said
    assert same(first, fresh) and same(second, fresh)
    assert not second.flat.flags.writeable
    index = np.array([3, 2099, 0])
    for name, tensor in collate(examples, fresh, index, 0).inputs.items():
        assert collate(examples, second, index, 0).inputs[name].equal(tensor)


def test_the_key_is_what_the_tokens_depend_on(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, texts = made(20), made(20)["text"].to_pylist()
    other = load_tokenizer("minilm-l6")
    key = token_key(examples, tokenizer, 64)

    def with_columns(**columns: pa.Array) -> Examples:
        return dataclasses.replace(examples, columns={**examples.columns, **columns})

    assert key is not None and token_key(examples, other, 64) == key
    other(texts[:2], truncation=True, max_length=7, padding=True)
    assert token_key(examples, other, 64) == key, "the last call's truncation is no part of a tokenizer"
    assert token_key(dataclasses.replace(made(20), ids=tuple("abcdefghijklmnopqrst"), labels=None), other, 64) == key
    # A slice of a longer array says the same as a copy.
    sliced = {role: column[:20] for role, column in made(30).columns.items()}
    assert token_key(dataclasses.replace(made(30), columns=sliced), other, 64) == key
    changed = {
        "length": token_key(examples, tokenizer, 32),
        "text": token_key(with_columns(text=pa.array([*texts[:-1], "x"], pa.large_string())), other, 64),
        "moved": token_key(with_columns(text=examples["text_pair"], text_pair=examples["text"]), other, 64),
        "no pairs": token_key(made(20, pairs=False), other, 64),
    }
    monkeypatch.setattr(other, "model_max_length", 48)
    changed["limit of the tokenizer"] = token_key(examples, other, 64)
    monkeypatch.undo()
    monkeypatch.setattr(other, "truncation_side", "left")
    changed["side"] = token_key(examples, other, 64)
    monkeypatch.undo()
    other.add_tokens(["naïve"])
    changed["tokenizer"] = token_key(examples, other, 64)
    assert None not in changed.values()
    assert len({key, *changed.values()}) == 1 + len(changed)


def test_a_saved_tokenizer_is_the_same(tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    assert token_key(made(3), AutoTokenizer.from_pretrained(tmp_path), 64) == token_key(made(3), tokenizer, 64)


def legacy(folder: Path, words: list[str], **settings: object) -> BertTokenizerLegacy:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    return BertTokenizerLegacy(str(folder / "vocab.txt"), model_max_length=64, **settings)


@pytest.mark.usefixtures("verbose")
def test_a_tokenizer_in_python(cache: Path, tmp_path: Path, capsys) -> None:
    words = ["a", "film", "of", "scenes", "the", "review"]
    slow, examples = legacy(tmp_path / "one", words), made()
    assert not slow.is_fast
    fresh = tokenise(examples, slow, 12)
    alone = slow(examples["text"][4].as_py(), examples["text_pair"][4].as_py(), truncation=True, max_length=12)
    assert fresh.flat[slice(*fresh.offsets[4:6])].tolist() == alone["input_ids"]
    assert same(cached_tokens(examples, slow, 12), fresh)
    assert same(cached_tokens(examples, legacy(tmp_path / "two", words), 12), fresh)
    assert HIT in capsys.readouterr().err
    others = [legacy(tmp_path / "three", words[::-1]), legacy(tmp_path / "four", words, do_lower_case=False)]
    keys = {token_key(examples, tokenizer, 12) for tokenizer in (slow, *others)}
    assert len(keys) == 3 and None not in keys


def test_a_class_of_ones_own_is_not_cached(cache: Path, tmp_path: Path) -> None:
    class Own(BertTokenizerLegacy):
        pass

    legacy(tmp_path / "one", ["a"])
    own = Own(str(tmp_path / "one" / "vocab.txt"), model_max_length=64)
    assert token_key(made(3), own, 12) is None
    assert same(cached_tokens(made(), own, 12), tokenise(made(), own, 12)) and not entries(cache)


@pytest.mark.parametrize("setting", ["off", "small", "limit"])
def test_when_nothing_is_kept(
    tokenizer: PreTrainedTokenizerBase, cache: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    if setting == "off":
        monkeypatch.setenv("STILLERY_CACHE", "off")
    if setting == "limit":
        monkeypatch.setenv("STILLERY_CACHE_LIMIT", "0.000001")
    examples = made(99 if setting == "small" else ROWS)
    for _ in range(2):
        assert len(cached_tokens(examples, tokenizer, 8)) == len(examples)
    assert not cache.exists()


def cut_short(entry: Path) -> None:
    file = entry / "flat.npy"
    file.write_bytes(file.read_bytes()[:-40])


def change_a_token(entry: Path) -> None:
    file = entry / "flat.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")


def change_the_facts(entry: Path) -> None:
    file = entry / "meta.json"
    file.write_text(file.read_text().replace('"max_length": 16', '"max_length": 61'))


@pytest.mark.parametrize(
    "damage",
    [
        cut_short,
        change_a_token,
        change_the_facts,
        lambda entry: (entry / "meta.json").write_text("{"),
        lambda entry: (entry / "meta.json").write_text("[]"),
        lambda entry: (entry / "meta.json").unlink(),
        lambda entry: (entry / "types.npy").unlink(),
    ],
)
@pytest.mark.usefixtures("verbose")
def test_a_damaged_entry_is_made_again(tokenizer: PreTrainedTokenizerBase, cache: Path, capsys, damage) -> None:
    examples = made()
    fresh = cached_tokens(examples, tokenizer, 16)
    (entry,) = entries(cache)
    damage(entry)
    capsys.readouterr()
    assert same(cached_tokens(examples, tokenizer, 16), fresh)
    said = capsys.readouterr().err
    assert "is damaged; it is made again" in said and HIT not in said
    assert same(cached_tokens(examples, tokenizer, 16), fresh)
    assert HIT in capsys.readouterr().err and entries(cache) == [entry]


def test_what_was_read_does_not_change_with_the_files(tokenizer: PreTrainedTokenizerBase, cache: Path) -> None:
    """Of a memory map zeros would be read beyond the end of the file, or the process would be killed (SIGBUS)."""
    examples = made()
    fresh = cached_tokens(examples, tokenizer, 8)
    again = cached_tokens(examples, tokenizer, 8)
    (entry,) = entries(cache)
    for file in entry.glob("*.npy"):
        # Less than a page each, so that a test that fails does not end the process.
        assert 128 < file.stat().st_size < 4096
        os.truncate(file, 1)
    assert same(again, fresh)


def test_a_folder_that_cannot_be_written_is_said_once(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("stillery.data.tokens.token_cache.FEWEST", 100)
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "file" / "cache"))
    for limit in (8, 9):
        assert len(cached_tokens(made(), tokenizer, limit)) == ROWS
    said = capsys.readouterr().err
    assert said.count("cannot be written") == 1 and "continuing without it" in said
