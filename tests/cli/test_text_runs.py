"""Models that write text, through the commands: fine-tune, distil, write, score, continue."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from csv_files import read_csv, write_csv
from text_models import FAMILIES, SHORT, SMALL, ask, make_writer, read, write_pairs
from transformers import AutoModelForSeq2SeqLM


@pytest.fixture(scope="module", params=FAMILIES)
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp("t5"), "t5")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.csv")


def test_the_whole_job(command, writer, pairs, tmp_path):
    done = command(*ask("finetune", writer, pairs, tmp_path / "teacher"))
    assert done.code == 0, done.err
    found = read(tmp_path / "teacher" / "metrics.json")
    assert {"bleu", "chrf", "loss", "perplexity"} == found["metrics"].keys() and found["split"] == "test"
    done = command(*ask("distill", tmp_path / "teacher", pairs, tmp_path / "small", "--layers", 2))
    assert done.code == 0, done.err
    found = read(tmp_path / "small" / "metrics.json")
    assert found["metrics"].keys() == found["teacher_metrics"].keys()
    assert found["cost"]["parameters"] < found["cost"]["teacher_parameters"]
    table = pq.read_table(tmp_path / "small" / "predictions.parquet").to_pylist()
    assert len(table) == found["examples"] == 6
    assert table[0].keys() == {"id", "source", "references", "output", "teacher_output"}
    log = [json.loads(line) for line in (tmp_path / "small" / "log.jsonl").read_text().splitlines()]
    stacks = ("encoder_hidden", "decoder_hidden") if found["writes"] == "encoder-decoder" else ("hidden",)
    assert all(line["terms"].keys() == {"hard", "soft", *stacks} for line in log if "terms" in line)
    assert "perplexity" in (tmp_path / "small" / "README.md").read_text()
    search = ("--beams", 2, "--max-new-tokens", 8, *SHORT)
    done = command("evaluate", tmp_path / "small", "--data", pairs, "--split", "test", "--against",
                   tmp_path / "teacher", *search, "--predictions", tmp_path / "out.csv", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["metrics"] == pytest.approx(found["metrics"], abs=1e-3)
    assert done.json["teacher_metrics"] == pytest.approx(found["teacher_metrics"], abs=1e-3)
    assert [row["output"] for row in read_csv(tmp_path / "out.csv")] == [row["output"] for row in table]


def test_a_student_writes_the_same_in_plain_transformers(command, writer, pairs, tmp_path):
    assert command(*ask("distill", writer, pairs, tmp_path / "run", "--layers", 2, "--method", "kd")).code == 0
    found, table = read(tmp_path / "run" / "metrics.json"), pq.read_table(tmp_path / "run" / "predictions.parquet")
    auto = "AutoModelForSeq2SeqLM" if found["writes"] == "encoder-decoder" else "AutoModelForCausalLM"
    code = f"""
import json, sys, torch
from transformers import {auto} as Auto, AutoTokenizer
model, tokenizer = Auto.from_pretrained(sys.argv[1]).eval(), AutoTokenizer.from_pretrained(sys.argv[1])
texts = []
for source in json.loads(sys.argv[2]):
    text = source if model.config.is_encoder_decoder else source + "\\n"
    ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    out = model.generate(**ids, num_beams=2, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.pad_token_id)[0]
    texts.append(tokenizer.decode(out if model.config.is_encoder_decoder else out[ids["input_ids"].shape[1]:],
                                  skip_special_tokens=True))
