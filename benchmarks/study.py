"""What a study costs beside its training: a further cell in a worker, and 40 small cells against the same run by hand.

    python benchmarks/study.py [--cells 40] [--by-hand 5] [--workers 2] [--json FILE]

Cells are students of a tiny BERT of 4 layers, trained for 20 steps on 128 film reviews, so that nearly all of a run is
start-up. By hand means one `stillery distill` after the other; only some are run, since each takes the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 20
PLAN = """
tasks = ["reviews.csv"]
seeds = {seeds}
max_length = 32
batch_size = 8
[teacher]
model = "base"
max_steps = {steps}
[student]
layers = 2
max_steps = {steps}
[methods.none]
[methods.kd]
[methods.pkd]
[methods.layer-forward]
"""


def prepare(place: Path) -> None:
    """Write a tiny model and a file of reviews."""
    import torch
    from transformers import AutoModelForSequenceClassification, BertConfig

    from stillery.data.tasks.load_task import load_task
    from stillery.models.load_model import load_tokenizer

    torch.manual_seed(0)
    config = BertConfig(hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(place / "base")
    load_tokenizer("minilm-l6").save_pretrained(place / "base")
    examples = load_task("rotten-tomatoes").train
    rows = range(0, 160 * 42, 42)
    lines = [json.dumps({"text": examples["text"][row].as_py(), "label": int(examples.labels[row])}) for row in rows]
    (place / "reviews.jsonl").write_text("\n".join(lines), encoding="utf-8")


def command(*arguments: object) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "stillery", *map(str, arguments)], check=True, capture_output=True)
    return time.perf_counter() - began


def further_cells(plan: Path, out: Path) -> list[float]:
    """Processor seconds of each student in one worker, after the teacher."""
    from stillery.jobs.warm import kept_warm
    from stillery.progress import quiet
    from stillery.study.cells import planned
    from stillery.study.folder import StudyFolder
    from stillery.study.plan import read_plan
    from stillery.study.run_cell import run_cell

    read = read_plan(plan)
    cells, _ = planned(read)
    folder, took = StudyFolder(out), []
    folder.begin(read, cells)
    with quiet(), kept_warm():
        for cell in cells:
            began = time.process_time()
            run_cell(folder, cell)
            took.append(time.process_time() - began)
    return took[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--by-hand", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        prepare(place)
        text = PLAN.replace("reviews.csv", "reviews.jsonl")
        plan = place / "plan.toml"
        plan.write_text(text.format(seeds=list(range(asked.cells // 4)), steps=STEPS), encoding="utf-8")
        whole = command("study", plan, "--out", place / "study", "--workers", asked.workers)
        (teacher,) = (place / "study" / "cells").glob("*teacher*")
        options = ("--teacher", teacher, "--data", place / "reviews.jsonl", "--layers", 2, "--max-steps", STEPS,
                   "--batch-size", 8, "--max-length", 32, "--holdout", 0.1, "--method", "kd")  # fmt: skip
        by_hand = [command("distill", *options, "--seed", n, "--out", place / str(n)) for n in range(asked.by_hand)]
        one = statistics.median(by_hand)
        small = place / "small.toml"
        small.write_text(text.format(seeds=[0, 1, 2], steps=2), encoding="utf-8")
        took = further_cells(small, place / "further")
        found: dict[str, Any] = {
            "cells": asked.cells,
            "workers": asked.workers,
            "study_seconds": whole,
            "study_steps_per_second": asked.cells * STEPS / whole,
            "by_hand_seconds_each": one,
            "by_hand_seconds": one * asked.cells,
            "by_hand_steps_per_second": STEPS / one,
            "further_cell_of_2_steps_cpu_seconds": statistics.median(took[1:]),
            "cores": os.cpu_count(),
        }
    for name, value in found.items():
        print(f"{name:38} {value:.2f}" if isinstance(value, float) else f"{name:38} {value}")
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
