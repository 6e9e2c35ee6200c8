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
