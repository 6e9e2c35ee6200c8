"""Claims: of all that want a cell one gets it, and a dead worker's cell goes to one other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stillery.study.claims import LOST, Claims, Pace

QUICK = Pace(beat=0.05, dead=0.4)

WORKER = """
import sys, time
from pathlib import Path
from stillery.study.claims import Claims, Pace
folder, job = Path(sys.argv[1]), sys.argv[2]
with Claims(folder, pace=Pace(beat=0.05, dead=60)) as claims:
    if job == "hold":
        assert claims.take("cell")
        print("held", flush=True)
        time.sleep(60)
    for number in range(30):
        cell = f"cell-{number}"
        if (folder / f"{cell}.done").exists() or not claims.take(cell):
            continue
        if not (folder / f"{cell}.done").exists():
            time.sleep(0.002)
            with (folder / "log").open("a") as log:
                log.write(f"{cell}\\n")
            (folder / f"{cell}.done").touch()
        claims.release(cell)
"""


def start(folder: Path, job: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder), job], stdout=subprocess.PIPE, text=True)


def test_four_workers_lose_no_cell_and_do_none_twice(tmp_path):
    workers = [start(tmp_path, "work") for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    done = (tmp_path / "log").read_text().splitlines()
    assert sorted(done) == sorted(f"cell-{number}" for number in range(30))


def test_of_many_that_find_a_worker_dead_one_takes_over(tmp_path):
    """Killed without a chance to say so: on one machine that is seen at once."""
    held = start(tmp_path, "hold")
    assert held.stdout is not None and held.stdout.readline() == "held\n"
    others = [Claims(tmp_path, pace=QUICK) for _ in range(6)]
    assert not any(other.take("cell") for other in others)
    assert "process" in (others[0].holder("cell") or "")
    os.kill(held.pid, signal.SIGKILL)
    # Not waited for yet: a process that ended and nobody has asked for is dead too.
    deadline = time.monotonic() + 10
    while others[0].holder("cell") is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [other.take("cell") for other in others].count(True) == 1
    held.wait()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Claims:
    """A worker of another machine, at a cell."""
    import stillery.study.claims as module

    claims = Claims(tmp_path, pace=QUICK, lost=lambda: None)
    monkeypatch.setattr(module, "this_place", lambda: "another machine")
    claims.__enter__()
    assert claims.take("cell")
    monkeypatch.undo()
    return claims


def test_a_worker_of_another_machine_lives_while_its_counter_moves_whatever_the_clocks_say(tmp_path, elsewhere):
    for path in tmp_path.rglob("*"):
        # A clock that is a year off.
        os.utime(path, (time.time() - 3e7, time.time() - 3e7))
    other = Claims(tmp_path, pace=QUICK)
    deadline = time.monotonic() + 3 * QUICK.dead
    while time.monotonic() < deadline:
        assert not other.take("cell")
        time.sleep(0.05)
    # It stops without a word.
    elsewhere._stop.set()
    elsewhere._thread.join()
    assert not other.take("cell")
    began = time.monotonic()
    while not other.take("cell"):
        assert time.monotonic() - began < 10
        time.sleep(0.02)
    assert time.monotonic() - began >= QUICK.dead * 0.9
    assert not Claims(tmp_path, pace=QUICK).take("cell")


def test_a_worker_whose_cell_was_taken_ends_itself(tmp_path):
    """It was stopped for so long that another took over: two never continue one cell."""
    lost = []
    with Claims(tmp_path, pace=QUICK, lost=lambda: lost.append(LOST)) as claims:
        assert claims.take("cell")
        # As whoever takes over writes it.
        assert Claims(tmp_path)._write("cell", 2, "another")
        deadline = time.monotonic() + 10
        while not lost and time.monotonic() < deadline:
            time.sleep(0.01)
    assert lost


def test_a_cell_that_is_given_back_is_free_and_a_worker_that_ends_gives_all_back(tmp_path):
    with Claims(tmp_path) as first:
        assert first.take("one") and first.take("two")
        first.release("one")
        second = Claims(tmp_path)
        assert second.take("one") and not second.take("two")
    assert Claims(tmp_path).take("two")
    assert not list(tmp_path.glob("*.heartbeat"))


def test_without_hard_links(tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    one, other = Claims(tmp_path), Claims(tmp_path)
    assert one.take("cell") and not other.take("cell")
    one.release("cell")
    assert other.take("cell")
