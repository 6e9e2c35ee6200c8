from __future__ import annotations

import copy
import logging
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5Config,
    T5ForConditionalGeneration,
)

from stillery.data.schema.examples import Examples
from stillery.data.tokens.encode import Tokens, tokenise
from stillery.errors import UserError
from stillery.evaluation.generate import Decoding, end_ids, generate, generate_ids
from stillery.models.export import export

FAMILIES = ["t5", "bart", "gpt2", "llama"]
SHORT = Decoding(beams=4, max_new_tokens=10)


def tiny(family: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A random model that writes one of thirty words at a time, or its end token."""
    pad, end = tokenizer.pad_token_id, tokenizer.sep_token_id
    shared = {"vocab_size": len(tokenizer), "tie_word_embeddings": False, "pad_token_id": pad, "eos_token_id": end}
    shared["bos_token_id"] = tokenizer.cls_token_id
    torch.manual_seed(3)
    model: PreTrainedModel
    if family == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
        model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=pad, **sizes, **shared))
    elif family == "bart":
        sizes = {"d_model": 16, "max_position_embeddings": 40}
        for half in ("encoder", "decoder"):
            sizes |= {f"{half}_layers": 2, f"{half}_attention_heads": 2, f"{half}_ffn_dim": 32}
        config = BartConfig(decoder_start_token_id=end, forced_eos_token_id=None, **sizes, **shared)
        model = BartForConditionalGeneration(config)
    elif family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=40, **shared))
    else:
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=40, **sizes, **shared))
    # Weights so large that the prompt matters, and that rounding does not decide between two words.
    spoken = torch.zeros(len(tokenizer), 1)
    spoken[2000:2030] = 1
    spoken[end] = 2
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.3 if family == "bart" else 0.5)
        model.get_output_embeddings().weight.mul_(spoken)
    return model.eval()


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    return tiny(request.param, tokenizer)


@pytest.fixture
def gpt2(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    return tiny("gpt2", tokenizer)


@pytest.fixture
def tokens(examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Tokens:
    return tokenise(examples, tokenizer, 30)


def prompts(tokens: Tokens) -> list[list[int]]:
    return [tokens.flat[start:end].tolist() for start, end in zip(tokens.offsets, tokens.offsets[1:], strict=False)]


def one_by_one(model: PreTrainedModel, tokens: Tokens, **settings: Any) -> list[list[int]]:
    """What transformers makes of each prompt alone, without padding, up to the end token."""
    found = []
    for prompt in prompts(tokens):
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        written = model.generate(ids, attention_mask=mask, do_sample=False, **settings)[0].tolist()
        text = written[1:] if model.config.is_encoder_decoder else written[len(prompt) :]
        end = model.config.eos_token_id
        found.append(text[: text.index(end) + 1] if end in text else text)
    return found


def ids_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokens: Tokens,
    decoding: Decoding = SHORT,
    **options: Any,
) -> list[list[int]]:
    return generate_ids(model, tokenizer, tokens, decoding=decoding, description=None, **options)


@pytest.mark.parametrize("beams", [1, 4])
def test_each_text_is_what_transformers_makes_of_its_prompt_alone(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, beams: int
) -> None:
    expected = one_by_one(model, tokens, num_beams=beams, max_new_tokens=10)
    ended = [text[-1] == tokenizer.sep_token_id for text in expected]
    assert len(set(map(tuple, expected))) >= 3, "the texts must be told apart for this test to see their order"
    assert any(ended) and not all(ended), "some texts must end by themselves and some be cut"
    for batch_size in (3, 64):
        found = ids_of(model, tokenizer, tokens, Decoding(beams=beams, max_new_tokens=10), batch_size=batch_size)
        assert found == expected


def test_text_without_prompt_and_special_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens
) -> None:
    texts = generate(model, tokenizer, tokens, decoding=SHORT, description=None)
    words = set(tokenizer.convert_ids_to_tokens(range(2000, 2030)))
    assert all(words >= set(text.split()) for text in texts)
    again = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    end = tokenizer.sep_token_id
    assert again == [[token for token in text if token != end] for text in ids_of(model, tokenizer, tokens)]


def test_lengths_and_repetitions(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens) -> None:
    lengths = [len(text) for text in ids_of(model, tokenizer, tokens, Decoding(max_new_tokens=6, min_new_tokens=5))]
    assert {5, 6} >= set(lengths)
    repeated = [len(text) - len(set(text)) for text in ids_of(model, tokenizer, tokens)]
    assert sum(repeated) > 0
    for text in ids_of(model, tokenizer, tokens, Decoding(max_new_tokens=10, no_repeat_ngram=1)):
        assert len(set(text)) == len(text)


@pytest.mark.parametrize(
    ("penalty", "other"),
    [
        (1.0, {"length_penalty": -2.0}),
        (1.0, {"no_repeat_ngram_size": 2}),
        (3.0, {"early_stopping": True}),
    ],
)
def test_settings_of_the_search_reach_it(
    gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, penalty: float, other: dict[str, Any]
) -> None:
    base = {"max_new_tokens": 10, "length_penalty": penalty}
    ours = base | {name.removesuffix("_size"): value for name, value in other.items()}
    found = ids_of(gpt2, tokenizer, tokens, Decoding(beams=3, **ours))
    assert found == one_by_one(gpt2, tokens, num_beams=3, **base | other)
    assert found != ids_of(gpt2, tokenizer, tokens, Decoding(beams=3, **base))


def test_a_checkpoints_own_decoding_settings_do_not_count_and_stay(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens
) -> None:
    expected = ids_of(model, tokenizer, tokens)
    own = {"num_beams": 2, "do_sample": True, "temperature": 5.0, "top_k": 3, "repetition_penalty": 9.0}
    own |= {"min_length": 35, "max_length": 36, "no_repeat_ngram_size": 1, "length_penalty": -5.0, "use_cache": False}
    model.generation_config.update(**own)
    before = copy.deepcopy(model.generation_config), model.config.to_dict()
    assert ids_of(model, tokenizer, tokens) == expected
    assert (model.generation_config, model.config.to_dict()) == before


def test_a_checkpoints_own_end_tokens_count(
    gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens
) -> None:
    plain = ids_of(gpt2, tokenizer, tokens, Decoding(beams=1, max_new_tokens=10))
    ends = [tokenizer.sep_token_id, plain[1][2]]
    gpt2.generation_config.eos_token_id = ends
    found = ids_of(gpt2, tokenizer, tokens, Decoding(beams=1, max_new_tokens=10))
    cut = [next((at + 1 for at, token in enumerate(text) if token in ends), len(text)) for text in plain]
    assert found == [text[:size] for text, size in zip(plain, cut, strict=True)]
    assert found != plain


def test_a_text_ends_at_the_models_or_the_tokenizers_end_in_plain_transformers_too(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, tmp_path: Path
) -> None:
    greedy = Decoding(beams=1, max_new_tokens=10)
    plain, taught = ids_of(model, tokenizer, tokens, greedy), tokenizer.sep_token_id
    assert end_ids(model, tokenizer) == [taught]
    # A word that some texts come to before their end, and some do not come to.
    own = Counter(token for text in plain for token in set(text[:-1])).most_common(1)[0][0]
    model.config.eos_token_id = model.generation_config.eos_token_id = own
    assert end_ids(model, tokenizer) == [own, taught]
    found = ids_of(model, tokenizer, tokens, greedy)
    cut = [next((at + 1 for at, token in enumerate(text) if token in (own, taught)), len(text)) for text in plain]
    assert found == [text[:size] for text, size in zip(plain, cut, strict=True)]
    assert {own, taught} <= {text[-1] for text in found}
    export(model, tokenizer, tmp_path / "student", "card", end_ids(model, tokenizer))
    assert model.generation_config.eos_token_id == own
    again = type(model).from_pretrained(tmp_path / "student")
    for prompt, text in zip(prompts(tokens), found, strict=True):
        ids = torch.tensor([prompt])
        written = again.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=10)[0]
        assert written[1 if model.config.is_encoder_decoder else len(prompt) :].tolist() == text


def test_nothing_is_said_and_modes_and_random_numbers_go_on_as_before(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(handler)
    model.generation_config.update(max_length=30, min_length=2)
    model.train()
    next(model.children()).eval()
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = ids_of(model, tokenizer, tokens)
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert not said
    assert capfd.readouterr() == ("", "")
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    # In training mode there is dropout: without the mode of evaluation the texts would differ.
    assert ids_of(model.eval(), tokenizer, tokens) == first


def test_a_model_can_train_after_it_wrote(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens
) -> None:
    ids_of(model, tokenizer, tokens)
    ids = torch.tensor(prompts(tokens)[:1])
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.get_output_embeddings().weight.grad.abs().sum() > 0


def test_samples_depend_on_the_seed(gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens) -> None:
    sampling = Decoding(beams=1, sample=True, max_new_tokens=10)
    gpt2.generation_config.update(top_k=1)
    first, again, other = (ids_of(gpt2, tokenizer, tokens, sampling, seed=seed) for seed in (5, 5, 6))
    greedy = ids_of(gpt2, tokenizer, tokens, Decoding(beams=1, max_new_tokens=10))
    assert first == again
    assert first != other
    assert greedy not in (first, other)
    # With next to no temperature, or of all tokens only the likeliest, nothing is left to chance.
    for narrow in ({"temperature": 1e-4}, {"top_p": 1e-6}):
        assert ids_of(gpt2, tokenizer, tokens, Decoding(beams=1, sample=True, max_new_tokens=10, **narrow)) == greedy


def test_a_tokenizer_without_padding(gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens) -> None:
    expected = ids_of(gpt2, tokenizer, tokens)
    bare = copy.deepcopy(tokenizer)
    bare.pad_token = None
    gpt2.config.pad_token_id = gpt2.generation_config.pad_token_id = None
    assert ids_of(gpt2, bare, tokens) == expected


@pytest.mark.usefixtures("verbose")
def test_progress_is_shown_when_asked_for(
    gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(gpt2, tokenizer, tokens, decoding=SHORT, batch_size=2, description="write")
    said = capsys.readouterr()
    assert said.out == ""
    assert "write" in said.err and "4/4" in said.err


def test_a_batch_that_does_not_fit_is_written_in_halves(
    gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generate_ids(gpt2, tokenizer, tokens, decoding=SHORT, description=None)
    sizes: list[int] = []
    wrote, most = gpt2.generate, 2

    def fits(input_ids: torch.Tensor, **more: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return wrote(input_ids=input_ids, **more)

    monkeypatch.setattr(gpt2, "generate", fits)
    assert generate_ids(gpt2, tokenizer, tokens, decoding=SHORT, description=None) == whole
    assert sizes[0] == len(tokens) > 2 and max(size for size in sizes if size <= most) == most
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        generate_ids(gpt2, tokenizer, tokens, decoding=SHORT, description=None)


def test_what_cannot_be_generated(
    bert: BertForSequenceClassification, gpt2: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: Tokens
) -> None:
    with pytest.raises(UserError, match="BertForSequenceClassification cannot generate text"):
        ids_of(bert, tokenizer, tokens)
    longest = int(tokens.lengths.max())
    with pytest.raises(UserError, match=f"40 positions, too few for prompts of up to {longest} tokens and 30 new ones"):
        ids_of(gpt2, tokenizer, tokens, Decoding(max_new_tokens=30))
    assert ids_of(gpt2, tokenizer, tokens, Decoding(beams=1, max_new_tokens=40 - longest))
    gap = Tokens(flat=np.arange(3, dtype=np.int32), offsets=np.array([0, 2, 2, 3]), types=None, truncated=0)
    with pytest.raises(UserError, match="1 of 3 prompts have no tokens to start from, the first is that of row 2"):
        ids_of(gpt2, tokenizer, gap)
    none = Tokens(flat=np.zeros(0, dtype=np.int32), offsets=np.zeros(1, dtype=np.int64), types=None, truncated=0)
    with pytest.raises(UserError, match="no examples"):
        ids_of(gpt2, tokenizer, none)


def test_an_encoder_decoder_needs_a_start_token(tokenizer: PreTrainedTokenizerBase, tokens: Tokens) -> None:
    model = tiny("t5", tokenizer)
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    with pytest.raises(UserError, match="no decoder_start_token_id"):
        ids_of(model, tokenizer, tokens)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"beams": 0}, "beams must be at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"min_new_tokens": 129}, "min_new_tokens must be from 0"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram"),
        ({"beams": 1, "sample": True, "temperature": 0.0}, "temperature must be above 0"),
        ({"beams": 1, "sample": True, "top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"sample": True}, "set beams to 1, not 4"),
        ({"temperature": 0.5}, "only when sampling"),
    ],
)
def test_decoding_that_makes_no_sense(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Decoding(**settings)
