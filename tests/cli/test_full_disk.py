"""A disk that is full while weights are written: one line that names the place, and a run that continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")
KILOBYTE = 1000


def run(most: int | None, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in a process that may write no file of more kilobytes."""
    limit = resource.RLIM_INFINITY if most is None else most * KILOBYTE
    return subprocess.run(
        [sys.executable, "-m", "stillery", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"STILLERY_CACHE": "off"},
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )


def parts_left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".stillery-part-" in path.name or path.name.startswith(".tmp")]


@pytest.mark.parametrize(
    ("more", "place"),
    [
        (("--eval-every", 2), "checkpoints/best-2"),
        (("--checkpoint-every", 1), "checkpoints/step-1"),
    ],
)
def test_weights_that_find_no_room_are_one_line_and_the_run_goes_on(tiny_teacher, reviews, tmp_path, more, place):
    out = tmp_path / "run"
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--max-steps", 3, *more)
    full = run(1000, *asked, "--out", out)
    assert full.returncode == 2 and "Traceback" not in full.stderr, full.stderr
    assert full.stderr.splitlines()[-1] == f"stillery: {out / place}: File too large"
    assert not (out / place).exists() and not parts_left(out) and (out / "run.toml").is_file()
    again = run(None, *asked, "--out", out, "--resume")
    assert again.returncode == 0, again.stderr
    assert (out / "metrics.json").is_file() and not parts_left(out)


def test_a_tokenizer_that_finds_no_room_is_one_line(tiny_teacher, reviews, tmp_path):
    # The student's weights fit, the list of words beside them does not.
    done = run(600, "distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 1, "--width", 4, "--heads", 1,
               "--max-steps", 1, "--out", tmp_path / "run")  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1] == f"stillery: {tmp_path / 'run'}: File too large"
    assert not {"config.json", "model.safetensors"} & {path.name for path in (tmp_path / "run").iterdir()}
