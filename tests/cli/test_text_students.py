"""Students that write text, through the commands: which layers they copy, and what becomes of their embeddings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from text_models import ask, make_writer, read, write_pairs
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

STILL = ("--method", "none", "--max-steps", 1, "--lr", 1e-12)
"""One step that changes nothing to speak of."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decoders of 4 layers, and a T5 with 4 layers in its encoder and 2 in its decoder."""
    folder = tmp_path_factory.mktemp("models")
    make_writer(folder / "t5", "t5", num_decoder_layers=2)
    for family in ("gpt2", "llama"):
        make_writer(folder / family, family)
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.csv")


def settings(run: Path) -> dict:
    return tomllib.loads((run / "run.toml").read_text())


def card(run: Path) -> str:
    return (run / "README.md").read_text()


def same(ours: torch.nn.Module, theirs: torch.nn.Module) -> bool:
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    return all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)


def test_chosen_layers_of_a_decoder(command, models, pairs, tmp_path):
    done = command(*ask("distill", models / "llama", pairs, tmp_path / "run", "--copy-layers", "4,1", *STILL))
    assert done.code == 0, done.err
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(place).model.layers for place in (tmp_path / "run", models / "llama")
    )
    assert len(ours) == 2 and same(ours[0], theirs[3]) and same(ours[1], theirs[0])
    assert "decoder layers 4, 1" in card(tmp_path / "run") and "# 2-layer student" in card(tmp_path / "run")
    assert settings(tmp_path / "run")["layers"] == 2
    again = command("distill", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again")]
    assert weights[0] == weights[1]


def test_chosen_layers_of_each_stack(command, models, pairs, tmp_path):
    more = ("--copy-encoder-layers", "3,1,4", "--copy-decoder-layers", "2", *STILL)
    done = command(*ask("distill", models / "t5", pairs, tmp_path / "run", *more))
    assert done.code == 0, done.err
    ours, theirs = (AutoModelForSeq2SeqLM.from_pretrained(place) for place in (tmp_path / "run", models / "t5"))
    assert len(ours.encoder.block) == 3 and len(ours.decoder.block) == 1
    # The first block holds the relative positions of all, whichever layer it is.
    assert same(ours.encoder.block[1].layer[1], theirs.encoder.block[0].layer[1])
    assert same(ours.encoder.block[2], theirs.encoder.block[3])
    assert same(ours.decoder.block[0].layer[2], theirs.decoder.block[1].layer[2])
    assert "encoder layers 3, 1, 4;" in card(tmp_path / "run") and "decoder layers 2;" in card(tmp_path / "run")
    assert "# 3+1-layer student" in card(tmp_path / "run")
    done = command(*ask("distill", models / "t5", pairs, tmp_path / "both", "--copy-layers", "2,1", *STILL))
    assert done.code == 0, done.err
    assert "encoder layers 2, 1;" in card(tmp_path / "both") and "decoder layers 2, 1;" in card(tmp_path / "both")


def test_a_decoder_deeper_than_its_encoder_writes_here_and_in_plain_transformers(command, models, pairs, tmp_path):
    run = tmp_path / "run"
    done = command(*ask("distill", models / "t5", pairs, run, "--encoder-layers", 1, "--on-policy", 0.5))
    assert done.code == 0, done.err
    student = AutoModelForSeq2SeqLM.from_pretrained(run)
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert len(student.encoder.block) == 1 and len(student.decoder.block) == 2
    rows = pq.read_table(run / "predictions.parquet").to_pylist()
    assert any(row["output"] for row in rows)
    for row in rows:
        inputs = tokenizer(row["source"], return_tensors="pt")
        written = student.generate(**inputs, num_beams=2, max_new_tokens=8)[0]
        assert tokenizer.decode(written, skip_special_tokens=True) == row["output"]


@pytest.mark.parametrize(
    ("family", "more", "said"),
    [
        ("t5", ("--copy-layers", "1,3"), "1 to 2 in its decoder; name them with --copy-encoder-layers and --copy-"),
        ("t5", ("--copy-layers", "2,1,2"), "--copy-layers names 3 layers"),
        ("t5", ("--copy-layers", "1,2", "--decoder-layers", 1), "--decoder-layers says 1; name them with --copy-"),
        ("t5", ("--copy-encoder-layers", "1,2", "--layers", 1), "--copy-encoder-layers names 2 layers, --layers says"),
        ("t5", ("--copy-encoder-layers", "5"), "has layers 1 to 4 in its encoder"),
        ("t5", ("--copy-decoder-layers", "1", "--init", "random"), "--copy-decoder-layers cannot go with --init"),
        ("t5", ("--copy-decoder-layers", "one"), "--copy-decoder-layers one: give layer numbers with commas"),
        ("t5", ("--copy-decoder-layers", "0"), "--copy-decoder-layers is [0]: give a list of layer numbers from 1 on"),
        ("t5", ("--no-tie-embeddings", "--layers", 1), "--no-tie-embeddings: the head of"),
        ("llama", ("--copy-encoder-layers", "1"), "has one stack of layers; use --copy-layers"),
        ("llama", ("--copy-layers", "1,2", "--width", 32), "--copy-layers cannot go with --width 32: the layers are"),
        ("llama", ("--copy-layers", "1,2", "--init", "HERE"), "--copy-layers cannot go with --init"),
        ("llama", ("--tie-embeddings", "--init", "HERE"), "--tie-embeddings cannot go with --init"),
        ("llama", ("--copy-embeddings", "--layers", 2), "--copy-embeddings is for --init random"),
        (
            "llama",
            ("--copy-embeddings", "--layers", 2, "--init", "random", "--width", 32),
            "--copy-embeddings cannot go with --width 32: the embeddings are 16 wide",
        ),
    ],
)  # fmt: skip
def test_students_that_cannot_be(command, models, pairs, tmp_path, family, more, said):
    more = [models / family if one == "HERE" else one for one in more]
    done = command(*ask("distill", models / family, pairs, tmp_path / "run", *more))
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_a_layer_that_neither_of_two_stacks_has_is_one_line(command, pairs, tmp_path):
    model = make_writer(tmp_path / "t5", "t5", layers=2)
    done = command(*ask("distill", model, pairs, tmp_path / "run", "--copy-layers", "1,3"))
    line = f"stillery: --copy-layers 1,3: {model} has layers 1 to 2 in each stack"
    assert done.code == 2 and done.err.splitlines() == [line]


def test_classifiers_have_one_stack_and_their_own_embeddings(command, tiny_teacher, reviews, tmp_path):
    more = ("--copy-encoder-layers", "1", "--copy-decoder-layers", "2", "--tie-embeddings", "--copy-embeddings")
    done = command(
        "distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, *more, "--out", tmp_path / "x"
    )
    assert done.code == 2
    for option in more[::2][:2] + more[4:]:
        assert f"{option} is for models that generate text" in done.err


@pytest.mark.parametrize(("family", "option", "tied"), [("llama", "--tie", True), ("gpt2", "--no-tie", False)])
def test_tied_and_untied_heads(command, models, pairs, tmp_path, family, option, tied):
    more = ("--layers", 2, "--method", "kd", "--lr", 1e-2, f"{option}-embeddings")
    done = command(*ask("distill", models / family, pairs, tmp_path / "run", *more))
    assert done.code == 0, done.err
    assert f"head {'' if tied else 'not '}tied to the token embeddings" in card(tmp_path / "run")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    head, words = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert model.config.tie_word_embeddings == tied and (head is words) == tied
    assert torch.equal(head, words) == tied
    found = read(tmp_path / "run" / "metrics.json")
    assert found["cost"]["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    # What was trained is what is read back.
    done = command("evaluate", tmp_path / "run", "--data", pairs, "--split", "test", "--beams", 2, "--max-new-tokens",
                   8, "--json")  # fmt: skip
    assert done.json["metrics"] == pytest.approx(found["metrics"], abs=1e-3)


def test_new_layers_on_the_teachers_embeddings(command, models, pairs, tmp_path):
    more = ("--layers", 2, "--init", "random", "--copy-embeddings", "--freeze-embeddings", "--lr", 1e-2)
    done = command(*ask("distill", models / "gpt2", pairs, tmp_path / "run", *more))
    assert done.code == 0, done.err
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(place).transformer for place in (tmp_path / "run", models / "gpt2")
    )
    assert torch.equal(ours.wte.weight, theirs.wte.weight)
    assert not torch.allclose(ours.h[0].attn.c_attn.weight, theirs.h[1].attn.c_attn.weight, atol=0.05)
    assert "embeddings, and the head that is tied to them" in card(tmp_path / "run")
    assert "new (random): decoder layers, final norms" in card(tmp_path / "run")
