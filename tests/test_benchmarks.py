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
