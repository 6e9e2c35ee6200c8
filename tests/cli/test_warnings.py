"""What guards say and write down, through the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from csv_files import read_csv, write_csv
from safetensors.torch import load_file
from text_models import ask, make_writer, write_pairs

from stillery.evaluation.predictions import predict_logits
from stillery.jobs.config.settings import Finetune, resolve
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.prepared import tokenised
from stillery.train import guards

FLAT = """
import torch
from stillery.parts import distance, divergence, pair, represent
from stillery.parts.project import Projection
from stillery.recipe import Match, Prediction, Recipe, Stage


def flat(student, teacher):
    sides = [torch.nn.ModuleList(torch.nn.Linear(width, 8, bias=False) for width in side)
             for side in (student, teacher)]
    for one in (*sides[0], *sides[1]):
        one.weight.data = torch.linspace(1, 2, 8)[:, None] * torch.linspace(-1, 1, one.in_features)
    return Projection(*sides, shared=False)


def build():
    match = Match(name="flat", represent=represent.tokens, pair=pair.forward, project=flat, distance=distance.mse,
                  weight=0.001)
    return Recipe(stages=(Stage(matches=(match,), prediction=Prediction(divergence=divergence.kl)),))
"""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(guards.STEPS_BETWEEN, "cpu", 2)


def read(out: Path) -> dict[str, Any]:
    return json.loads((out / "metrics.json").read_text())


def asked(teacher: Path, data: Path, out: Path, *more: object) -> list[object]:
    common = ["distill", "--teacher", teacher, "--data", data, "--layers", 2, "--init", "even", "--lr", 1e-3]
    return [*common, "--epochs", 2, "--batch-size", 16, "--out", out, *more]


def test_a_term_with_all_the_gradient(command, tiny_teacher, reviews, tmp_path):
    heavy = ("--method", "layer-reverse", "--option", "layer_weight=1e5")
    done = command(*asked(tiny_teacher, reviews, tmp_path / "on", *heavy))
    assert done.code == 0, done.err
    (one,) = [one for one in read(tmp_path / "on")["warnings"] if one["guard"] == "gradient share"]
    assert one["about"] == "hidden" and one["share"] > 0.95 and one["epoch"] == 1
    lines = [line for line in done.err.splitlines() if "takes" in line and "gradient" in line]
    assert lines == [one["message"]], "one line, once"
    assert lines[0] == (
        f"warning: term hidden takes {one['share']:.1%} of the gradient in epoch 1: "
        "lower --option layer_weight (now 1e+05)"
    )
    done = command(*asked(tiny_teacher, reviews, tmp_path / "off", *heavy, "--no-guards"))
    assert done.code == 0 and "of the gradient" not in done.err and "warnings" not in read(tmp_path / "off")
    on, off = (load_file(tmp_path / name / "model.safetensors") for name in ("on", "off"))
    assert on.keys() == off.keys() and all(torch.equal(on[name], off[name]) for name in on), "the same bits"
    again = command("distill", "--config", tmp_path / "off" / "run.toml", "--out", tmp_path / "again")
    assert again.code == 0 and "warnings" not in read(tmp_path / "again"), "the run file says so too"


def test_a_projection_of_ones_own_recipe(command, tiny_teacher, reviews, tmp_path):
    (tmp_path / "flat.py").write_text(FLAT)
    done = command(*asked(tiny_teacher, reviews, tmp_path / "run", "--recipe", f"{tmp_path / 'flat.py'}:build"))
    assert done.code == 0, done.err
    (one,) = [one for one in read(tmp_path / "run")["warnings"] if one["guard"] == "projection rank"]
    assert one["about"] == "flat" and one["rank"] < 1.01 < one["full_rank"] and one["message"] in done.err
    assert "in the recipe (now 0.001)" in one["message"]


@pytest.mark.parametrize("method", ["kd", "pkd", "layer-forward", "rail-kd"])
def test_sound_runs_have_none(command, tiny_teacher, reviews, tmp_path, method):
    done = command(*asked(tiny_teacher, reviews, tmp_path / "run", "--method", method))
    assert done.code == 0, done.err
    found = read(tmp_path / "run")
    assert found["warnings"] == [] or (found.get("collapsed") and found["warnings"][0]["guard"] == "one answer")
    assert not [line for line in done.err.splitlines() if "gradient" in line or "projection" in line]


@pytest.fixture
def mostly(reviews: Path, tmp_path: Path):
    """Reviews of which so many in twenty are positive, whatever they say."""

    def make(positive: int) -> Path:
        rows = [(row["text"], ("negative", "positive")[n % 20 < positive]) for n, row in enumerate(read_csv(reviews))]
        return write_csv(tmp_path / f"mostly-{positive}.csv", ("text", "label"), rows)

    return make


def test_one_answer_for_all(command, make_bert, mostly, tmp_path):
    model = make_bert(id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1})
    found = {}
    for positive in (15, 19):
        out = tmp_path / str(positive)
        done = command("finetune", "--model", model, "--data", mostly(positive), "--epochs", 2, "--batch-size", 16,
                       "--lr", 1e-3, "--out", out)  # fmt: skip
        assert done.code == 0, done.err
        found[positive] = read(out)
        assert found[positive]["collapsed"]
        # One line says it: the guard's, or where it is silent that of the finished run.
        told = [line for line in done.err.splitlines() if "dev examples gets" in line or "learnt nothing" in line]
        assert len(told) == 1 and ("dev examples gets" in told[0]) == bool(found[positive]["warnings"]), told
        assert ("one of" in done.err) == bool(found[positive]["warnings"])
    (one,) = found[15]["warnings"]
    assert one["guard"] == "one answer" and one["epoch"] == 1 and 0.5 < one["expected"] < 0.9
    assert "gets the class positive, which" in one["message"]
    assert one["message"].endswith("another --seed or --restarts")
    assert found[19]["warnings"] == [], "that many are positive"


@pytest.mark.parametrize("kind", ["score", "labels", "classes"])
def test_what_one_answer_is(kind, make_bert, texts, tmp_path):
    labels = {"score": [n / 8 for n in range(40)], "labels": ["a", "b|a", "b", "a|c"] * 10, "classes": ["a", "b"] * 20}
    data = write_csv(tmp_path / "data.csv", ("text", "label"), list(zip(texts, labels[kind], strict=True)))
    extra = {"multi_label": True} if kind == "labels" else {}
    prepared = prepare_finetune(resolve(Finetune, {"model": str(make_bert()), "data": str(data), **extra}))
    data = tokenised(prepared)
    score = prepared.kind.scorer(prepared, data)
    model = prepared.model
    with torch.no_grad():
        model.classifier.bias[:] = torch.linspace(1.5, -1.5, len(model.classifier.bias))
        many = model.classifier.weight.clone()
        model.classifier.weight.zero_()
    one = score(model).one_answer
    dev = data.splits["dev"][0].gold
    assert one.examples == len(dev)
    if kind == "score":
        assert one.answer == f"the score {model.classifier.bias[0].item():.3g}" and one.expected is None
    elif kind == "labels":
        assert one.answer == "the labels a" and one.expected == np.mean((dev == [1, 0, 0]).all(axis=1))
    else:
        assert one.answer == "the class a" and one.expected == np.mean(dev == 0)
    with torch.no_grad():
        # New weights hardly let the first token see the others.
        for layer in model.bert.encoder.layer:
            layer.attention.self.value.weight *= 100
        model.classifier.weight.copy_(100 * many)
        found = data.splits["dev"][1]
        logits = predict_logits(model, found.tokens, found.examples, pad_id=0)
        model.classifier.bias -= torch.from_numpy(logits).mean(0)
    assert score(model).one_answer is None


def test_models_that_write_text(command, tmp_path):
    teacher, pairs = make_writer(tmp_path / "t5", "t5"), write_pairs(tmp_path / "pairs.csv")
    done = command(*ask("distill", teacher, pairs, tmp_path / "run", "--layers", 2, "--max-steps", 12,
                        "--option", "layer_weight=1e6", "--accumulate", 2, "--init", "random"))  # fmt: skip
    assert done.code == 0, done.err
    found = [one for one in read(tmp_path / "run")["warnings"] if one["guard"] == "gradient share"]
    assert found and found[0]["about"] == "decoder_hidden + encoder_hidden"
    assert "lower --option layer_weight (now 1e+06)" in found[0]["message"] and found[0]["message"] in done.err
