"""Options of text runs, and what of them is recorded."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from csv_files import read_csv, write_csv
from text_tokenizers import word_tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, BartConfig, GPT2Config, T5Config

SMALL = ("--max-steps", 2, "--batch-size", 8, "--beams", 2, "--max-new-tokens", 6, "--max-length", 16,
         "--max-target-length", 12)  # fmt: skip


def make_model(folder: Path, family: str, **changes: Any) -> Path:
    """A model of two layers with random weights."""
    tokenizer = word_tokenizer(family)
    ids: dict[str, Any] = {"vocab_size": len(tokenizer), "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(4)
    if family == "t5":
        sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
        config: Any = T5Config(**sizes | ids | changes)
    elif family == "bart":
        sizes = {"d_model": 16, "max_position_embeddings": 64, "decoder_start_token_id": 2}
        for half in ("encoder", "decoder"):
            sizes |= {f"{half}_layers": 2, f"{half}_attention_heads": 2, f"{half}_ffn_dim": 32}
        config = BartConfig(**sizes | ids | changes)
    else:
        config = GPT2Config(**{"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64} | ids | changes)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    auto.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("t5"), "t5")


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("bart"), "bart")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(f"w{row} w{row + 1}", f"w{row + 1} w{row}") for row in range(40)]
    return write_csv(tmp_path_factory.mktemp("pairs") / "pairs.csv", ("source", "target"), rows)


def metrics_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.json").read_text())


def terms_of(run: Path) -> dict[str, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return next(line["terms"] for line in lines if "terms" in line)


def test_early_stopping_is_passed_on_and_recorded(command, t5, pairs, tmp_path):
    done = command("finetune", "--model", t5, "--data", pairs, *SMALL, "--early-stopping", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert metrics_of(tmp_path / "run")["decoding"]["early_stopping"] is True
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["early_stopping"] is True
    for option, stopped in (("--early-stopping", True), ("--no-early-stopping", False)):
        search = ("--beams", 3, "--max-new-tokens", 6, option)
        done = command("evaluate", tmp_path / "run", "--data", pairs, "--split", "test", *search, "--json")
        assert done.code == 0 and done.json["decoding"]["early_stopping"] is stopped


def test_texts_of_its_own_end_where_a_student_has_no_more_positions(command, bart, pairs, tmp_path):
    short = ("--max-steps", 2, "--batch-size", 8, "--beams", 1, "--max-new-tokens", 6)
    done = command("distill", "--teacher", bart, "--data", pairs, *short, "--layers", 1, "--method", "kd",
                   "--on-policy", 1, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    assert "texts are cut to 64 tokens" in done.err


def test_states_are_normalised_as_suits_the_family_and_as_asked(command, t5, bart, pairs, tmp_path):
    gpt2 = make_model(tmp_path / "gpt2", "gpt2")
    for teacher, given, normalise, embedding in (
        (t5, (), "token", True), (t5, ("normalise=joint",), "joint", True), (bart, (), "none", True),
        (gpt2, (), "token", False),
    ):  # fmt: skip
        out = tmp_path / f"run-{teacher.name}-{normalise}"
        options = [word for one in given for word in ("--option", one)]
        done = command("distill", "--teacher", teacher, "--data", pairs, *SMALL, "--layers", 1, *options, "--method",
                       "layer-forward", "--out", out)  # fmt: skip
        assert done.code == 0, done.err
        found = tomllib.loads((out / "run.toml").read_text())["options"]
        assert (found["normalise"], found["embedding"]) == (normalise, embedding)
    for method in ("u-ild", "tinybert", "bert-emd"):
        out = tmp_path / method
        done = command("distill", "--teacher", t5, "--data", pairs, *SMALL, "--layers", 1, "--method", method,
                       "--out", out)  # fmt: skip
        assert done.code == 0, done.err
        assert tomllib.loads((out / "run.toml").read_text())["options"]["normalise"] == "token"
        plain = command("distill", "--teacher", t5, "--data", pairs, *SMALL, "--layers", 1, "--method", method,
                        "--option", "normalise=none", "--out", tmp_path / f"{method}-plain")  # fmt: skip
        assert plain.code == 0, plain.err
        found, other = terms_of(out), terms_of(tmp_path / f"{method}-plain")
        hidden = [term for term in found if term.endswith("hidden")]
        assert len(hidden) == 2 and all(found[term] != other[term] for term in hidden)
    done = command("distill", "--teacher", gpt2, "--data", pairs, *SMALL, "--layers", 1, "--option", "embedding=true",
                   "--method", "layer-forward", "--out", tmp_path / "no")  # fmt: skip
    assert done.code == 2 and "embedding=true" in done.err and not (tmp_path / "no").exists()


def test_by_default_a_t5s_losses_do_not_depend_on_how_a_batch_is_cut(command, pairs, tmp_path):
    calm = make_model(tmp_path / "calm", "t5", dropout_rate=0.0)
    found = []
    for cut in (("--batch-size", 8), ("--batch-size", 2, "--accumulate", 4)):
        out = tmp_path / str(len(cut))
        done = command("distill", "--teacher", calm, "--data", pairs, *SMALL, "--layers", 1, *cut, "--init", "random",
                       "--out", out)  # fmt: skip
        assert done.code == 0, done.err
        found.append(terms_of(out))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_start_of_padding_is_dropped_only_if_asked_for(command, t5, bart, pairs, tmp_path):
    asked = ("distill", "--teacher", t5, "--data", pairs, *SMALL, "--layers", 1)
    for name, more in (("kept", ()), ("dropped", ("--drop-start",))):
        done = command(*asked, *more, "--out", tmp_path / name)
        assert done.code == 0, done.err
    kept, dropped = terms_of(tmp_path / "kept"), terms_of(tmp_path / "dropped")
    assert {term for term in kept if kept[term] != dropped[term]} == {"decoder_hidden"}
    assert tomllib.loads((tmp_path / "dropped" / "run.toml").read_text())["drop_start"] is True
    done = command("distill", "--teacher", bart, "--data", pairs, *SMALL, "--layers", 1, "--drop-start",
                   "--out", tmp_path / "bart")  # fmt: skip
    assert done.code == 2 and "--drop-start: a bart model" in done.err and not (tmp_path / "bart").exists()


def test_classifiers_have_no_start_to_drop(command, tiny_teacher, reviews, tmp_path):
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--drop-start",
                   "--early-stopping", "--out", tmp_path / "x")  # fmt: skip
    assert done.code == 2 and not (tmp_path / "x").exists()
    for option in ("--drop-start", "--early-stopping"):
        assert f"{option} is for models that generate text" in done.err


def test_a_student_stops_where_its_targets_end(command, pairs, tmp_path):
    """The model ends with w0, its tokenizer with </s>: what is learnt is </s>, and plain transformers stops at both."""
    model = make_model(tmp_path / "model", "gpt2", eos_token_id=8)
    done = command("finetune", "--model", model, "--data", pairs, *SMALL, "--out", tmp_path / "teacher")
    assert done.code == 0, done.err
    done = command("distill", "--teacher", tmp_path / "teacher", "--data", pairs, *SMALL, "--layers", 1,
                   "--on-policy", 0.5, "--method", "kd", "--out", tmp_path / "small")  # fmt: skip
    assert done.code == 0, done.err
    for run in ("teacher", "small"):
        found = json.loads((tmp_path / run / "generation_config.json").read_text())
        assert found["eos_token_id"] == [8, 2]
    plain = command("finetune", "--model", make_model(tmp_path / "plain", "gpt2"), "--data", pairs, *SMALL,
                    "--out", tmp_path / "alike")  # fmt: skip
    assert plain.code == 0
    assert json.loads((tmp_path / "alike/generation_config.json").read_text())["eos_token_id"] == 2


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sources with one to three right texts each."""
    folder = tmp_path_factory.mktemp("several")
    for part, count in (("train", 30), ("dev", 6)):
        rows = [{"source": f"w{row} w{row + 1}", "target": [f"w{row + one}" for one in range(1 + row % 3)]}
                for row in range(count)]  # fmt: skip
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


