"""Long logs: a run that is resumed looks at the end of its log only, and readers hold some of its steps."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillery.reports.curves import read_curves
from stillery.train import log
from stillery.train.log import RunLog, read_events
from stillery.train.loop import accelerator_for

STEPS = 30_000


def event(step: int) -> dict[str, Any]:
    stage = "hidden" if step <= STEPS // 3 else "prediction"
    found = {"event": "train", "step": step, "stage": stage, "epoch": 1, "lr": 1e-4, "loss": 1 / step}
    return found | {"terms": {"hidden": 2 / step, "labels": 3 / step, "prediction": 4 / step}, "seconds": step / 100}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps(event(step)) + "\n" for step in range(1, STEPS + 1)]
    lines[STEPS // 2 : STEPS // 2] = [
        json.dumps({"event": "dev", "step": STEPS // 2, "metrics": {"accuracy": 50}}) + "\n"
    ]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    return tmp_path


def resume(folder: Path, step: int) -> None:
    RunLog(folder, accelerator=accelerator_for("fp32"), after_step=step).close()


def megabytes(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("end", [200, 1 << 30])
@pytest.mark.parametrize("step", [STEPS, STEPS - 100, STEPS // 2, 0])
def test_what_is_beyond_the_step_is_dropped_wherever_it_begins(folder, monkeypatch, end, step):
    monkeypatch.setattr(log, "_END", end)
    file = folder / "log.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    # What a killed process was writing.
    file.write_text("".join(lines) + '{"event": "tr')
    resume(folder, step)
    assert file.read_text().splitlines(keepends=True) == [line for line in lines if json.loads(line)["step"] <= step]


def test_a_resumed_run_holds_the_end_of_its_log_only(folder, monkeypatch):
    monkeypatch.setattr(log, "_END", 1 << 16)
    assert megabytes(lambda: resume(folder, STEPS - 10)) < 5
    assert read_events(folder / "log.jsonl")[0][-1]["step"] == STEPS - 10


def test_of_a_long_log_some_steps_are_read_with_the_ends_of_its_stages(folder, monkeypatch):
    whole, damaged = read_events(folder / "log.jsonl")
    assert (len(whole), damaged) == (STEPS + 1, 0)
    monkeypatch.setattr(log, "_MOST_EVENTS", 100)
    some, damaged = read_events(folder / "log.jsonl")
    assert 100 <= len(some) <= 105 and damaged == 0
    steps = [one["step"] for one in some]
    assert steps == sorted(steps) and {1, STEPS // 3, STEPS // 3 + 1, STEPS} <= set(steps)
    assert [one for one in some if one["event"] == "dev"] == [one for one in whole if one["event"] == "dev"]
    assert all(one in (event(one["step"]), whole[STEPS // 2]) for one in some)


def test_curves_of_a_long_log_have_points_from_all_of_it(folder):
    curves = {one.term: one.points for one in read_curves(folder / "log.jsonl", group="kd", run="kd")}
    points = curves["loss"]
    assert points[0] == (1, 1.0) and points[-1] == (STEPS, 1 / STEPS) and 5_000 <= len(points) <= 10_001
    gaps = {after[0] - before[0] for before, after in itertools.pairwise(points[:-1])}
    assert len(gaps) == 1 and all(value == 1 / step for step, value in points)
    assert curves["dev accuracy"] == [(STEPS // 2, 50.0)]
