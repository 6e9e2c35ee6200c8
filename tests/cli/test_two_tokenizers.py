"""A student with a tokenizer of its own: each model reads the texts in its own way, and the example joins them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

import stillery
from stillery.models.load_model import load_classifier, load_encoder
from stillery.models.student import build_from_checkpoint

Command = Callable[..., Any]
Logits = np.ndarray

NAMES = ("negative", "positive")
TEACHERS_LENGTH, LENGTH = 12, 30


@pytest.fixture(scope="module")
def rows(reviews: Path) -> list[dict[str, str]]:
    with reviews.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    # They are sorted by label.
    return [row for pair in zip(read[:28], read[-28:], strict=True) for row in pair]


@pytest.fixture(scope="module")
def data(rows: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 24 examples to train on, 16 of dev and 16 of test."""
    folder = tmp_path_factory.mktemp("data")
    for name, some in {"train": rows[:24], "dev": rows[24:40], "test": rows[40:]}.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(some)
    return folder


@pytest.fixture(scope="module")
def other(rows: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of 2 layers x 16 without dropout, with byte pairs learnt from the reviews: no token is a teacher's."""
    folder = tmp_path_factory.mktemp("other")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([row["text"] for row in rows], trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)
    torch.manual_seed(5)
    config = RobertaConfig(
        vocab_size=400, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=90, pad_token_id=1, bos_token_id=0, eos_token_id=2, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def teacher(tiny_teacher: Path, tokenizer: PreTrainedTokenizerBase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a teacher that was trained on texts of 12 tokens, far fewer than its student reads."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Texts then get predictions of their own.
            if "encoder" in name and weight.ndim == 2:
                weight.mul_(8)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "run.toml").write_text(f'job = "finetune"\nmax_length = {TEACHERS_LENGTH}\n', encoding="utf-8")
    return out


@pytest.fixture
def distilled(command: Command, teacher: Path, other: Path, data: Path, tmp_path: Path) -> Callable[..., Path]:
    """A run through the command line, in a folder of this name."""

    def run(name: str, *more: object) -> Path:
        done = command(
            "distill", "--teacher", teacher, "--init", other, "--data", data, "--max-length", LENGTH, "--lr", 1e-3,
            "--log-every", 1, "--out", tmp_path / name, *more,
        )  # fmt: skip
        assert done.code == 0, done.err
        return tmp_path / name

    return run


def one_by_one(model: PreTrainedModel, folder: Path, texts: Sequence[str], length: int) -> Logits:
    """The logits of each text by itself, without padding, with the tokenizer of a folder."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        found = [
            model.eval()(**tokenizer(text, truncation=True, max_length=length, return_tensors="pt")).logits[0]
            for text in texts
        ]
    return torch.stack(found).double().numpy()


def teachers_logits(teacher: Path, texts: Sequence[str]) -> Logits:
    model = AutoModelForSequenceClassification.from_pretrained(teacher)
    return one_by_one(model, teacher, texts, TEACHERS_LENGTH)


def log_softmax(logits: Logits) -> Logits:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def steps(out: Path) -> list[Mapping[str, float]]:
    events = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event["terms"] for event in events if event["event"] == "train"]


def test_the_losses_are_those_of_each_model_by_itself(
    distilled: Callable[..., Path], teacher: Path, other: Path, rows: list[dict[str, str]]
) -> None:
    """Live and from the cache, in one batch and in micro-batches; padding differs in all of them."""
    whole = ("--method", "kd", "--max-steps", 3, "--batch-size", 24)
    runs = {
        "live": distilled("live", *whole, "--cache", "off"),
        "cached": distilled("cached", *whole, "--cache", "on"),
        "divided": distilled(
            "divided", "--method", "kd", "--max-steps", 3, "--batch-size", 5, "--accumulate", 5, "--cache", "off"
        ),
    }
    assert json.loads((runs["cached"] / "metrics.json").read_text())["training"]["teacher_store"][0]["used"]

    start = build_from_checkpoint(
        teacher=load_classifier(str(teacher)), checkpoint=load_encoder(str(other)), layers=None, seed=0
    ).model
    texts = [row["text"] for row in rows[:24]]
    gold = np.array([NAMES.index(row["label"]) for row in rows[:24]])
    ours, theirs = one_by_one(start, other, texts, LENGTH), teachers_logits(teacher, texts)
    p, q = log_softmax(theirs / 2), log_softmax(ours / 2)
    golden = {
        "hard": -log_softmax(ours)[np.arange(24), gold].mean(),
        "soft": 4 * (np.exp(p) * (p - q)).sum(axis=1).mean(),
    }
    assert golden["soft"] > 0.01
    for name, out in runs.items():
        assert steps(out)[0] == pytest.approx(golden, abs=1e-6), name
        assert len(steps(out)) == 3
        for mine, live in zip(steps(out), steps(runs["live"]), strict=True):
            assert mine == pytest.approx(live, abs=1e-6), name


def test_scores_and_exports(
    distilled: Callable[..., Path], command: Command, teacher: Path, other: Path, data: Path, rows: list[dict[str, str]]
) -> None:
    out = distilled("run", "--method", "kd", "--epochs", 2)
    texts = [row["text"] for row in rows[40:]]
    assert (out / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    model = AutoModelForSequenceClassification.from_pretrained(out)
    ours, theirs = one_by_one(model, out, texts, LENGTH), teachers_logits(teacher, texts)
    written = pq.read_table(out / "predictions.parquet").to_pydict()
    by_hand = np.exp(log_softmax(theirs))
    np.testing.assert_allclose(np.array(written["teacher_probabilities"]), by_hand, atol=1e-5)

    agreement = 100 * (ours.argmax(1) == theirs.argmax(1)).mean()
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["agreement"] == pytest.approx(agreement)
    done = command("evaluate", out, "--data", data, "--against", teacher, "--json")
    assert done.code == 0, done.err
    assert done.json["agreement"] == pytest.approx(agreement)
    assert done.json["teacher_metrics"] == pytest.approx(metrics["teacher_metrics"])


def test_without_labels_the_teacher_is_agreed_with(
    distilled: Callable[..., Path], teacher: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name, some in {"train": rows[:24], "dev": rows[24:40]}.items():
        lines = [json.dumps({"text": row["text"]}) for row in some]
        (bare / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = distilled("run", "--data", bare, "--method", "kd", "--unlabelled", "--max-steps", 2, "--keep", "last")
    assert list(steps(out)[0]) == ["soft"]
    scored = json.loads((out / "metrics.json").read_text())["training"]["dev_last"]
    texts = [row["text"] for row in rows[24:40]]
    ours = one_by_one(AutoModelForSequenceClassification.from_pretrained(out), out, texts, LENGTH)
    agreed = 100 * (ours.argmax(1) == teachers_logits(teacher, texts).argmax(1)).mean()
    assert scored["agreement"] == pytest.approx(agreed)


@pytest.mark.parametrize(
    "more",
    [
        ("--method", "none", "--max-steps", 2),
        ("--method", "simkd", "--option", "feature=pooled", "--reuse", "linear", "--max-steps", 2, "--cache", "on"),
        ("--method", "simkd", "--option", "feature=pooled", "--reuse", "linear", "--max-steps", 2, "--cache", "off"),
    ],
)
def test_what_else_needs_no_tokens(more: Sequence[object], distilled: Callable[..., Path]) -> None:
    assert len(steps(distilled("run", *more))) == 2


def test_some_layers_of_the_other_model(
    command: Command, teacher: Path, other: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ("distill", "--teacher", teacher, "--init-from", other, "--data", data, "--layers", 1)
    arguments += ("--method", "kd", "--max-steps", 2)
    done = command(*arguments, "--init", "even", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert (tmp_path / "run/tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    for more in (("--init", "important"), ("--init", "even", "--width", 8)):
        done = command(*arguments, *more, "--out", tmp_path / "measured")
        assert done.code == 2 and "it has a tokenizer of its own" in done.err


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("pkd", "pkd compares hidden states of layers"),
        ("tinybert", "tinybert compares hidden states and attention of layers"),
        ("minilm-v2", "minilm-v2 compares attention of layers"),
        ("cr-ild", "cr-ild compares hidden states and attention of layers and mixes examples token by token"),
    ],
)
def test_the_rest_is_refused_before_step_one(
    method: str, said: str, command: Command, teacher: Path, other: Path, data: Path, tmp_path: Path
) -> None:
    done = command(
        "distill", "--teacher", teacher, "--init", other, "--data", data, "--method", method, "--out", tmp_path / "run"
    )
    assert done.code == 2 and not (tmp_path / "run").exists()
    (line,) = [line for line in done.err.splitlines() if said in line]
    assert "only done where both models read the same tokens" in line
    assert "(30522 tokens)" in line and "(400 tokens) differ in" in line and "--method kd" in line


def test_a_recipe_of_ones_own_is_judged_by_what_it_needs(
    command: Command, teacher: Path, other: Path, data: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "own.py"
    recipe.write_text(
        "from stillery.methods.baseline import kd\n"
        "from stillery.recipe import Mixing, Recipe\n"
        "from dataclasses import replace\n"
        "def plain():\n    return kd()\n"
        "def mixed():\n    (stage,) = kd().stages\n    return Recipe(stages=(replace(stage, mixing=Mixing()),))\n",
        encoding="utf-8",
    )
    codes = {}
    for name in ("plain", "mixed"):
        done = command(
            "distill", "--teacher", teacher, "--init", other, "--data", data, "--recipe", f"{recipe}:{name}",
            "--max-steps", 1, "--out", tmp_path / name,
        )  # fmt: skip
        codes[name] = done.code, "mixes examples token by token" in done.err
    assert codes == {"plain": (0, False), "mixed": (2, True)}


def test_a_model_that_tags_words_needs_one_tokenizer(
    command: Command, other: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    names = {0: "O", 1: "B-PER"}
    config = BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, id2label=names
    )
    BertForTokenClassification(config).save_pretrained(tmp_path / "tagger")
    tokenizer.save_pretrained(tmp_path / "tagger")
    (tmp_path / "names.conll").write_text("".join(f"Mary B-PER\nsings O\nsong{n} O\n\n" for n in range(12)))
    done = command(
        "distill", "--teacher", tmp_path / "tagger", "--init", other, "--data", tmp_path / "names.conll", "--method",
        "kd", "--out", tmp_path / "run",
    )  # fmt: skip
    assert done.code == 2 and "only be matched token by token" in done.err


def test_each_reads_as_it_was_trained_to(
    command: Command, teacher: Path, other: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ("--data", data, "--max-steps", 1)
    done = command("finetune", "--model", other, *arguments, "--max-length", 21, "--out", tmp_path / "own")
    assert done.code == 0, done.err
    common = ("distill", "--teacher", teacher, *arguments, "--method", "kd")
    done = command(*common, "--init", tmp_path / "own", "--out", tmp_path / "run")
    assert f"the student as {tmp_path / 'own'}, up to 21 tokens, the teacher up to 12" in done.err
    # So does a run that is repeated from its file.
    done = command("distill", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert done.code == 0 and "up to 21 tokens, the teacher up to 12" in done.err
    assert steps(tmp_path / "run") == steps(tmp_path / "again")


class _Killed(Exception):
    pass


def test_resuming_is_exact(teacher: Path, other: Path, data: Path, tmp_path: Path) -> None:
    dies = [False]

    def on_step(step: int, losses: Mapping[str, float]) -> None:
        if dies[0] and step == 4:
            raise _Killed

    given: dict[str, Any] = {
        "teacher": teacher, "init": str(other), "data": data, "method": "kd", "max_steps": 6, "batch_size": 8,
        "checkpoint_every": 3, "log_every": 1, "cache": "on", "on_step": on_step,
    }  # fmt: skip
    whole = stillery.distill(**given, out=tmp_path / "whole")
    dies[0] = True
    with pytest.raises(_Killed):
        stillery.distill(**given, out=tmp_path / "killed")
    dies[0] = False
    again = stillery.distill(**given, out=tmp_path / "killed", resume=True)
    assert steps(again.out) == steps(whole.out)
    weights = [(run.student / "model.safetensors").read_bytes() for run in (whole, again)]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_two_processes_train_like_one(
    teacher: Path, other: Path, data: Path, distilled: Callable[..., Path], tmp_path: Path
) -> None:
    one = distilled("one", "--method", "kd", "--max-steps", 3, "--batch-size", 12, "--cache", "off")
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "stillery")
    out = tmp_path / "two"
    done = subprocess.run(
        [
            *launch, "distill", "--teacher", teacher, "--init", other, "--data", data, "--max-length", str(LENGTH),
            "--lr", "1e-3", "--log-every", "1", "--method", "kd", "--max-steps", "3", "--batch-size", "6",
            "--cache", "off", "--out", out,
        ],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(steps(out)) == 3
    for mine, whole in zip(steps(out), steps(one), strict=True):
        assert mine == pytest.approx(whole, rel=1e-4, abs=5e-6)
    weights, others = (load_file(run / "model.safetensors") for run in (out, one))
    for name in (name for name in weights if not name.endswith("key.bias")):
        torch.testing.assert_close(weights[name], others[name], atol=1e-4, rtol=0, msg=name)
