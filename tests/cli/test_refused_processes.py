"""A refusal in several processes is printed once, by the first process, and is the last thing the launcher says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_refusal_is_printed_once_and_is_the_launchers_last_word(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    distill = ("-m", "stillery", "distill", "--teacher", "x", "--data", "nowhere.csv", "--layers", "1", "--out", "y")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *distill], capture_output=True, text=True, cwd=tmp_path, env=one_thread, timeout=100
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines.count("stillery: no such file: nowhere.csv") == 1
    # The launcher's own trace cannot be left out; what it ends with is the line.
    assert lines[-2].strip() == "traceback : stillery: no such file: nowhere.csv" and set(lines[-1]) == {"="}
    assert done.stderr.count("no such file") == 2
    assert not list(tmp_path.iterdir())
