"""`stillery finetune` and `stillery distill`: what they write, for every way to ask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from stillery import methods

SMALL = ("--max-steps", 2, "--batch-size", 8)
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
FOLDER = {"metrics.json", "predictions.parquet", "run.toml", "log.jsonl"} | MODEL
COST = {"parameters", "flops", "flops_length", "megabytes", "latency_ms", "speedup", "train_seconds", "peak_megabytes"}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def layer(folder: Path, number: int) -> torch.Tensor:
    """One matrix of a BERT's layer, counted from 1."""
    return weights(folder)[f"bert.encoder.layer.{number - 1}.attention.self.query.weight"]


def config(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


def unmoved(tmp_path: Path) -> tuple[object, ...]:
    """Options under which a student keeps the weights it starts with."""
    return ("--max-steps", 1, "--batch-size", 4, "--lr", 1e-30, "--weight-decay", 0, "--out", tmp_path / "run")


@pytest.fixture
def ask(tiny_teacher: Path, reviews: Path) -> tuple[object, ...]:
    return ("distill", "--teacher", tiny_teacher, "--data", reviews)


def test_finetune_writes_a_run_folder(command, make_bert, reviews, tmp_path):
    out = tmp_path / "new" / "run"
    done = command("finetune", "--model", make_bert(), "--data", reviews, *SMALL, "--out", out)
    assert done.code == 0, done.err
    assert {path.name for path in out.iterdir()} == FOLDER
    found = json.loads((out / "metrics.json").read_text())
    assert found["task"] == "reviews.csv" and found["examples"] == 16 and found["split"] == "test"
    assert 0 <= found["metrics"]["accuracy"] <= 100
    assert "teacher_metrics" not in found and "agreement" not in found
    assert COST - {"speedup"} <= found["cost"].keys()
    assert config(out)["id2label"] == {"0": "negative", "1": "positive"}
    assert pq.read_table(out / "predictions.parquet").column_names == ["id", "label", "prediction", "probabilities"]
    *_, model, load = done.out.partition("next:\n")[0].splitlines()
    assert (model, load) == (f"model: {out}", f'AutoModelForSequenceClassification.from_pretrained("{out}")')


def test_distill_writes_a_run_folder(command, ask, tmp_path):
    out = tmp_path / "run"
    done = command(*ask, "--layers", 2, *SMALL, "--grad-norms", "--log-every", 1, "--verbose", "--out", out)
    assert done.code == 0, done.err
    assert {path.name for path in out.iterdir()} == FOLDER
    found = json.loads((out / "metrics.json").read_text())
    assert found["metrics"].keys() == found["teacher_metrics"].keys() == found["intervals"].keys()
    assert 0 <= found["agreement"] <= 100
    assert found["cost"].keys() >= COST
    assert found["cost"]["megabytes"] == (out / "model.safetensors").stat().st_size / 1e6
    table = pq.read_table(out / "predictions.parquet")
    assert table.num_rows == found["examples"] == 16
    columns = ["id", "label", "prediction", "probabilities", "teacher_prediction", "teacher_probabilities"]
    assert table.column_names == columns
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in table["probabilities"].to_pylist())
    right = sum(row["label"] == row["prediction"] for row in table.to_pylist())
    assert found["metrics"]["accuracy"] == pytest.approx(100 * right / 16)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["terms"].keys() for line in log if "terms" in line] == [{"hard", "soft", "hidden"}] * 2
    assert all("term_gradient_norms" in line for line in log if "terms" in line)
    card = (out / "README.md").read_text()
    assert "layer-forward" in card and "accuracy" in card and "stillery distill --config" in card
    assert "copied from" in done.err and "layers 1, 2 as 1..2" in done.err
    # Progress is for people, on stderr; results are on stdout.
    assert "tokenise" not in done.out and "train" in done.err


@pytest.mark.parametrize("method", methods.names())
def test_every_method_trains(command, ask, tmp_path, method):
    # Three steps: a step for every stage of the method that has most.
    short = ("--max-steps", 3, "--batch-size", 8)
    done = command(*ask, "--method", method, "--layers", 2, *short, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    # The projections of a method that trains some are kept beside the student.
    assert {path.name for path in (tmp_path / "run").iterdir()} - {"projections"} == FOLDER


@pytest.mark.parametrize("method", ["none", "kd", "pkd", "layer-forward", "layer-reverse", "layer-all-to-one"])
def test_a_narrower_student(command, ask, tmp_path, method):
    out = tmp_path / "run"
    done = command(*ask, "--method", method, "--layers", 2, "--width", 16, "--heads", 2, *SMALL, "--out", out)
    assert done.code == 0, done.err
    made = config(out)
    assert (made["num_hidden_layers"], made["hidden_size"], made["num_attention_heads"]) == (2, 16, 2)
    assert not [name for name in weights(out) if "projection" in name]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        (("--init", "first", "--layers", 2), [1, 2]),
        (("--init", "last", "--layers", 2), [3, 4]),
        (("--init", "even", "--layers", 2), [2, 4]),
        (("--layers", 2, "--method", "pkd"), [1, 2]),
        (("--copy-layers", "2,4"), [2, 4]),
        (("--copy-layers", "4,1,3", "--layers", 3), [4, 1, 3]),
    ],
)
def test_layers_are_copied(command, ask, tiny_teacher, tmp_path, options, taken):
    done = command(*ask, *options, "--verbose", *unmoved(tmp_path))
    assert done.code == 0, done.err
    student = tmp_path / "run"
    for place, source in enumerate(taken, start=1):
        assert torch.equal(layer(student, place), layer(tiny_teacher, source))
    assert f"layers {', '.join(map(str, taken))} as 1..{len(taken)}" in done.err


