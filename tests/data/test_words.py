"""Words become word pieces with a label on the first of each, whatever the tokenizer does with a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    CanineTokenizer,
    DataCollatorForTokenClassification,
    RobertaTokenizer,
)

from stillery.data.tokens.encode_words import WordTokens, first_piece_labels, refuse_slow, tokenise_words
from stillery.data.tokens.word_batches import collate_words
from stillery.errors import UserError
from stillery.models.load_model import load_encoder, load_tokenizer


def lists(sentences: list[list[str]]) -> pa.Array:
    return pa.array(sentences, type=pa.list_(pa.large_string()))


SENTENCES = [
    ["Schwarzenegger", "visited", "Wuppertal", "."],
    ["unbelievably"],
    ["\u200b", "U.N.", "\x07", "official", "Ekeus"],
    ["a"] * 30,
]
TAGS = np.concatenate([[1, 0, 3, 0], [2], [4, 1, 0, 0, 2], np.arange(30) % 5])


def spelt(words: WordTokens, tokenizer: Any, row: int) -> list[str]:
    tokens = words.tokens
    ids = tokens.flat[tokens.offsets[row] : tokens.offsets[row + 1]]
    found: list[str] = tokenizer.convert_ids_to_tokens(ids.tolist())
    return found


def test_labels_lie_on_first_pieces(tokenizer: Any) -> None:
    words = tokenise_words(lists(SENTENCES), tokenizer, 12)
    labels = first_piece_labels(words, TAGS)
    pieces = "[CLS] schwarz ##ene ##gger visited wu ##pper ##tal . [SEP]"
    assert spelt(words, tokenizer, 0) == pieces.split()
    assert labels[: words.tokens.offsets[1]].tolist() == [-100, 1, -100, -100, 0, 3, -100, -100, 0, -100]
    assert words.tokens.types is not None and not words.tokens.types.any()
    assert words.words == 40 and len(words) == 4


def test_a_word_that_is_nothing_to_the_tokenizer_is_unknown_to_it(tokenizer: Any) -> None:
    """BERT removes zero-width spaces and control characters: their words would have no piece, and so no prediction."""
    assert tokenizer(["\u200b", "\x07"], is_split_into_words=True, add_special_tokens=False)["input_ids"] == []
    words = tokenise_words(lists(SENTENCES), tokenizer, 14)
    pieces = spelt(words, tokenizer, 2)
    starts = words.first[words.offsets[2] : words.offsets[3]] - words.tokens.offsets[2]
    assert [pieces[place] for place in starts] == ["[UNK]", "u", "[UNK]", "official", "ek"]
    assert words.unread == 0 and words.first[: words.offsets[3]].min() > 0


def test_without_an_unknown_token_such_a_word_is_counted(tokenizer: Any) -> None:
    class Bare:
        """MiniLM's tokenizer without a token for what it does not know."""

        unk_token = None

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def __call__(self, *given: Any, **options: Any) -> Any:
            return tokenizer(*given, **options)

    words = tokenise_words(lists(SENTENCES), Bare(), 14)  # type: ignore[arg-type]
    assert (words.unread, words.cut) == (2, 18)
    assert np.flatnonzero(words.first[words.offsets[2] : words.offsets[3]] < 0).tolist() == [0, 2]
    labels = first_piece_labels(words, TAGS)
    assert (labels >= 0).sum() == 40 - 20
    assert words.notes("dev")[1] == (
        "dev: the tokenizer has no token for 2 words, which are scored as words that were given no tag"
    )


def test_words_that_are_cut_off_are_counted_and_said(tokenizer: Any) -> None:
    words = tokenise_words(lists(SENTENCES), tokenizer, 12)
    assert (words.cut, words.unread, words.tokens.truncated, words.tokens.max_length) == (20, 0, 1, 12)
    assert (words.first[words.offsets[3] :] >= 0).tolist() == [True] * 10 + [False] * 20
    assert words.notes("train") == [
        "train: 20 of 40 words are beyond the 12 tokens of --max-length, in 1 sentence; they are not learnt, and are "
        "scored as words that were given no tag"
    ]
    assert tokenise_words(lists(SENTENCES[:2]), tokenizer, 12).notes("train") == []
    # A word whose end is cut off still begins within the length.
    cut = tokenise_words(lists([["a", "Schwarzenegger"]]), tokenizer, 4)
    assert cut.cut == 0 and cut.tokens.truncated == 1


def test_a_word_cut_in_two_at_the_left_does_not_begin(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "truncation_side", "left")
    words = tokenise_words(lists([["Schwarzenegger", "a"]]), tokenizer, 5)
    assert spelt(words, tokenizer, 0) == ["[CLS]", "##ene", "##gger", "a", "[SEP]"]
    assert words.first.tolist() == [-1, 3] and words.cut == 1


def test_no_room(tokenizer: Any) -> None:
    with pytest.raises(
        UserError, match="max length 2 leaves no room for words beside 2 special tokens; raise --max-le"
    ):
        tokenise_words(lists(SENTENCES), tokenizer, 2)