def test_samples_are_sources_with_all_their_texts(command, t5, several, tmp_path):
    for samples in (5, 12):
        done = command("finetune", "--model", t5, "--data", several, *SMALL, "--samples", samples, "--verbose",
                       "--out", tmp_path / str(samples))  # fmt: skip
        assert done.code == 0, done.err
        assert f"{samples} of 30 training sources drawn with seed 0, " in done.err
        found = json.loads((tmp_path / str(samples) / "conditions.json").read_text())["samples"]
        assert found["of"] == 30
        ids = set(found["ids"])
        sources = {one.partition("#")[0] for one in ids}
        assert len(sources) == samples
        assert ids == {f"{one}#{number}" for one in sources for number in range(1, 2 + (int(one) - 1) % 3)}
    done = command("finetune", "--model", t5, "--data", several, *SMALL, "--samples", 31, "--out", tmp_path / "x")
    assert done.code == 2 and "only 30 different sources" in done.err


def test_references_are_written_as_lists_where_a_format_has_them(command, t5, several, tmp_path):
    expected = [[f"w{row + one}" for one in range(1 + row % 3)] for row in range(6)]
    for name in ("out.jsonl", "out.jsonl.gz", "out.parquet", "out.csv"):
        done = command("evaluate", t5, "--data", several, "--split", "dev", "--beams", 1, "--max-new-tokens", 3,
                       "--predictions", tmp_path / name)  # fmt: skip
        assert done.code == 0, done.err
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["references"] for line in lines] == expected
    with gzip.open(tmp_path / "out.jsonl.gz", "rt") as file:
        assert [json.loads(line)["references"] for line in file] == expected
    assert pq.read_table(tmp_path / "out.parquet")["references"].to_pylist() == expected
    assert [row["references"] for row in read_csv(tmp_path / "out.csv")] == [" ||| ".join(some) for some in expected]