def test_random_initialisation_copies_nothing_and_follows_the_seed(command, ask, tiny_teacher, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = command(
            *ask, "--init", "random", "--layers", 1, "--seed", seed, *unmoved(tmp_path)[:-1], tmp_path / name
        )
        assert done.code == 0, done.err
    made = [layer(tmp_path / name, 1) for name in "abc"]
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
    assert not any(torch.equal(made[0], layer(tiny_teacher, number)) for number in (1, 2, 3, 4))


def test_a_checkpoint_is_the_student(command, ask, make_bert, tmp_path):
    checkpoint = make_bert()
    done = command(*ask, "--init", checkpoint, *unmoved(tmp_path))
    assert done.code == 0, done.err
    assert torch.equal(layer(tmp_path / "run", 2), layer(checkpoint, 2))


def test_layers_come_from_another_pretrained_model(command, ask, make_bert, tmp_path):
    source = make_bert(num_hidden_layers=6)
    done = command(*ask, "--init-from", source, "--init", "even", "--layers", 2, *unmoved(tmp_path))
    assert done.code == 0, done.err
    student = tmp_path / "run"
    assert torch.equal(layer(student, 1), layer(source, 3)) and torch.equal(layer(student, 2), layer(source, 6))


@pytest.mark.parametrize(("head", "moves"), [("reuse", True), ("reuse-frozen", False)])
def test_the_teachers_head_is_reused(command, ask, tiny_teacher, tmp_path, head, moves):
    out = tmp_path / "run"
    done = command(*ask, "--layers", 2, "--head", head, *SMALL, "--lr", 0.01, "--verbose", "--out", out)
    assert done.code == 0, done.err
    name = "classifier.weight"
    same = torch.equal(weights(out)[name], weights(tiny_teacher)[name])
    assert same != moves
    assert ("frozen" in done.err) != moves


def test_regression_from_scores_to_student(command, make_bert, scores, tmp_path):
    teacher, out = tmp_path / "teacher", tmp_path / "run"
    done = command("finetune", "--model", make_bert(), "--data", scores, *SMALL, "--out", teacher)
    assert done.code == 0, done.err
    assert config(teacher)["problem_type"] == "regression"
    # A run folder is a teacher as it is.
    done = command("distill", "--teacher", teacher, "--data", scores, "--layers", 1, *SMALL, "--out", out)
    assert done.code == 0, done.err
    found = json.loads((out / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert {"pearson", "spearman"} <= found["metrics"].keys()
    assert pq.read_table(out / "predictions.parquet")["label"].to_pylist()[0] is not None


def test_run_folders_load_without_stillery(command, make_bert, reviews, tmp_path):
    teacher, small = tmp_path / "teacher", tmp_path / "small"
    assert command("finetune", "--model", make_bert(), "--data", reviews, *SMALL, "--out", teacher).code == 0
    asked = ("distill", "--teacher", teacher, "--data", reviews, "--layers", 1, *SMALL)
    assert command(*asked, "--out", small).code == 0
    code = (
        "import sys; from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline\n"
        "for folder in sys.argv[1:]:\n"
        "    layers = AutoModelForSequenceClassification.from_pretrained(folder).config.num_hidden_layers\n"
        "    words = AutoTokenizer.from_pretrained(folder).tokenize('a fine film')\n"
        "    print(layers, *words, pipeline('text-classification', model=folder)('a fine film')[0]['label'])\n"
        "assert 'stillery' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, teacher, small], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line, layers in zip(done.stdout.splitlines(), "21", strict=True):
        assert line in (f"{layers} a fine film negative", f"{layers} a fine film positive")


def test_a_finished_run_is_read_back(command, ask, tmp_path):
    out = tmp_path / "run"
    first = command(*ask, "--layers", 1, *SMALL, "--out", out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    (out / "checkpoints").mkdir()
    again = command(*ask, "--layers", 1, *SMALL, "--out", out, "--resume")
    assert again.code == 0 and again.out == first.out
    assert "finished already" in again.err
    after = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert {path: time for path, time in after.items() if path.is_file()} == {
        path: time for path, time in before.items() if path.is_file()
    }
    assert not (out / "checkpoints").exists()
