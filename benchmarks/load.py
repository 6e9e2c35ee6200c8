"""Load: a study of many tiny cells, a file of a million rows, a log of a million lines.

    python benchmarks/load.py [study] [rows] [log] [--cells 500] [--workers 4] [--rows N] [--lines N] [--json FILE]

- study: no cell may be lost or run twice; what a cell takes beside its training; the memory of workers, early and late.
- rows: a CSV of that many reviews, distilled for 100 steps: its most memory, and when the first step begins.
- log: a `log.jsonl` of that many lines is opened by a resumed run, and read for `diagnose` and for a report.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study import PLAN, command, prepare

STEPS = 2
"""Steps of a cell of the study, so that nearly all of it is what a cell takes beside its training."""


def arguments_of(*arguments: object) -> list[str]:
    """A command line of stillery."""
    return [sys.executable, "-m", "stillery", *map(str, arguments)]


def status(process: int, name: str) -> int:
    """A number of kilobytes that the system says of a process; 0 of one that is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def children(process: int) -> list[int]:
    """The processes that a process has started and that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == process:
            found.append(int(stat.parent.name))
    return found


# A study.


def a_study(place: Path, cells: int, workers: int) -> dict[str, Any]:
    """Run a study and look at what its folder says: who had which cell, and how much memory workers took meanwhile."""
    prepare(place)
    plan, out = place / "plan.toml", place / "study"
    text = PLAN.replace("reviews.csv", "reviews.jsonl").format(seeds=list(range(-(-cells // 4))), steps=STEPS)
    plan.write_text(text, encoding="utf-8")
    began = time.perf_counter()
    running = subprocess.Popen(
        arguments_of("study", plan, "--out", out, "--workers", workers),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    seen: list[tuple[int, dict[int, float]]] = []
    while running.poll() is None:
        time.sleep(1)
        done = len(list(out.glob("cells/*/metrics.json")))
        held = {process: status(process, "VmRSS") / 1024 for process in children(running.pid)}
        seen.append((done, {process: size for process, size in held.items() if size > 200}))
    seconds = time.perf_counter() - began
    if running.returncode:
        raise SystemExit(f"the study failed with {running.returncode}: {out}")
    folders = [path for path in (out / "cells").iterdir() if path.is_dir()]
    claims = {path.name: _takers(out / "claims" / path.name) for path in folders}
    finished = sum((path / "metrics.json").is_file() for path in folders)
    early = [size for done, held in seen if len(folders) * 0.15 <= done <= len(folders) * 0.3 for size in held.values()]
    late = [size for done, held in seen if done >= len(folders) * 0.85 for size in held.values()]
    return {
        "cells": len(folders),
        "workers": workers,
        "finished": finished,
        "lost": len(folders) - finished,
        "run_twice": sum(takers > 1 for takers in claims.values()),
        "study_seconds": seconds,
        "worker_megabytes_early": statistics.median(early) if early else None,
        "worker_megabytes_late": statistics.median(late) if late else None,
        **_beside_training(place, text),
    }


def _takers(claims: Path) -> int:
    """How often a cell was taken."""
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in claims.glob("*.json")]
    return sum(note["owner"] is not None for note in notes)


def _beside_training(place: Path, text: str) -> dict[str, float]:
    """Processor seconds of further cells in one worker, and how many of them are spent outside of the training loop."""
    import stillery.jobs.run as job
    from stillery.jobs.warm import kept_warm
    from stillery.progress import quiet
    from stillery.study.cells import planned
    from stillery.study.folder import StudyFolder
    from stillery.study.plan import read_plan
    from stillery.study.run_cell import run_cell

    plan = place / "few.toml"
    lines = ["seeds = [0, 1, 2, 3]" if line.startswith("seeds") else line for line in text.splitlines()]
    plan.write_text("\n".join(lines), encoding="utf-8")
    train, spent = job.train, [0.0]

    def timed(*given: Any, **settings: Any) -> Any:
        began = time.process_time()
        try:
            return train(*given, **settings)
        finally:
            spent[0] += time.process_time() - began

    read = read_plan(plan)
    cells, _ = planned(read)
    folder, took, beside = StudyFolder(place / "few"), [], []
    folder.begin(read, cells)
    job.train = timed
    try:
        with quiet(), kept_warm():
            for cell in cells:
                spent[0], began = 0.0, time.process_time()
                run_cell(folder, cell)
                took.append(time.process_time() - began)
                beside.append(took[-1] - spent[0])
    finally:
        job.train = train
    # The first ones load what all share.
    return {
        "cell_cpu_seconds": statistics.mean(took[5:]),
        "cell_cpu_seconds_beside_training": statistics.mean(beside[5:]),
    }


# A file of many rows.


def many_rows(place: Path, rows: int) -> dict[str, Any]:
    """Distil a tiny student on a CSV of so many rows; its peak is that of the process, as the system counts."""
    prepare(place)
    data, teacher, out = place / "many.csv", place / "teacher", place / "student"
    texts = [json.loads(line) for line in (place / "reviews.jsonl").read_text(encoding="utf-8").splitlines()]
    with data.open("w", encoding="utf-8") as file:
        file.write("text,label\n")
        for row in range(rows):
            one = texts[row % len(texts)]
            file.write(f'"{row} {one["text"].replace(chr(34), "")}",{one["label"]}\n')
    few = place / "reviews.jsonl"
    command(
        "finetune", "--model", place / "base", "--data", few, "--max-steps", 2, "--max-length", 32, "--out", teacher
    )
    began = time.perf_counter()
    running = subprocess.Popen(
        arguments_of("distill", "--teacher", teacher, "--data", data, "--out", out, "--layers", 2, "--method", "kd",
                     "--max-steps", 100, "--log-every", 1, "--dev-samples", 1000, "--max-length", 32),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"STILLERY_CACHE": str(place / "cache")},
    )  # fmt: skip
    first, peak = None, 0
    while running.poll() is None:
        time.sleep(0.05)
        peak = max(peak, status(running.pid, "VmHWM"))
        log = out / "log.jsonl"
        if first is None and log.exists() and log.stat().st_size:
            first = time.perf_counter() - began
    if running.returncode:
        raise SystemExit(f"the run failed with {running.returncode}")
    return {
        "rows": rows,
        "csv_megabytes": data.stat().st_size / 1e6,
        "rows_first_step_seconds": first,
        "rows_seconds": time.perf_counter() - began,
        "rows_peak_mebibytes": peak / 1024,
    }


# A long log.


def a_long_log(place: Path, lines: int) -> dict[str, Any]:
    """Seconds and mebibytes, each in a process of its own, to open a long log for resuming and to read it."""
    from stillery.reports.curves import read_curves
    from stillery.train.log import RunLog, read_events
    from stillery.train.loop import accelerator_for

    log = place / "log.jsonl"
    with log.open("w", encoding="utf-8") as file:
        for step in range(1, lines + 1):
            event = {
                "event": "train",
                "step": step,
                "stage": "kd",
                "epoch": 1,
                "lr": 4.9e-05,
                "loss": 1.2345678 + 1 / step,
            }
            event |= {"terms": {"hidden": 0.51234567, "prediction": 0.31234, "labels": 0.412345}, "seconds": step / 100}
            file.write(json.dumps(event | {"gradient_norm": 1.234567}) + "\n")
    accelerator = accelerator_for("fp32")
    jobs: dict[str, Callable[[], object]] = {
        "resumed": lambda: RunLog(place, accelerator=accelerator, after_step=lines - 10).close(),
        "read": lambda: read_events(log),
        "curves": lambda: read_curves(log, group="kd", run="kd"),
    }
    found: dict[str, Any] = {"log_lines": lines, "log_megabytes": log.stat().st_size / 1e6}
    for name, job in jobs.items():
        found |= {f"log_{name}_{what}": number for what, number in _forked(job).items()}
    return found


def _forked(job: Callable[[], object]) -> dict[str, float]:
    """What a job takes in a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        job()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(write, json.dumps({"seconds": time.perf_counter() - began, "mebibytes": grown / 1024}).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as found:
        said: dict[str, float] = json.loads(found.read())
    os.waitpid(child, 0)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="study, rows, log; all of them by default")
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "study": lambda place: a_study(place, asked.cells, asked.workers),
        "rows": lambda place: many_rows(place, asked.rows),
        "log": lambda place: a_long_log(place, asked.lines),
    }
    for wrong in set(asked.parts) - set(parts):
        parser.error(f"{wrong}: choose from {', '.join(parts)}")
    found: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    for name in asked.parts or parts:
        with tempfile.TemporaryDirectory() as folder:
            found |= parts[name](Path(folder))
    for name, value in found.items():
        print(f"{name:36} {value:.3f}" if isinstance(value, float) else f"{name:36} {value}")
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