def test_a_slow_tokenizer_is_refused() -> None:
    line = (
        r"my/model: its tokenizer \(CanineTokenizer\) does not say which word a token is a piece of; use a model with "
        r"a fast tokenizer \(tokenizer.json\)"
    )
    with pytest.raises(UserError, match=line):
        refuse_slow(CanineTokenizer(), "my/model")
    with pytest.raises(UserError, match="does not say which word"):
        tokenise_words(lists(SENTENCES), CanineTokenizer(), 20)


def byte_level(folder: Path) -> str:
    """A checkpoint with a tokenizer as RoBERTa's: it knows where a word begins by the space before it."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {word: place for place, word in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merges = [("Ġ", "h"), ("Ġh", "i"), ("h", "i")]
    for one in merges:
        vocabulary["".join(one)] = len(vocabulary)
    RobertaTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    config = BertConfig(vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    BertModel(config).save_pretrained(folder)
    return str(folder)


def test_a_byte_level_tokenizer_begins_each_word_with_a_space(tmp_path: Path) -> None:
    name = byte_level(tmp_path)
    plain, tokenizer = load_tokenizer(name), load_tokenizer(name, words=True)
    sentence = lists([["hi", "hi", "x"]])
    assert spelt(tokenise_words(sentence, plain, 20), plain, 0) == ["<s>", "hi", "hi", "x", "</s>"]
    words = tokenise_words(sentence, tokenizer, 20)
    assert spelt(words, tokenizer, 0) == ["<s>", "Ġhi", "Ġhi", "Ġ", "x", "</s>"] and words.first.tolist() == [1, 2, 3]
    # As everybody will read them who has only the exported folder.
    tokenizer.save_pretrained(tmp_path / "exported")
    again = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert spelt(tokenise_words(sentence, again, 20), again, 0)[1] == "Ġhi"
    assert load_encoder(name, words=True).tokenizer("hi hi")["input_ids"] == tokenizer("hi hi")["input_ids"]
    assert load_encoder(name).tokenizer("hi hi")["input_ids"] == plain("hi hi")["input_ids"]


WORD = st.sampled_from(
    ["a", "Schwarzenegger", "U.N.", "\u200b", "\x07", "unbelievably", "中文", "é", "[SEP]", "...", "3,000"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(WORD, min_size=1, max_size=12), min_size=1, max_size=5), st.integers(3, 30))
def test_every_word_is_at_its_first_piece_or_cut_off(tokenizer: Any, sentences: list[list[str]], limit: int) -> None:
    words = tokenise_words(lists(sentences), tokenizer, limit)
    assert words.unread == 0 and words.cut == (words.first < 0).sum()
    for row, sentence in enumerate(sentences):
        first = words.first[words.offsets[row] : words.offsets[row + 1]]
        kept = first[first >= 0] - words.tokens.offsets[row]
        assert len(kept) >= 1 and (first >= 0).tolist() == [True] * len(kept) + [False] * (len(sentence) - len(kept))
        # Each word by itself is what its piece begins with.
        pieces = words.tokens.flat[words.tokens.offsets[row] : words.tokens.offsets[row + 1]]
        for word, place in zip(sentence, kept, strict=False):
            alone = tokenizer(word, add_special_tokens=False)["input_ids"] or [tokenizer.unk_token_id]
            assert pieces[place] == alone[0]


def test_a_batch_is_what_transformers_collates(tokenizer: Any) -> None:
    """Against DataCollatorForTokenClassification and labels made by hand from word_ids."""
    words = tokenise_words(lists(SENTENCES), tokenizer, 16)
    labels = first_piece_labels(words, TAGS)
    index = np.array([2, 0, 1])
    batch = collate_words(words, labels, [f"s{row}" for row in range(4)], index, 0, pad_to=8)
    assert batch.ids == ("s2", "s0", "s1") and batch.labels is None and len(batch) == 3
    features = []
    for row in index:
        given = [word if word not in ("\u200b", "\x07") else "[UNK]" for word in SENTENCES[row]]
        one = tokenizer(given, is_split_into_words=True, truncation=True, max_length=16)
        tags, before, made = TAGS[words.offsets[row] : words.offsets[row + 1]], None, []
        for word in one.word_ids():
            made.append(-100 if word is None or word == before else int(tags[word]))
            before = word
        features.append({**one, "labels": made})
    expected = DataCollatorForTokenClassification(tokenizer, padding=True, pad_to_multiple_of=8)(features)
    assert batch.inputs.keys() == expected.keys()
    for name, tensor in expected.items():
        assert batch.inputs[name].dtype == tensor.dtype and batch.inputs[name].tolist() == tensor.tolist(), name


def test_without_tags_first_pieces_are_known_and_their_labels_are_not(tokenizer: Any) -> None:
    words = tokenise_words(lists(SENTENCES[:1]), tokenizer, 16)
    assert first_piece_labels(words, None).tolist() == [-100, -1, -100, -100, -1, -1, -100, -100, -1, -100]
    assert "labels" not in collate_words(words, None, ["s"], np.array([0]), 0).inputs
