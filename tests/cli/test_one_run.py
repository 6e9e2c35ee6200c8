"""One run at a time in an output folder, and what a killed one leaves there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from forked import start

from stillery.atomic import atomic_file, remove_leftovers
from stillery.train import checkpoint

RUN = ("--layers", 1, "--cache", "off", "--max-length", 16, "--max-steps", 3, "--batch-size", 8)
LOCK = ".stillery-lock"


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".stillery-" in path.name]


def stays() -> None:
    """Stay at the first checkpoint."""

    def stay(*_: Any) -> None:
        signal.pause()

    checkpoint.save = stay


def test_a_second_run_is_refused_while_one_is_in_the_folder(command, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "run"
    asked = ["distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--checkpoint-every", 1, "--out", out]
    held = start(tmp_path / "said", *asked, before=stays)
    try:
        held.until(lambda: (out / "log.jsonl").is_file() and bool((out / "log.jsonl").read_bytes()))
        log = (out / "log.jsonl").read_bytes()
        for again in (asked, [*asked, "--overwrite"], ["distill", "--resume", "--out", out]):
            done = command(*again)
            assert done.code == 2 and done.err.count("\n") == 1, done.err
            assert f"stillery: --out {out} is in use by process {held.pid} on " in done.err
            assert done.err.endswith(": wait for it, stop it, or give another folder\n")
        assert (out / "log.jsonl").read_bytes() == log
    finally:
        held.kill()
    # The lock of a killed process blocks nobody.
    assert (out / LOCK).is_dir()
    done = command("distill", "--resume", "--out", out)
    assert done.code == 0, done.err
    assert not parts(out) and not (out / "checkpoints").exists()


def test_two_started_in_the_same_instant(tiny_teacher, reviews, tmp_path):
    """One of them ends with its run, the other with one line."""
    out = tmp_path / "run"
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--out", out)
    both = [start(tmp_path / name, *asked) for name in ("one", "other")]
    assert sorted(process.wait() for process in both) == [0, 2], [process.err for process in both]
    refused = next(process.err.splitlines()[-1] for process in both if process.code == 2)
    # The slower one may come when the run has its run file, or is finished.
    assert f"--out {out} is in use by" in refused or f"--out {out} holds this run" in refused
    assert (out / "metrics.json").is_file() and not parts(tmp_path)


def dies_at_its_run_file() -> None:
    replace = Path.replace

    def kill(path: Path, place: Path) -> Path:
        if place.name == "run.toml":
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, place)

    Path.replace = kill  # type: ignore[method-assign, assignment]


def test_killed_while_its_first_run_file_is_written(command, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "run"
    asked = ["distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--out", out]
    assert start(tmp_path / "said", *asked, before=dies_at_its_run_file).wait() == -signal.SIGKILL
    assert not (out / "run.toml").exists() and any("run.toml" in path.name for path in parts(out))
    done = command(*asked)
    assert done.code == 0, done.err
    assert not parts(out) and (out / "metrics.json").is_file()


def test_what_is_the_users_is_no_beginning_of_a_run(command, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "run"
    (out / "given").mkdir(parents=True)
    done = command("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--out", out)
    assert done.code == 2 and f"--out {out} is not empty and holds no run" in done.err


def test_a_refused_run_leaves_no_folder(command, tiny_teacher, reviews, tmp_path):
    """The folder is made for its lock; checks that come later may still refuse the run."""
    out = tmp_path / "new" / "run"
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--method", "tinybert", "--max-steps", 1)
    done = command(*asked, "--out", out)
    assert done.code == 2 and not out.exists(), done.err
    assert not list(tmp_path.rglob(".stillery-*"))


@pytest.fixture
def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_temporary_files_of_ended_processes_are_removed_at_once(tmp_path, ended):
    with atomic_file(tmp_path / "table.csv") as part:
        part.write_text("")
        mine = part.name
    assert f".{os.getpid()}-" in mine
    theirs = mine.replace(f".{os.getpid()}-", f".{ended}-")
    elsewhere = ".stillery-part-00000000" + theirs[len(".stillery-part-00000000") :]
    for name in (mine, theirs, elsewhere, theirs.replace("table", "other")):
        (tmp_path / name).write_text("")
    with atomic_file(tmp_path / "table.csv") as part:
        part.write_text("")
    assert not (tmp_path / theirs).exists(), "removed by whoever writes the same file again"
    assert (tmp_path / theirs.replace("table", "other")).exists()
    remove_leftovers(tmp_path, older_than=3600)
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", mine, elsewhere}
    os.utime(tmp_path / elsewhere, (time.time() - 7200,) * 2)
    remove_leftovers(tmp_path, older_than=3600)
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", mine}
