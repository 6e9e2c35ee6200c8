"""Each cause of a bad student is found in a run that was made to have it, and none in a good one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from csv_files import read_csv, write_csv
from safetensors.torch import load_file
from tagging_models import conll, tagged
from text_models import ask, make_writer, write_pairs
from transformers import AutoModelForSequenceClassification, BertConfig, BertForTokenClassification

import stillery
from stillery.jobs.diagnosis.checks import CHECKS
from stillery.jobs.diagnosis.findings import Diagnosis, Finding
from stillery.jobs.result import Result

WORDS = (
    "the", "a", "film", "story", "actor", "scene", "music", "plot", "time", "house", "river", "garden", "letter",
    "train", "window", "morning", "paper", "stone", "road", "field", "tree", "bird", "water", "fire", "glass", "table",
    "chair", "book", "lamp", "door",
)  # fmt: skip
SIGNS = {"positive": ("good", "great", "fine"), "negative": ("bad", "poor", "dull")}
SIZES = {"train": 640, "dev": 100, "test": 300}


def folder_of(place: Path, *, shuffled: bool = False, odd: bool = False, **sizes: int) -> Path:
    """Texts whose label follows from one word, in files; with labels of other texts, or words of unknown signs."""
    draw = random.Random(0)
    for name, size in (SIZES | sizes).items():
        rows = []
        for _ in range(size):
            label = draw.choice(list(SIGNS))
            words = [*draw.choices(WORDS, k=9), draw.choice(SIGNS[label])]
            draw.shuffle(words)
            if odd:
                words[::2] = ["\U0001f996"] * len(words[::2])
            rows.append((" ".join(words), draw.choice(list(SIGNS)) if shuffled else label))
        place.mkdir(exist_ok=True)
        write_csv(place / f"{name}.csv", ("text", "label"), rows)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diagnose")


@pytest.fixture(scope="module")
def data(place: Path) -> Path:
    return folder_of(place / "data")


@pytest.fixture(scope="module")
def base(place: Path, tokenizer: Any) -> Path:
    """A BERT of 4 layers x 32 with random weights."""
    torch.manual_seed(1)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
        vocab_size=len(tokenizer), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    AutoModelForSequenceClassification.from_config(config).save_pretrained(place / "base")
    tokenizer.save_pretrained(place / "base")
    return place / "base"


@pytest.fixture(scope="module")
def teacher(place: Path, base: Path, data: Path) -> Result:
    """A teacher that has learnt the task."""
    found = stillery.finetune(
        model=base, data=data, batch_size=32, lr=2e-3, epochs=4, out=place / "teacher", quiet=True
    )
    assert found.metrics["metrics"]["accuracy"] > 98
    return found


Distil = Callable[..., Result]


@pytest.fixture(scope="module")
def distil(place: Path, teacher: Result, data: Path) -> Distil:
    """Distil a student of two layers."""

    def run(**changes: Any) -> Result:
        settings = {"teacher": teacher, "data": data, "layers": 2, "method": "kd", "epochs": 3, "batch_size": 32,
                    "lr": 2e-3, "cache": "off", "quiet": True}  # fmt: skip
        return stillery.distill(**(settings | changes), out=place / f"run-{len(list(place.iterdir()))}")

    return run


@pytest.fixture(scope="module")
def good(distil: Distil) -> Result:
    return distil(method="rail-kd")


@pytest.fixture(scope="module")
def too_short(distil: Distil) -> Result:
    """A student with new weights and 3 of 20 steps for predictions."""
    return distil(method="u-ild", options={"least_steps": 1}, max_steps=20, init="random")


def named(found: Diagnosis) -> dict[str, Finding]:
    return {one.check: one for one in found.findings}


def only(run: Result, check: str, **settings: Any) -> Finding:
    found = named(stillery.diagnose(run, quiet=True, **settings))
    assert check in found, sorted(found)
    assert found[check].option and found[check].sentence.endswith(".")
    return found[check]


def test_a_good_run_has_none_of_them(good: Result, command: Any, place: Path, teacher: Result, data: Path) -> None:
    found = stillery.diagnose(good, probe=True)
    assert found.findings == [] and not found.not_examined and len(found.examined) == len(CHECKS)
    assert "Nothing found" in repr(found) and "teacher 100.00" in repr(found)
    done = command("distill", "--teacher", teacher.out, "--data", data, "--layers", 2, "--method", "kd", "--lr", 2e-3,
                   "--epochs", 1, "--out", place / "fine")  # fmt: skip
    assert done.code == 0 and "Why the student" not in done.out


def test_what_was_measured_while_training_is_kept(good: Result) -> None:
    maps = load_file(good.out / "projections" / "projections.safetensors")
    assert {tuple(one.shape) for one in maps.values()} == {(128, 32)} and all("random_layers" in name for name in maps)
    events = [json.loads(line) for line in (good.out / "log.jsonl").read_text().splitlines()]
    guarded = [one for one in events if one["event"] == "guards"]
    assert [one["step"] for one in guarded] == [1, 50, 60]
    assert sum(guarded[-1]["shares"].values()) == pytest.approx(1, abs=1e-4)
    assert {one["side"] for one in guarded[-1]["projections"]} == {"student"}


def test_a_teacher_of_shuffled_labels(base: Path, place: Path, distil: Distil) -> None:
    wrong = folder_of(place / "shuffled", shuffled=True)
    teacher = stillery.finetune(model=base, data=wrong, lr=2e-3, epochs=1, out=place / "wrong", quiet=True)
    found = only(distil(teacher=teacher, data=wrong, epochs=1), "weak teacher").numbers
    rows = pq.read_table(place / "wrong" / "predictions.parquet")["label"].to_pylist()
    most = max(rows.count(name) for name in SIGNS)
    assert found["constant"] == pytest.approx(100 * most / len(rows)) and found["difference"][1] <= 0
    assert found["teacher"] - found["constant"] == pytest.approx(found["difference"][0], abs=1e-3)


def test_one_answer_too_few_steps_and_the_line_at_the_end(too_short: Result, command: Any, place: Path) -> None:
    found = stillery.diagnose(too_short)
    checks = named(found)
    given = too_short.predictions["prediction"].tolist()
    one = checks["one answer"].numbers
    assert one["share"] == given.count(one["answer"]) / len(given) == 1
    assert checks["few prediction steps"].numbers == {"steps": 3, "of": 20, "least": 1000}
    assert "least_steps" in checks["few prediction steps"].option
    assert {"flat loss", "not learnt"} <= set(checks)
    assert checks["not learnt"].numbers["teacher"] > 98
    order = [one.severity for one in found.findings]
    assert order == sorted(order, reverse=True) and found.findings[0].check == "one answer"

    settings = ("--method", "u-ild", "--init", "random", "--max-steps", 20)
    again = command("distill", "--config", too_short.out / "run.toml", *settings, "--out", place / "again")
    assert again.code == 0, again.err
    (line,) = [line for line in again.out.splitlines() if line.startswith("Why the student may be weak")]
    assert "gives 100.0% of 300 examples the answer" in line and line.endswith(
        f"-> stillery diagnose {place / 'again'}"
    )


def test_a_term_that_takes_all_of_the_gradient(distil: Distil) -> None:
    run = distil(method="layer-reverse", options={"layer_weight": 1e5})
    found = only(run, "dominating term")
    assert found.numbers["term"] == "hidden" and found.numbers["share"] > 0.99
    assert sum(found.numbers["shares"].values()) == pytest.approx(1, abs=1e-3)
    assert "--option layer_weight" in found.option and "100.0% of the gradient" in found.sentence


def test_projections_that_collapse(distil: Distil) -> None:
    literal = {"projection_start": "literal", "frozen_teacher": False, "layer_weight": 1000.0}
    found = only(distil(method="rail-kd", options=literal, lr=5e-3, epochs=5), "projection rank")
    assert found.numbers["rank"] < 1.05 < 1.5 < found.numbers["full_rank"]
    assert found.numbers["collapsed"] == found.numbers["of"] == 2
    assert "--option projection_start=same" in found.option


def test_labels_that_are_wrong(distil: Distil) -> None:
    found = only(distil(label_noise=0.4, epochs=1), "noisy labels")
    assert 50 < found.numbers["train"] < 70 and found.numbers["scored"] > 98 and "--label-noise 0.4" in found.sentence


def test_a_student_of_few_texts(distil: Distil) -> None:
    few = {"samples": 24, "epochs": 30, "batch_size": 8, "lr": 3e-3}
    found = only(distil(method="none", init="random", **few), "overfitting").numbers
    assert found["train"] > 90 and found["scored"] < 85 and found["examples"] == 24
    assert found["train_difference"][0] > found["scored_difference"][0] / 2


def test_another_start_is_better(too_short: Result) -> None:
    assert "--probe" in stillery.diagnose(too_short).not_examined["worse start"]
    found = only(too_short, "worse start", probe=True)
    assert found.numbers["own"] == "random" and set(found.numbers["losses"]) == {"random", "first", "even"}
    assert found.numbers["losses"]["random"] > 1.5 * found.numbers["losses"][found.numbers["best"]]
    assert found.option.startswith(f"--init {found.numbers['best']}")


def test_a_loss_that_explodes(distil: Distil) -> None:
    found = only(distil(lr=0.5, epochs=2), "exploded loss")
    assert found.numbers["loss"] > 3 * found.numbers["start"] and "--lr" in found.option


def test_a_run_that_ends_while_it_still_learns(distil: Distil) -> None:
    few = {"method": "none", "init": "random", "samples": 96}
    found = only(distil(**few, epochs=12, eval_every=18), "still rising")
    assert found.numbers["scores"][-1] > max(found.numbers["scores"][:-1]) and "--epochs 24" in found.option


def test_texts_that_are_cut_or_unknown(distil: Distil, place: Path) -> None:
    found = only(distil(max_length=4, epochs=1), "truncated texts")
    assert found.numbers["truncated"] == 640 and "--max-length" in found.option
    found = only(distil(data=folder_of(place / "odd", odd=True, train=100), epochs=1), "unknown words")
    assert found.numbers["share"] > 0.4


def test_few_examples_to_score_on(distil: Distil, place: Path, too_short: Result) -> None:
    run = distil(data=folder_of(place / "few", test=12), max_steps=4, init="random")
    found = only(run, "small split").numbers
    low, high = run.metrics["difference"]["interval"]
    assert found["least_difference"] == pytest.approx((high - low) / 2) and found["needed"] > 12
    half = named(stillery.diagnose(too_short))["small split"].numbers["least_difference"]
    assert "small split" not in named(stillery.diagnose(too_short, difference=half + 0.1))
    asked = named(stillery.diagnose(too_short, difference=half / 2))["small split"].numbers
    assert asked["needed"] == pytest.approx(4 * 300, abs=1)


def test_a_folder_alone_says_what_it_can(too_short: Result, tmp_path: Path, command: Any) -> None:
    shutil.copytree(too_short.out, tmp_path / "moved" / "run")
    found = stillery.diagnose(tmp_path / "moved" / "run")
    assert {"one answer", "few prediction steps", "flat loss"} <= set(named(found)), "read from the folder"
    assert {"not learnt", "noisy labels", "overfitting"} <= found.not_examined.keys()
    done = command("diagnose", tmp_path / "moved" / "run", "--json", "-")
    assert done.code == 0 and done.json == found.to_dict()
    assert command("diagnose", too_short.out, "--json", tmp_path / "found.json").code == 0
    assert json.loads((tmp_path / "found.json").read_text())["scores"]["teacher"] > 98


def test_without_guards_and_of_older_runs(distil: Distil) -> None:
    run = distil(epochs=1, guards=False)
    assert "--no-guards" in stillery.diagnose(run).not_examined["dominating term"]


def test_a_fine_tuned_model(teacher: Result, base: Path, data: Path, place: Path) -> None:
    assert not stillery.diagnose(teacher).findings
    short = stillery.finetune(model=base, data=data, max_steps=4, lr=1e-3, out=place / "short", quiet=True)
    found = stillery.diagnose(short)
    assert "one answer" in named(found) and "teacher" not in found.about[1]


def test_scores_that_are_all_the_same(place: Path, base: Path, scores: Path) -> None:
    data = place / "scores"
    data.mkdir()
    rows = [(row["sentence"], row["score"]) for row in read_csv(scores)]
    for name in SIZES:
        write_csv(data / f"{name}.csv", ("text", "label"), rows)
    run = stillery.finetune(model=base, data=data, max_steps=3, lr=1e-4, out=place / "scored", quiet=True)
    found = only(run, "one answer").numbers
    assert found["deviation"] < 0.05 * found["expected"]


def test_a_tagger(place: Path, tokenizer: Any) -> None:
    torch.manual_seed(3)
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                        vocab_size=len(tokenizer), max_position_embeddings=64)  # fmt: skip
    BertForTokenClassification(config).save_pretrained(place / "tagger")
    tokenizer.save_pretrained(place / "tagger")
    sentences = conll(place / "sentences.conll", tagged())
    settings = {"data": sentences, "max_length": 32, "batch_size": 8, "quiet": True, "lr": 3e-3}
    settings |= {"max_steps": 8}
    teacher = stillery.finetune(model=place / "tagger", out=place / "tags", **settings)
    found = stillery.diagnose(stillery.distill(teacher=teacher, layers=1, out=place / "tags-small", **settings))
    assert {"weak teacher", "one answer"} <= named(found).keys() and "words the answer O" in repr(found)
    assert found.scores["constant_answer"].startswith("always ") and "noisy labels" in found.examined


def test_a_model_that_generates_text(command: Any, place: Path) -> None:
    pairs = write_pairs(place / "pairs.csv")
    writer = make_writer(place / "writer", "t5")
    assert command(*ask("distill", writer, pairs, place / "writes", "--layers", 2)).code == 0
    found = stillery.diagnose(place / "writes")
    assert "not generated again" in found.not_examined["noisy labels"] and "truncated texts" in found.examined
    assert found.scores["metric"] == "bleu" and found.scores["constant"] is not None
    assert "weak teacher" in named(found)


def test_folders_that_are_no_run(command: Any, tmp_path: Path, good: Result) -> None:
    study = tmp_path / "study"
    (study / "cells" / "first").mkdir(parents=True)
    (study / "plan.toml").touch()
    assert f"{study} is a study: give one of its runs" in command("diagnose", study).err
    assert "no such run folder" in command("diagnose", tmp_path / "nothing").err
    broken = shutil.copytree(good.out, tmp_path / "broken")
    (broken / "run.toml").unlink()
    done = command("diagnose", broken)
    assert done.code == 2 and "has no run.toml" in done.err and done.err.count("\n") == 1
    with pytest.raises(stillery.errors.UserError, match="points above 0"):
        stillery.diagnose(good, difference=0)