def test_the_teachers_own_texts_are_counted(command, t5, several, tmp_path):
    done = command("distill", "--teacher", t5, "--data", several, *SMALL, "--layers", 1, "--sequence-level",
                   "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    found = metrics_of(tmp_path / "run")["teacher_texts"]
    assert found["sources"] == 30 and 0 <= found["cut"] <= 30
    assert (f"{found['cut']} of 30 texts of the teacher were cut off at 6 tokens" in done.err) == (found["cut"] > 0)


def test_papers_settings_of_generation_are_runs(command, t5, pairs, tmp_path):
    small = ("--max-steps", 2, "--max-length", 16, "--max-target-length", 12, "--max-new-tokens", 4, "--samples", 20)
    done = command("finetune", "--model", t5, "--data", pairs, "--preset", "layer-selection-teacher-wmt16-en-ro",
                   *small, "--out", tmp_path / "teacher")  # fmt: skip
    assert done.code == 0, done.err
    done = command("distill", "--teacher", tmp_path / "teacher", "--data", pairs, "--layers", 1, *small,
                   "--preset", "layer-selection-wmt16-en-ro", "--out", tmp_path / "forward")  # fmt: skip
    assert done.code == 0, done.err
    found, written = metrics_of(tmp_path / "forward"), tomllib.loads((tmp_path / "forward/run.toml").read_text())
    assert (found["decoding"]["beams"], found["decoding"]["early_stopping"]) == (4, True)
    assert (written["lr"], written["temperature"], written["drop_start"], written["freeze_embeddings"]) == (
        1e-4, 2.0, True, True)  # fmt: skip
    other = make_model(tmp_path / "other", "t5", num_heads=4, d_kv=4, num_layers=1)
    done = command("distill", "--teacher", tmp_path / "teacher", "--data", pairs, "--init", other, *small,
                   "--preset", "cr-ild-t5-rte", "--max-steps", 6, "--beams", 1, "--out", tmp_path / "cr")  # fmt: skip
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "cr" / "log.jsonl").read_text().splitlines()]
    terms = {name for line in lines if "terms" in line for name in line["terms"]}
    assert terms == {"hard", "decoder_attention", "decoder_hidden", "decoder_consistency_attention"}
