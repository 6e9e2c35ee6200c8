"""GLUE for models that generate text: scores as numbers to write, and MNLI's second dev split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr, spearmanr
from text_models import SMALL, make_writer, read

STSB = ("--task", "stsb", "--max-length", 16, "--max-target-length", 4, "--beams", 1, "--max-new-tokens", 4)
SCORES = [f"{step / 5:.1f}" for step in range(26)]


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STS-B and MNLI with made-up sentences; the first word of a pair of STS-B decides its score."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "STS-B").mkdir()
    (folder / "MNLI").mkdir()
    for part, rows in (("train", range(480)), ("dev", range(3, 33))):
        lines = [f"{row}\tw{row % 6}\tw{row % 9 + 10}\t{row % 6 * 0.83 + row % 3 / 20:.3f}" for row in rows]
        text = "\n".join(["index\tsentence1\tsentence2\tscore", *lines]) + "\n"
        (folder / "STS-B" / f"{part}.tsv").write_text(text)
    for part, count in (("train", 24), ("dev_matched", 6), ("dev_mismatched", 8)):
        lines = [
            f"w{row % 3}\tw{row % 5 + 10}\t{('entailment', 'neutral', 'contradiction')[row % 3]}"
            for row in range(count)
        ]
        text = "\n".join(["sentence1\tsentence2\tgold_label", *lines]) + "\n"
        (folder / "MNLI" / f"{part}.tsv").write_text(text)
    return folder


def expected(correlate: Callable[..., Any], gold: np.ndarray, guess: list[float]) -> Any:
    """In percent; 0 where every guess is the same."""
    return pytest.approx(100 * correlate(gold, guess).statistic if len(set(guess)) > 1 else 0, abs=1e-2)


@pytest.mark.parametrize(("family", "epochs"), [("gpt2", 8), ("t5", 1)])
def test_scores_are_written_as_numbers(command, glue, tmp_path, family, epochs):
    model = make_writer(tmp_path / "model", family, layers=2, words=SCORES)
    done = command("finetune", "--model", model, *STSB, "--data-dir", glue, "--epochs", epochs, "--lr", 5e-3,
                   "--batch-size", 32, "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    found, table = read(tmp_path / "run" / "metrics.json"), pq.read_table(tmp_path / "run" / "predictions.parquet")
    assert found["metrics"].keys() == {"pearson", "spearman", "loss", "perplexity"} and found["split"] == "dev"
    assert {text for texts in table["references"].to_pylist() for text in texts} <= set(SCORES)
    gold = np.array([row % 6 * 0.83 + row % 3 / 20 for row in range(3, 33)], dtype=np.float32).round(3)
    written = [float(text) if text in SCORES else None for text in table["output"].to_pylist()]
    assert found["no_label"] == written.count(None)
    assert f"texts that are no number, counted as 2.5: {found['no_label']}\n" in done.out
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"Texts that are no number, which count as 2.5: {found['no_label']}." in card
    guess = [2.5 if number is None else number for number in written]
    assert found["metrics"]["pearson"] == expected(pearsonr, gold, guess)
    assert found["metrics"]["spearman"] == expected(spearmanr, gold, guess)
    # The short run has learnt nothing yet, the long one writes one number or another.
    assert (found["no_label"] < len(gold)) == (len(set(guess)) > 1) == (family == "gpt2")
    done = command("evaluate", tmp_path / "run", *STSB, "--data-dir", glue, "--json")
    assert done.json["metrics"] == pytest.approx(found["metrics"], abs=1e-2)


def test_what_is_no_number_says_nothing(command, glue, tmp_path):
    model = make_writer(tmp_path / "model", "gpt2", layers=2)
    done = command("evaluate", model, *STSB, "--data-dir", glue, "--against", model, "--json")
    assert done.code == 0, done.err
    assert done.json["no_label"] == 30 and done.json["metrics"]["pearson"] == 0
    assert done.json["difference"]["metric"] == "pearson"


def test_both_dev_parts_of_mnli(command, glue, tmp_path):
    model = make_writer(tmp_path / "model", "t5", layers=2, words=("entailment", "neutral", "contradiction"))
    task = ("--task", "mnli", "--data-dir", glue)
    done = command("distill", "--teacher", model, *task, "--layers", 1, *SMALL, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = read(tmp_path / "run" / "metrics.json")
    beside = found["also"]["dev_mismatched"]
    assert (found["examples"], beside["examples"]) == (6, 8) and "teacher_metrics" in beside
    done = command("evaluate", tmp_path / "run", *task, "--beams", 2, "--max-new-tokens", 8, "--json")
    assert done.json["also"]["dev_mismatched"]["metrics"] == pytest.approx(beside["metrics"], abs=1e-3)


def test_layers_on_another_task_and_consistency_as_in_appendix_f(command, glue, tmp_path):
    words = ("entailment", "neutral", "contradiction", *SCORES)
    model = make_writer(tmp_path / "model", "t5", layers=2, words=words)
    lengths = ("--max-length", 16, "--max-target-length", 4, "--max-new-tokens", 4, "--max-steps", 12, "--log-every", 1)
    done = command("distill", "--teacher", model, "--task", "mnli", "--data-dir", glue, "--ild-task", "stsb",
                   "--layers", 1, "--preset", "cr-ild-t5-rte", "--option", "relation_heads=2", *lengths,
                   "--out", tmp_path / "run")  # fmt: skip
    assert done.code == 0, done.err
    assert "stsb" in done.err and "480 texts" in done.err
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    stages = {line["stage"]: line["terms"].keys() for line in logged if line["event"] == "train"}
    layers, words_stage = stages.values()
    assert {"decoder_attention", "decoder_consistency_attention"} <= layers and "hard" not in layers
    assert "hard" in words_stage and not any("attention" in term for term in words_stage)
    assert not any(term.startswith("encoder") for term in layers)
