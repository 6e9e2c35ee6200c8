"""Sources and targets as tokens: what is cut, what every target ends with, and what a batch is scored on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from text_tokenizers import word_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.tokens import token_cache
from stillery.data.tokens.collate import collate_generation
from stillery.data.tokens.encode_generation import GenerationFormat, end_of, prompts, tokenise_generation
from stillery.data.tokens.token_cache import cached_generation_tokens, generation_token_key
from stillery.errors import UserError
from stillery.evaluation.generate import Decoding, generate_ids
from stillery.models.model_inputs import accepted_inputs, targets_of

START, END, LINE, COLON, ANSWER = 1, 2, 4, 5, 7
KINDS = {"t5": "encoder-decoder", "bart": "encoder-decoder", "gpt2": "decoder", "llama": "decoder"}


def words(*numbers):
    return " ".join(f"w{number}" for number in numbers)


def ids(*numbers):
    return [8 + number for number in numbers]


def examples(count=6, seed=0):
    random = np.random.default_rng(seed)
    texts = [[words(*random.integers(0, 100, random.integers(1, 9))) for _ in range(count)] for _ in range(2)]
    return of(*texts)


def of(sources, targets):
    return Examples(
        ids=tuple(f"e{row}" for row in range(len(sources))),
        columns=columns_of(
            source=pa.array(sources, pa.large_string()),
            target=None if targets is None else pa.array(targets, pa.large_string()),
        ),
        source="a.jsonl",
    )


def form(kind, max_source, max_target=9, **around):
    return GenerationFormat(kind=kind, max_source=max_source, max_target=max_target, **around)


def rows(tokens):
    return [tokens.flat[start:end].tolist() for start, end in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


def test_an_encoder_decoders_sources_and_targets():
    one = of([words(1, 2)], [words(3)])
    tokens = tokenise_generation(one, word_tokenizer("t5"), form("encoder-decoder", max_source=9, max_target=9))
    assert (rows(tokens.source), rows(tokens.target)) == ([[*ids(1, 2), END]], [[*ids(3), END]])
    assert tokens.prompt_lengths is None
    framed = tokenise_generation(one, word_tokenizer("bart"), form("encoder-decoder", max_source=9, max_target=9))
    assert (rows(framed.source), rows(framed.target)) == ([[START, *ids(1, 2), END]], [[START, *ids(3), END]])
    # A tokenizer without end token of its own still gets one behind each target.
    bare = tokenise_generation(one, word_tokenizer("gpt2"), form("encoder-decoder", max_source=9, max_target=9))
    assert (rows(bare.source), rows(bare.target)) == ([ids(1, 2)], [[*ids(3), END]])


def test_a_prefix_is_read_by_encoder_decoders_alone():
    one = of([words(1)], [words(3)])
    asked = {"max_source": 9, "max_target": 9, "prefix": "translate : "}
    tokens = tokenise_generation(one, word_tokenizer("t5"), form("encoder-decoder", **asked))
    assert rows(tokens.source) == [[6, COLON, *ids(1), END]]
    tokens = tokenise_generation(one, word_tokenizer("gpt2"), form("decoder", **asked, prompt="{source} :"))
    assert rows(tokens.source) == [[*ids(1), COLON, *ids(3), END]]


@pytest.mark.parametrize(("family", "start"), [("gpt2", []), ("llama", [START])])
def test_a_decoders_prompt_target_and_end_in_one_row(family, start):
    some = of([words(1, 2), words(9)], [words(3), words(4, 5)])
    template = "answer {source} \n "
    tokens = tokenise_generation(
        some, word_tokenizer(family), form("decoder", max_source=9, max_target=9, prompt=template)
    )
    before = [[*start, ANSWER, *ids(1, 2), LINE], [*start, ANSWER, *ids(9), LINE]]
    assert rows(tokens.source) == [[*before[0], *ids(3), END], [*before[1], *ids(4, 5), END]]
    assert tokens.prompt_lengths.tolist() == [len(one) for one in before]
    assert tokens.target is None and tokens.target_lengths.tolist() == [2, 3]
    shown = prompts(some, word_tokenizer(family), form("decoder", max_source=9, prompt=template))
    assert rows(shown) == before


@pytest.mark.parametrize("family", KINDS)
def test_a_target_that_is_cut_keeps_its_end(family):
    some = of([words(1)] * 3, [words(*range(10, 20)), words(10, 11, 12), words(10)])
    tokens = tokenise_generation(some, word_tokenizer(family), form(KINDS[family], max_source=9, max_target=5))
    written = rows(tokens.source if tokens.target is None else tokens.target)
    written = [row[-size:] for row, size in zip(written, tokens.target_lengths, strict=True)]
    lead = [START] if family == "bart" else []
    assert written[0] == [*lead, *ids(*range(10, 14))[: 4 - len(lead)], END]
    assert written[1] == [*lead, *ids(10, 11, 12), END] and written[2] == [*lead, *ids(10), END]
    assert (tokens.cut_sources, tokens.cut_targets) == (0, 1)


def test_a_prompt_that_is_too_long_keeps_what_follows_the_source():
    some = of([words(*range(20)), words(1, 2, 3), words(1, 2, 3, 4)], [words(5)] * 3)
    shown = prompts(some, word_tokenizer("llama"), form("decoder", max_source=6, prompt="answer {source} \n"))
    assert rows(shown) == [[START, ANSWER, *ids(*found), LINE] for found in ((0, 1, 2), (1, 2, 3), (1, 2, 3))]
    assert shown.truncated == 2 and shown.max_length == 6
    cut = prompts(some, word_tokenizer("t5"), form("encoder-decoder", max_source=4))
    assert rows(cut) == [[*ids(*found), END] for found in ((0, 1, 2), (1, 2, 3), (1, 2, 3))]
    assert cut.truncated == 2


@pytest.mark.parametrize(("family", "special"), [("llama", 1), ("gpt2", 0)])
def test_a_template_that_leaves_no_room_for_a_source(family, special):
    some, template = of([words(1, 2, 3), words(4)], None), "translate answer {source} \n"
    shown = prompts(some, word_tokenizer(family), form("decoder", max_source=4 + special, prompt=template))
    assert [row[2 + special :] for row in rows(shown)] == [[*ids(1), LINE], [*ids(4), LINE]]
    said = " and 1 special" if special else ""
    with pytest.raises(UserError, match=rf"beside 3 of its template{said}; raise --max-length.* or shorten --prompt"):
        prompts(some, word_tokenizer(family), form("decoder", max_source=3 + special, prompt=template))


def test_a_prefix_that_leaves_no_room_for_a_source():
    some, asked = of([words(1, 2, 3)], [words(1)]), {"max_source": 4, "prefix": "translate : "}
    assert rows(prompts(some, word_tokenizer("t5"), form("encoder-decoder", **asked))) == [[6, COLON, *ids(1), END]]
    with pytest.raises(UserError, match="beside 2 of the prefix and 2 special; raise --max-length or shorten --prefix"):
        prompts(some, word_tokenizer("bart"), form("encoder-decoder", **asked))


@pytest.mark.parametrize("family", KINDS)
def test_a_length_that_is_asked_for_wins_over_the_tokenizers(family):
    long = of([words(*range(30))], [words(*range(25))])
    tokens = tokenise_generation(
        long, word_tokenizer(family, longest=10), form(KINDS[family], max_source=40, max_target=30)
    )
    assert (tokens.cut_sources, tokens.cut_targets) == (0, 0) and tokens.target_lengths[0] >= 26
    assert tokens.source.lengths[0] >= 30


@pytest.mark.parametrize("family", KINDS)
def test_lengths_and_many_examples(family):
    some = examples(2500)
    tokenizer = word_tokenizer(family)
    before = tokenizer.backend_tokenizer.to_str()
    tokens = tokenise_generation(some, tokenizer, form(KINDS[family], max_source=7, max_target=6))
    assert len(tokens) == 2500 and tokens.ids == some.ids
    assert tokens.target_lengths.min() >= 2 and tokens.target_lengths.max() == 6
    if KINDS[family] == "decoder":
        assert tokens.encoder_lengths is None and np.array_equal(tokens.decoder_lengths, tokens.lengths)
        assert np.array_equal(tokens.lengths, tokens.prompt_lengths + tokens.target_lengths)
    else:
        assert np.array_equal(tokens.lengths, tokens.encoder_lengths + tokens.decoder_lengths)
        assert np.array_equal(tokens.decoder_lengths, tokens.target_lengths)
    assert (tokens.source.flat.dtype, tokens.source.offsets.dtype) == (np.int32, np.int64)
    alone = tokenise_generation(some.take([1234]), tokenizer, form(KINDS[family], max_source=7, max_target=6))
    assert rows(alone.source) == rows(tokens.source)[1234:1235]
    assert tokenizer.backend_tokenizer.to_str() == before


def test_a_tokenizer_with_segments_and_no_end_token(tokenizer):
    some = of(["a good film", "bad"], ["it was fine", "no"])
    for kind in ("encoder-decoder", "decoder"):
        tokens = tokenise_generation(some, tokenizer, form(kind, max_source=20, max_target=20))
        batch = collate_generation(tokens, np.arange(2), 0)
        assert set(batch.inputs) == {"input_ids", "attention_mask", "labels"}
        assert (batch.inputs["labels"] == end_of(tokenizer)).sum() == 2
    assert tokenizer.decode(rows(tokens.source)[0]) == "[CLS] a good film it was fine [SEP]"


def test_what_cannot_be_tokenised_is_one_line():
    one, t5, gpt2 = of([words(1)], [words(3)]), word_tokenizer("t5"), word_tokenizer("gpt2")
    with pytest.raises(UserError, match=r"a.jsonl: there are no targets to learn from"):
        tokenise_generation(of([words(1)], None), t5, form("encoder-decoder", max_source=9, max_target=9))
    with pytest.raises(UserError, match="'encoder' writes no text"):
        tokenise_generation(one, t5, form("encoder", max_source=9, max_target=9))
    for template in ("no place", "{source} {source}"):
        with pytest.raises(UserError, match=r"must have \{source\} in it once"):
            prompts(one, gpt2, form("decoder", max_source=9, prompt=template))
    with pytest.raises(UserError, match="no room for a source beside 2"):
        prompts(of([words(1, 2)], None), gpt2, form("decoder", max_source=2, prompt="{source} answer :"))
    with pytest.raises(UserError, match="at most 1 tokens has no room"):
        tokenise_generation(one, t5, form("encoder-decoder", max_source=9, max_target=1))
    with pytest.raises(UserError, match="at most 1 tokens has no room"):
        tokenise_generation(one, gpt2, form("decoder", max_source=9, max_target=1))
    with pytest.raises(UserError, match="at most 1 tokens has no room for a source beside 1 special; raise"):
        prompts(one, t5, form("encoder-decoder", max_source=1))
    gpt2.eos_token = None
    with pytest.raises(UserError, match="has no end token"):
        tokenise_generation(one, gpt2, form("decoder", max_source=9, max_target=9))


def slowly(tokens, index, pad_id, pad_to, side):
    """A batch made token by token."""
    sources = [rows(tokens.source)[row] for row in index]
    targets = None if tokens.target is None else [rows(tokens.target)[row] for row in index]

    def width(some, limit):
        longest = max(map(len, some))
        return max(longest, min(-(-longest // pad_to) * pad_to, limit))

    wide = width(sources, tokens.source.max_length)
    made = {"input_ids": [], "attention_mask": [], "labels": []}
    for place, source in enumerate(sources):
        fill = wide - len(source)
        if targets is None:
            prompt = int(tokens.prompt_lengths[index[place]])
            labels, gap = [-100] * prompt + source[prompt:], [-100] * fill
            made["labels"].append(labels + gap if side == "right" else gap + labels)
        else:
            missing = width(targets, tokens.target.max_length) - len(targets[place])
            made["labels"].append(targets[place] + [-100] * missing)
        padding, mask = [pad_id] * fill, [1] * len(source)
        made["input_ids"].append(source + padding if side == "right" else padding + source)
        made["attention_mask"].append(mask + [0] * fill if side == "right" else [0] * fill + mask)
    return made


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", KINDS)
def test_a_batch_is_what_it_is_token_by_token(family, side):
    tokens = tokenise_generation(examples(40), word_tokenizer(family), form(KINDS[family], max_source=8, max_target=7))
    # Padding is the end token, as for GPT-2: ends are scored all the same.
    for index, pad_to in (([3, 17, 2, 39], 8), ([5], 1), (list(range(40)), 4)):
        batch = collate_generation(tokens, np.array(index), END, pad_to, side)
        expected = slowly(tokens, index, END, pad_to, side)
        assert {name: tensor.tolist() for name, tensor in batch.inputs.items()} == expected
        assert batch.ids == tuple(f"e{row}" for row in index) and batch.index.tolist() == index
        assert batch.labels is None and all(tensor.dtype == torch.int64 for tensor in batch.inputs.values())
        scored = (batch.inputs["labels"] != -100).sum(1)
        assert scored.tolist() == tokens.target_lengths[index].tolist()
        assert (batch.inputs["labels"] == END).sum(1).tolist() == [1] * len(index)


def test_an_empty_batch():
    tokens = tokenise_generation(examples(3), word_tokenizer("gpt2"), form("decoder", max_source=8, max_target=7))
    batch = collate_generation(tokens, np.array([], dtype=np.int64), 0)
    assert len(batch) == 0 and batch.inputs["labels"].shape == (0, 0)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_a_models_loss_is_that_of_the_target_tokens(family, side):
    """The labels mean to transformers what they mean here: every target token is scored once, and no prompt."""
    tokenizer = word_tokenizer(family)
    tokens = tokenise_generation(examples(5), tokenizer, form(KINDS[family], max_source=9, max_target=9))
    torch.manual_seed(0)
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=108, n_embd=16, n_layer=1, n_head=2, n_positions=32))
    else:
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
        model = T5ForConditionalGeneration(T5Config(vocab_size=108, decoder_start_token_id=0, **sizes))
    model.eval()
    inputs = collate_generation(tokens, np.arange(5), 0, side=side).inputs
    targets = targets_of(model, inputs)
    assert (targets != -100).sum(1).tolist() == tokens.target_lengths.tolist()
    with torch.no_grad():
        logits = model(**accepted_inputs(model, inputs)).logits
        together = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
        alone = [collate_generation(tokens, np.array([row]), 0, pad_to=1).inputs for row in range(5)]
        losses = [model(**one).loss.item() for one in alone]
    assert together == pytest.approx(float(np.dot(losses, tokens.target_lengths)), rel=1e-5)


def test_generation_starts_from_the_prompts_of_training():
    tokenizer = word_tokenizer("gpt2")
    some = examples(4)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=108, n_embd=16, n_layer=1, n_head=2, n_positions=40)).eval()
    model.generation_config.eos_token_id = END
    shown = prompts(some, tokenizer, form("decoder", max_source=12))
    tokens = tokenise_generation(some, tokenizer, form("decoder", max_source=12, max_target=12))
    assert [row[: len(one)] for row, one in zip(rows(tokens.source), rows(shown), strict=True)] == rows(shown)
    written = generate_ids(model, tokenizer, shown, decoding=Decoding(beams=1, max_new_tokens=3), description=None)
    assert len(written) == 4 and all(1 <= len(text) <= 3 for text in written)


@pytest.mark.parametrize("family", ["bart", "llama"])
@pytest.mark.usefixtures("verbose")
def test_tokens_are_kept(family, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path))
    monkeypatch.setattr(token_cache, "FEWEST", 10)
    some, tokenizer, kind = examples(50), word_tokenizer(family), KINDS[family]
    asked = {"max_source": 6, "max_target": 5}
    made = cached_generation_tokens(some, tokenizer, form(kind, **asked))
    monkeypatch.setattr(token_cache, "tokenise_generation", None)
    read = cached_generation_tokens(some, tokenizer, form(kind, **asked))
    assert "read from the cache" in capsys.readouterr().err
    assert read.ids == made.ids and (read.cut_sources, read.cut_targets) == (made.cut_sources, made.cut_targets)
    assert made.cut_targets > 0 and np.array_equal(read.target_lengths, made.target_lengths)
    for one, other in ((made.source, read.source), (made.target, read.target)):
        if one is None:
            assert other is None
            continue
        assert np.array_equal(one.flat, other.flat) and np.array_equal(one.offsets, other.offsets)
        assert (one.max_length, one.truncated) == (other.max_length, other.truncated)
    batch = collate_generation(read, np.arange(4), 0)
    assert all(
        torch.equal(batch.inputs[name], value)
        for name, value in collate_generation(made, np.arange(4), 0).inputs.items()
    )


def test_what_tokens_depend_on_changes_their_key():
    some, t5 = examples(3), word_tokenizer("t5")
    base = {"max_source": 6, "max_target": 5}
    keys = [
        generation_token_key(some, t5, form("encoder-decoder", **base)),
        generation_token_key(some, t5, form("decoder", **base)),
        generation_token_key(some, t5, form("decoder", **base, prompt="{source} :")),
        generation_token_key(some, t5, form("encoder-decoder", **base, prefix="translate : ")),
        generation_token_key(some, t5, form("encoder-decoder", **(base | {"max_target": 6}))),
        generation_token_key(some, word_tokenizer("bart"), form("encoder-decoder", **base)),
        generation_token_key(examples(3, seed=1), t5, form("encoder-decoder", **base)),
    ]
    assert len(set(keys)) == len(keys) and None not in keys
    assert generation_token_key(some, t5, form("encoder-decoder", **base)) == keys[0]
