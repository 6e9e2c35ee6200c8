"""Models that write text: read, refused, written, shown; and they generate the same before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartForSequenceClassification,
    GPT2ForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from stillery.cli.layers import layers
from stillery.errors import UserError
from stillery.models.describe import describe
from stillery.models.export import export
from stillery.models.generator_student import build_generator, generator_sizes
from stillery.models.load_model import Loaded, fingerprint, load_classifier, load_encoder, load_generator, model_kind
from stillery.models.student import StudentShape

VOCABULARY = 30528  # a few more than the tokenizer: AutoTokenizer gives some families a token of their own


@pytest.fixture
def unpadded(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A tokenizer that has an end token and no padding token, as GPT-2's."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[SEP]", unk_token="[UNK]", bos_token="[CLS]")


@torch.no_grad()
def generated(model: PreTrainedModel, texts: dict[str, Tensor]) -> list[list[list[int]]]:
    """What the model writes, greedily and with beams; texts are padded left for a decoder."""
    asked = {name: tensor for name, tensor in texts.items() if name != "labels"}
    if not model.config.is_encoder_decoder:
        asked = {name: tensor.flip(1) for name, tensor in asked.items()}
    ways = [{}, {"num_beams": 3}]
    return [model.eval().generate(**asked, do_sample=False, **way).tolist() for way in ways]


def test_an_exported_student_generates_the_same_without_stillery(
    writer: Loaded, texts: dict[str, Tensor], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    wanted = generator_sizes(StudentShape(layers=2), writer.model.config, "teacher")
    model = build_generator(source=writer, wanted=wanted, init="even").model
    # Models of random weights say one word for ever, or nothing.
    model.generation_config.no_repeat_ngram_size, model.generation_config.min_new_tokens = 1, 6
    model.generation_config.max_new_tokens = 6
    model.generation_config.pad_token_id = writer.model.config.pad_token_id or 0
    export(model, tokenizer, tmp_path / "student", "# card\n")
    auto: Any = AutoModelForSeq2SeqLM if model.config.is_encoder_decoder else AutoModelForCausalLM
    plain, info = auto.from_pretrained(tmp_path / "student", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert plain.generation_config.max_new_tokens == 6
    written = generated(model, texts)
    assert len({tuple(row) for row in written[0]}) > 1 and written[0] != written[1]
    assert generated(plain, texts) == written
    with safe_open(tmp_path / "student" / "model.safetensors", "pt") as held:
        names = set(held.keys())
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert ("lm_head.weight" in names) == (not tied)
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in plain.state_dict().items())


def test_a_saved_model_is_read_as_it_was(
    writer: Loaded, make_writer: Any, save: Any, texts: dict[str, Tensor], capfd: pytest.CaptureFixture[str]
) -> None:
    name = writer.name.removeprefix("writer-")
    model = make_writer(name, vocab_size=VOCABULARY)
    folder = str(save("whole", model))
    capfd.readouterr()
    found = load_generator(folder)
    assert capfd.readouterr() == ("", "")
    assert (found.name, found.missing, found.model.training) == (folder, frozenset(), False)
    assert type(found.model) is type(model) and found.model.dtype == torch.float32
    assert fingerprint(found) == fingerprint(
        Loaded(model=model, tokenizer=found.tokenizer, name="", missing=frozenset())
    )
    tied = [each.get_output_embeddings().weight is each.get_input_embeddings().weight for each in (model, found.model)]
    assert tied[0] == tied[1]
    assert model_kind(folder) == ("encoder-decoder" if model.config.is_encoder_decoder else "decoder")


@pytest.mark.usefixtures("verbose")
def test_a_decoder_without_a_padding_token_pads_with_its_end(
    make_writer: Any, unpadded: PreTrainedTokenizerBase, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_writer("gpt2", vocab_size=VOCABULARY).save_pretrained(tmp_path / "gpt2")
    unpadded.save_pretrained(tmp_path / "gpt2")
    capfd.readouterr()
    found = load_generator(str(tmp_path / "gpt2"))
    assert "no padding token; texts are padded with its end token [SEP]" in capfd.readouterr().err.replace("\n", " ")
    end = unpadded.convert_tokens_to_ids("[SEP]")
    assert found.tokenizer.pad_token_id == found.model.generation_config.pad_token_id == end
    # As the configuration's padding its embedding would never be trained.
    assert found.model.config.pad_token_id is None
    assert found.tokenizer(["a", "a film"], padding=True)["attention_mask"] != [[1, 1], [1, 1]]
    make_writer("t5", vocab_size=VOCABULARY).save_pretrained(tmp_path / "t5")
    unpadded.save_pretrained(tmp_path / "t5")
    with pytest.raises(UserError, match="has no padding token"):
        load_generator(str(tmp_path / "t5"))


def fault_of(load: Any, name: object) -> str:
    with pytest.raises(UserError) as caught:
        load(str(name))
    (line,) = caught.value.lines
    assert str(name) in line
    return line


def test_a_classifier_is_not_a_generator_nor_the_other_way_round(make: Any, make_writer: Any, save: Any) -> None:
    bert = save("bert", make("bert", vocab_size=VOCABULARY))
    assert (
        "a bert model (BertForSequenceClassification) is a classifier, here a model that generates text is needed"
        in fault_of(load_generator, bert)
    )
    for name in ("t5", "bart", "gpt2", "llama"):
        folder = save(name, make_writer(name, vocab_size=VOCABULARY))
        for load in (load_classifier, load_encoder):
            assert f"a {name} model generates text, here a classifier is needed" in fault_of(load, folder)
    for kind, name in ((BartForSequenceClassification, "bart"), (GPT2ForSequenceClassification, "gpt2")):
        folder = save(f"{name}-labels", kind(make_writer(name, vocab_size=VOCABULARY).config))
        assert f"({kind.__name__}) is a classifier" in fault_of(load_generator, folder)


def test_files_that_do_not_fit_are_one_line(make_writer: Any, save: Any) -> None:
    folder = save("t5", make_writer("t5", vocab_size=VOCABULARY))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    cases = [
        ({"num_decoder_layers": 4}, "its weights are not those of its config.json"),
        ({"d_ff": 20}, "its weights are not those of its config.json"),
        ({"num_decoder_layers": 0}, "says 0 layers in its decoder"),
        ({"vocab_size": 99}, "its tokenizer has 30522 tokens"),
        ({"model_type": "xlnet"}, "model type 'xlnet' is not supported"),
    ]
    for values, said in cases:
        (folder / "config.json").write_text(json.dumps(config | values), encoding="utf-8")
        assert said in fault_of(load_generator, folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"")
    assert "truncated or damaged" in fault_of(load_generator, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "cannot read the model" in fault_of(load_generator, folder)


def test_settings_of_generation_that_have_no_effect_are_left_out(make_writer: Any, save: Any, tmp_path: Path) -> None:
    folder = save("llama", make_writer("llama", vocab_size=VOCABULARY))
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(settings | {"temperature": 0.6, "max_new_tokens": 9}), encoding="utf-8")
    found = load_generator(str(folder))
    assert (found.model.generation_config.temperature, found.model.generation_config.max_new_tokens) == (None, 9)
    export(found.model, found.tokenizer, tmp_path / "again", "# card\n")
    path.write_text(json.dumps(settings | {"forced_eos_token_id": 4, "suppress_tokens": [4]}), encoding="utf-8")
    assert "cannot read the model: Every token in `forced_eos_token_id`" in fault_of(load_generator, folder)


def test_a_head_that_is_absent_is_not_made_up(make_writer: Any, save: Any) -> None:
    folder = save("llama", make_writer("llama", vocab_size=VOCABULARY))
    held = load_file(folder / "model.safetensors")
    held.pop("lm_head.weight")
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    assert "such as lm_head.weight" in fault_of(load_generator, folder)


WITH_KEY_HEADS = ("llama", "qwen2", "qwen3", "mistral", "gemma", "olmo", "olmo2", "phi", "smollm3")


def test_both_stacks_are_shown(writer: Loaded, make_writer: Any, save: Any) -> None:
    name = writer.name.removeprefix("writer-")
    model = make_writer(name, vocab_size=VOCABULARY)
    found = describe(str(save("model", model)))
    assert (found["type"], found["kind"], found["labels"]) == (model.config.model_type, model_kind_of(model), [])
    depths = {"encoder": 4, "decoder": 3} if model.config.is_encoder_decoder else {"decoder": 4}
    assert {stack["name"]: stack["layers"] for stack in found["stacks"]} == depths
    for stack in found["stacks"]:
        assert [row["layer"] for row in stack["rows"]] == list(range(stack["layers"] + 1))
        shared = name in WITH_KEY_HEADS or (name, stack["name"]) == ("bart", "decoder")
        assert stack["key_heads"] == (2 if shared else 4)
    # Everything is counted once: what is left are final norms and a head of its own.
    counted = sum(row["parameters"] for stack in found["stacks"] for row in stack["rows"])
    head = 0 if found["tied_head"] else 32 * VOCABULARY
    norms = {"bart": 0, "olmo": 0, "gpt2": 64, "phi": 64 + VOCABULARY}.get(name, 32 if name in WITH_KEY_HEADS else 64)
    assert found["parameters"] == sum(each.numel() for each in model.parameters()) == counted + head + norms
    assert found["tied_head"] == (name not in ("t5-gated", "llama", "qwen3", "mistral", "olmo", "olmo2", "phi"))
    layers = [row for stack in found["stacks"] for row in stack["rows"][1:]]
    assert len({row["name"] for row in layers}) == len(layers) and all(row["parameters"] > 0 for row in layers)


def test_both_stacks_in_words(make_writer: Any, save: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(save("bart", make_writer("bart", vocab_size=VOCABULARY)))
    capsys.readouterr()
    layers(folder)
    shown = capsys.readouterr().out
    assert "encoder: 4 layers, width 32, 4 heads, inner width 48" in shown
    assert "decoder: 3 layers, width 32, 2 heads, inner width 40" in shown
    assert "head: the next token, tied to the embeddings" in shown
    layers(str(save("llama", make_writer("llama", vocab_size=VOCABULARY))))
    shown = capsys.readouterr().out
    assert "decoder: 4 layers, width 32, 4 heads (2 of keys and values)" in shown
    assert "head: the next token, with weights of its own" in shown


def model_kind_of(model: PreTrainedModel) -> str:
    return "encoder-decoder" if model.config.is_encoder_decoder else "decoder"
