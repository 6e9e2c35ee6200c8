"""Benchmarks run, in a tiny setting; how fast is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from stillery import methods

ROOT = Path(__file__).parent.parent


def test_the_benchmark_of_the_methods_runs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "methods.py",
        "--tiny",
        "--steps",
        "2",
        "--json",
        tmp_path / "b.json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["methods"].keys() == set(methods.names())
    assert not found["refused"]
    assert found["methods"]["kd"]["of_kd"] == 1.0


def test_the_benchmark_of_the_vocabulary_runs(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "vocabulary.py", "--tiny", "--device", "cpu", "--repeats", "1"]
    chosen = ["--losses", "kl", "cross-entropy", "--scored", "0.5", "--json", tmp_path / "b.json"]
    done = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["losses"].keys() == {"kl", "cross-entropy"}
    assert all(row["ms_ours"] > 0 and row["peak_ours"] > 0 for row in found["losses"].values())
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["kl", "cross-entropy"]


def test_the_benchmark_of_the_levers_runs_and_none_changes_the_losses(tmp_path: Path) -> None:
    small = ["--layers", "4", "--width", "64", "--examples", "64", "--epochs", "1", "--batch-size", "16"]
    command = [sys.executable, ROOT / "benchmarks" / "levers.py", "--device", "cpu", *small, "--methods", "pkd"]
    done = subprocess.run([*command, "--json", tmp_path / "b.json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert [(one["method"], one["cache"]) for one in found] == [("none", "off"), ("pkd", "off"), ("pkd", "on")]
    assert found[2]["apart"] < 1e-5


def test_the_benchmark_of_workers_runs(tmp_path: Path) -> None:
    small = ["--layers", "4", "--width", "64", "--examples", "64", "--epochs", "1", "--batch-size", "16"]
    command = [sys.executable, ROOT / "benchmarks" / "workers.py", "--device", "cpu", *small, "--workers", "1", "2"]
    done = subprocess.run([*command, "--json", tmp_path / "b.json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert [one["workers"] for one in found] == [1, 2]
    assert all(one["steps_per_second"] > 0 for one in found)
