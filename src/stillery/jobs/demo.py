"""A complete example on packaged data: real weights and sentences, one teacher, three students, one table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.jobs.comparison.compare import compare_runs
from stillery.jobs.config.settings import Distill, Finetune, resolve
from stillery.jobs.distill import run_distill
from stillery.jobs.finetune import run_finetune
from stillery.jobs.run_folder import finished
from stillery.progress import each_once, say

__all__ = ["STUDENTS", "Demo", "run_demo"]

STUDENTS = {
    "none": "no distillation",
    "kd": "prediction matching",
    "layer-forward": "forward layer matching",
}
"""The three methods that the demo trains its student with, as described in its table."""

_TASK, _MODEL, _LAYERS = "rotten-tomatoes", "minilm-l6", 3

# Steps of 32 sentences that fit the time on two cores: the whole training split once for the teacher, 5,120 sentences
# for each student. A run this short needs a higher learning rate than the five-epoch default.
_FULL = {"teacher": 214, "student": 160}
_FAST = {"teacher": 40, "student": 20}
_RATE = 1e-4
# All students have the same initialisation; evenly spaced layers learn faster in so few steps than the first ones.
_START = "even"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Results of the demo: a table row per model, the task, and the runs of the teacher and the student to use."""

    rows: Sequence[Mapping[str, Any]]
    task: str
    teacher: Path
    run: Path
    student: Path
    seconds: float
    reused: int


def run_demo(out: Path, *, fast: bool = False) -> Demo:
    """Fine-tune the packaged MiniLM, distil it in three ways, and compare; runs finished in `out` are reused."""
    # Four runs read the same data.
    with each_once():
        return _run(out, _FAST if fast else _FULL)


def _run(out: Path, steps: Mapping[str, int]) -> Demo:
    began = time.perf_counter()
    common = {"task": _TASK, "max_length": 64, "lr": _RATE}
    reused = sum(finished(out / name) for name in ("teacher", *STUDENTS))
    say(f"teacher: fine-tune {_MODEL} on {_TASK}")
    run = resolve(Finetune, {**common, "model": _MODEL, "max_steps": steps["teacher"]})
    run_finetune(run, out / "teacher", resume=True)
    results = {}
    for method, words in STUDENTS.items():
        say(f"student: {_LAYERS} layers, {words}")
        values = {**common, "teacher": str(out / "teacher"), "method": method, "layers": _LAYERS, "init": _START}
        distilled = resolve(Distill, {**values, "max_steps": steps["student"]})
        results[method] = run_distill(distilled, out / method, resume=True)
    found = compare_runs([str(out / name) for name in ("teacher", *STUDENTS)])
    rows = [{**row, "name": STUDENTS.get(row["name"], row["name"])} for row in found.rows]
    forward = results["layer-forward"]
    return Demo(
        rows=rows, task=_TASK, teacher=out / "teacher", run=forward.out, student=forward.student,
        seconds=time.perf_counter() - began, reused=reused,
    )  # fmt: skip
