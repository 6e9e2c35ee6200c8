"""Run folders made of files alone, as runs write them, so that many of them cost nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from stillery.evaluation.paired import wilson

NAMES = ("negative", "positive")


def make_run(
    folder: Path, *, right: float, seed: int, data: str = "reviews.csv", examples: int = 400, steps: int = 100,
    names: Sequence[str] = NAMES, method: str = "kd", layers: int = 3, texts: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a finished student: `right` of its answers are right, its teacher's nine in ten.

    With `texts` there is an example for each of them; `data` has to be where they are.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    count = len(texts) or examples
    gold = np.arange(count) % len(names)
    columns: dict[str, Any] = {"id": [str(row + 1) for row in range(count)], "label": [names[one] for one in gold]}
    scores = {}
    for prefix, share, drawn in (("", right, random), ("teacher_", 0.9, np.random.default_rng(7))):
        wrong = drawn.random(count) > share
        guess = np.where(wrong, (gold + 1) % len(names), gold)
        sure = drawn.uniform(0.5, 1.0, count)
        columns[f"{prefix}prediction"] = [names[one] for one in guess]
        rows = np.where(np.arange(2) == guess[:, None], sure[:, None], 1 - sure[:, None])
        columns[f"{prefix}probabilities"] = pa.array(rows.tolist(), pa.list_(pa.float32()))
        scores[prefix] = 100 * float((guess == gold).mean())
    pq.write_table(pa.table(columns), folder / "predictions.parquet")
    write_log(folder / "log.jsonl", steps, random)
    ours = round(scores[""], 4)
    between = [round(one, 4) for one in wilson(round(ours * count / 100), count)]
    same = [one == other for one, other in zip(columns["prediction"], columns["teacher_prediction"], strict=True)]
    metrics = {
        "task": Path(data).stem, "examples": count, "split": "test", "metrics": {"accuracy": ours},
        "intervals": {"accuracy": between}, "teacher_metrics": {"accuracy": round(scores["teacher_"], 4)},
        "agreement": round(100 * float(np.mean(same)), 4),
        "cost": {
            "parameters": 5_000_000 * layers, "megabytes": 20.0 * layers, "latency_ms": 2.0 * layers + random.random(),
            "train_seconds": 10.0 + seed, "teacher_parameters": 30_000_000, "teacher_latency_ms": 13.0,
        },
        "training": {"steps": steps, "kept_step": steps, "dev_best": {}, "dev_last": {}},
    }  # fmt: skip
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    run = {
        "job": "distill", "paths": "relative to this file", "teacher": "../teacher", "data": data, "method": method,
        "layers": layers, "seed": seed, "max_length": 32,
    }  # fmt: skip
    (folder / "run.toml").write_text(tomli_w.dumps(run), encoding="utf-8")
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write_log(file: Path, steps: int, random: np.random.Generator) -> None:
    """Write the log of a run with two loss terms."""
    lines = []
    for step in range(1, steps + 1):
        hard, soft = np.exp(-step / 40) + 0.05 * random.random(2)
        terms = {"hard": float(hard), "soft": 2 * float(soft)}
        event = {"event": "train", "step": step, "stage": "train", "loss": sum(terms.values()), "terms": terms}
        lines.append(event)
        if step % 10 == 0:
            lines.append({"event": "dev", "step": step, "metrics": {"accuracy": 50 + step / 10}})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