print(json.dumps(texts))
"""
    sources = json.dumps(table["source"].to_pylist())
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "run", sources], capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == table["output"].to_pylist()


@pytest.mark.parametrize(
    "method",
    ["none", "layer-reverse", "layer-all-to-one", "layer-random", "rail-kd", "l-ild", "u-ild", "cr-ild", "minilm-v2"],
)
def test_every_strategy_on_both_stacks(command, t5, pairs, tmp_path, method):
    more = ("--encoder-layers", 2, "--decoder-layers", 1) if method.startswith("layer") else ("--layers", 2)
    done = command(*ask("distill", t5, pairs, tmp_path / "run", "--method", method, *more, "--max-steps", 6))
    assert done.code == 0, done.err
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    names = {name for line in log if "terms" in line for name in line["terms"]}
    if method != "none":
        assert any(name.startswith("encoder") for name in names) and any(name.startswith("decoder") for name in names)


def test_stacks_cross_attention_and_frozen_embeddings(command, t5, pairs, tmp_path):
    more = ("--method", "l-ild", "--layers", 2, "--stacks", "decoder", "--cross-attention", "--freeze-embeddings")
    done = command(*ask("distill", t5, pairs, tmp_path / "run", *more, "--max-steps", 6))
    assert done.code == 0, done.err
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    names = {name for line in log if "terms" in line for name in line["terms"]}
    assert any("cross" in name for name in names) and not any(name.startswith("encoder") for name in names)
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(place).shared.weight for place in (t5, tmp_path / "run"))
    assert torch.equal(before, after)


def test_the_teachers_own_texts_are_written_once(command, writer, pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    more = ("--layers", 2, "--method", "none", "--sequence-level")
    first = command(*ask("distill", writer, pairs, tmp_path / "a", *more, "--verbose"))
    assert first.code == 0, first.err
    assert "train (teacher): write" in first.err
    second = command(*ask("distill", writer, pairs, tmp_path / "b", *more, "--verbose"))
    assert second.code == 0 and "train (teacher): write" not in second.err and "read from the cache" in second.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert weights[0] == weights[1]
    # Nor does it write what is scored beside its students' texts again; who wrote nothing has no speed.
    assert "(teacher): write" in first.err.replace("train (teacher): write", "")
    assert "(teacher): write" not in second.err
    scores = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("a", "b")]
    assert scores[0].pop("teacher_texts_per_second") > 0 and "teacher_texts_per_second" not in scores[1]
    for kept in ("metrics", "teacher_metrics", "agreement"):
        assert scores[0][kept] == scores[1][kept]
    outputs = [pq.read_table(tmp_path / name / "predictions.parquet") for name in ("a", "b")]
    assert outputs[0] == outputs[1]
    assert command(*ask("distill", writer, pairs, tmp_path / "c", "--layers", 2, "--method", "none")).code == 0
    assert (tmp_path / "c" / "model.safetensors").read_bytes() != weights[0]


def test_texts_the_student_writes_itself(command, writer, pairs, tmp_path):
    more = ("--layers", 2, "--method", "kd", "--on-policy")
    done = command(*ask("distill", writer, pairs, tmp_path / "all", *more, 1.0))
    assert done.code == 0, done.err
    log = [json.loads(line) for line in (tmp_path / "all" / "log.jsonl").read_text().splitlines()]
    assert all(line["terms"].keys() == {"soft"} for line in log if "terms" in line)
    for name in ("some", "again"):
        assert command(*ask("distill", writer, pairs, tmp_path / name, *more, 0.5)).code == 0
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in ("all", "some", "again")}
    assert weights["some"] == weights["again"] != weights["all"]


def test_a_text_run_goes_on_where_it_stopped(command, t5, pairs, tmp_path):
    more = ("--layers", 2, "--method", "layer-random", "--max-steps", 6, "--checkpoint-every", 2,
            "--on-policy", 0.4)  # fmt: skip
    assert command(*ask("distill", t5, pairs, tmp_path / "whole", *more)).code == 0
    asked = [str(one) for one in ask("distill", t5, pairs, tmp_path / "cut", *more)]
    code = "import os,sys\nfrom stillery.train import checkpoint\nsave=checkpoint.save\n" \
        "def stop(*a,**k):\n    save(*a,**k)\n    os._exit(9)\ncheckpoint.save=stop\n" \
        "from stillery.cli.main import main\nmain(sys.argv[1:])"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code, *asked], capture_output=True).returncode == 9
    assert command(*asked, "--resume").code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_glue_as_text(command, t5, tmp_path):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for part in ("train", "dev"):
        lines = [f"{row}\tw{row} w2\tw{row + 1}\t{('entailment', 'not_entailment')[row % 2]}" for row in range(24)]
        (folder / f"{part}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
    done = command("finetune", "--model", t5, "--task", "rte", "--data-dir", tmp_path / "glue", *SMALL,
                   "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    assert {"accuracy", "loss", "perplexity"} == found["metrics"].keys() and found["examples"] == 24
    assert found["no_label"] <= 24


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--label-noise", 0.1], "--label-noise: texts cannot be flipped"),
        (["--prompt", "no place"], "{source}"),
        (["--prompt", "{source} ="], "--prompt is for decoders"),
        (["--label", "target"], "--label is for classifiers"),
        (["--source", "sauce"], "no column 'sauce'"),
        (["--unlabelled"], "--unlabelled"),
    ],
)
def test_bad_settings_of_text_runs(command, t5, pairs, tmp_path, more, said):
    done = command(*ask("finetune", t5, pairs, tmp_path / "run", *more))
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_on_policy(command, t5, pairs, tmp_path):
    done = command(
        *ask("distill", t5, pairs, tmp_path / "run", "--layers", 2, "--method", "cr-ild", "--on-policy", 0.5)
    )
    assert done.code == 2 and "mixes examples" in done.err
    done = command(*ask("distill", t5, pairs, tmp_path / "run", "--layers", 2, "--method", "none", "--on-policy", 0.5))
    assert done.code == 2 and "uses no teacher predictions" in done.err


def test_classifiers_and_writers_are_told_apart(command, t5, tiny_teacher, pairs, reviews, tmp_path):
    done = command(
        "distill", "--teacher", t5, "--data", pairs, "--layers", 2, "--method", "pkd", "--out", tmp_path / "x"
    )
    assert done.code == 2 and "[CLS]" in done.err
    done = command(
        "distill", "--teacher", t5, "--data", pairs, "--layers", 2, "--head", "reuse", "--out", tmp_path / "x"
    )
    assert done.code == 2 and "--head" in done.err
    done = command("finetune", "--model", tiny_teacher, "--data", reviews, "--beams", 2, "--out", tmp_path / "x")
    assert done.code == 2 and "--beams is for models that generate text" in done.err
    done = command("distill", "--teacher", t5, "--data", pairs, "--encoder-layers", 9, "--out", tmp_path / "x")
    assert done.code == 2 and "--encoder-layers 9" in done.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_texts_and_outputs_stay_within_the_positions(command, tmp_path, family):
    model = make_writer(tmp_path / "model", family, layers=2)
    rows = [(" ".join(f"w{place % 90}" for place in range(row, row + 100)), f"w{row}") for row in range(30)]
    data = write_csv(tmp_path / "long.csv", ("source", "target"), rows)
    done = command("finetune", "--model", model, "--data", data, "--max-length", 200, "--max-target-length", 32,
                   "--max-steps", 2, "--batch-size", 8, "--beams", 1, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    assert "the model has" in done.err and "generated texts end after" in done.err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (64, "--max-target-length 64 leaves no room for a prompt: the model has 64"),
        (63, "lower --max-target-length or"),
    ],
)
def test_targets_that_leave_no_room_for_a_prompt(command, pairs, tmp_path, target, said):
    model = make_writer(tmp_path / "model", "gpt2", layers=2)
    more = ("--max-target-length", target, "--prompt", "translate : {source} answer :")
    done = command(*ask("finetune", model, pairs, tmp_path / "run", *more))
    assert done.code == 2 and said in done.err and "Traceback" not in done.err
    assert not (tmp_path / "run").exists()


def test_a_run_is_scored_as_it_was_trained_to_read(command, tmp_path, pairs):
    model = make_writer(tmp_path / "model", "llama", layers=2)
    asked = ask("finetune", model, pairs, tmp_path / "run", "--prompt", "translate : {source} answer :")
    assert command(*asked).code == 0
    found = read(tmp_path / "run" / "metrics.json")["metrics"]
    done = command("evaluate", tmp_path / "run", "--data", pairs, "--split", "test", "--beams", 2, "--max-new-tokens",
                   8, "--json")  # fmt: skip
    assert done.json["metrics"] == pytest.approx(found, abs=1e-3)


def test_a_checkpoint_decides_the_shape_of_a_student(command, t5, pairs, tmp_path):
    more = ("--init", t5, "--encoder-layers", 1, "--width", 8)
    done = command(*ask("distill", t5, pairs, tmp_path / "run", *more))
    assert done.code == 2 and "--encoder-layers, --width cannot go with --init" in done.err


def test_own_texts_need_something_to_learn_from(command, t5, pairs, tmp_path):
    more = ("--layers", 2, "--method", "kd", "--hard-weight", 1, "--on-policy", 1.0)
    done = command(*ask("distill", t5, pairs, tmp_path / "run", *more))
    assert done.code == 2 and "nothing is learnt" in done.err
