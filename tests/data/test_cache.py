"""The cache folder: where it is, what it holds, and what it lets go of."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
from stillery.data.cache.folder import Cache, find_cache
from stillery.data.cache.locks import Turn, share
from stillery.errors import UserError

KEYS = [letter * 64 for letter in "abcd"]


def fill(cache: Cache, key: str, used: float) -> None:
    write_arrays(cache, "tokens", key, Arrays(arrays={"flat": np.zeros(1000, np.int32)}, facts={}), f"entry {key[0]}")
    if cache.place("tokens", key).exists():
        os.utime(cache.place("tokens", key), (used, used))


def shown(cache: Cache) -> str:
    return "".join(entry.about[-1] for entry in cache.entries())


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder() -> Path | None:
        found = find_cache()
        return None if found is None else found.folder

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("STILLERY_CACHE", "~/mine")
    assert folder() == tmp_path / "home" / "mine"
    monkeypatch.setenv("STILLERY_CACHE", "OFF")
    assert folder() is None
    monkeypatch.delenv("STILLERY_CACHE")
    assert folder() == tmp_path / "xdg" / "stillery"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert folder() == tmp_path / "home" / ".cache" / "stillery"


def test_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(value: str) -> int:
        monkeypatch.setenv("STILLERY_CACHE_LIMIT", value)
        found = find_cache()
        assert found is not None
        return found.limit

    assert (limit(""), limit("0.5"), limit("-1")) == (5 * 10**9, 5 * 10**8, 0)
    for wrong in ("much", "nan", "inf"):
        with pytest.raises(UserError, match=f"STILLERY_CACHE_LIMIT={wrong}: give a number of gigabytes"):
            limit(wrong)


def test_how_long_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(value: str) -> float:
        monkeypatch.setenv("STILLERY_CACHE_WAIT", value)
        found = find_cache()
        assert found is not None
        return found.wait

    assert (wait(""), wait("0.5"), wait("-1")) == (60.0, 0.5, 0.0)
    with pytest.raises(UserError, match="STILLERY_CACHE_WAIT=long: give a number of seconds, such as 60"):
        wait("long")


def test_a_turn_is_one_processs_and_ends_with_it(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from stillery.data.cache.locks import Turn
turn = Turn(Path(sys.argv[1]), "runs/mine")
print(turn.take(), flush=True)
sys.stdin.readline()
"""
    start = [sys.executable, "-c", program, str(tmp_path)]
    other = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "True\n"
    turn = Turn(tmp_path, "runs/yours")
    assert not turn.take() and not turn.take()
    assert turn.holder().startswith(f"process {other.pid} on ") and "(runs/mine, since 20" in turn.holder()
    turn.let_go()
    assert not turn.take(), "what was not taken is not given back"
    assert str(other.pid) in turn.holder(), "nor is the note of another removed"
    other.kill()
    other.wait()
    assert turn.take() and f"process {os.getpid()} on " in turn.holder() and "runs/yours" in turn.holder()
    again = Turn(tmp_path)
    assert not again.take(), "nor can one process take it twice"
    before = again.last_move()
    turn.moved()
    assert again.last_move() not in (None, before)
    turn.let_go()
    assert again.take()
    again.let_go()
    assert again.holder() == "another process" and again.last_move() is None


@pytest.mark.skipif(sys.platform == "win32", reason="there a folder is not moved as long as a file of it is open")
def test_what_is_read_or_filled_is_not_removed(tmp_path: Path) -> None:
    cache = Cache(folder=tmp_path, limit=10**9)
    for key in KEYS[:3]:
        fill(cache, key, time.time())
    turn = Turn(cache.place("tokens", KEYS[0]))
    assert turn.take()
    with next(cache.place("tokens", KEYS[1]).glob("*")).open("rb") as read:
        assert share(read.fileno())
        assert [entry.about[-1] for entry in cache.clear()] == ["c"]
        assert set(shown(cache)) == set("ab")
        assert turn.holder().startswith("process "), "nothing of it is gone"
    turn.let_go()
    assert {entry.about[-1] for entry in cache.clear()} == set("ab") and not cache.entries()
    assert not list((tmp_path / "tokens").iterdir())


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    cache, now = Cache(folder=tmp_path, limit=10**9), time.time()
    for age, key in enumerate(KEYS[:3]):
        fill(cache, key, now - 100 * (age + 1))
    assert shown(cache) == "abc"
    assert read_arrays(cache, "tokens", KEYS[2]) is not None
    assert shown(cache) == "cab", "reading is using"
    size = cache.entries()[0].bytes
    assert 4000 < size < 6000
    fill(Cache(folder=tmp_path, limit=3 * size), KEYS[3], now)
    assert set(shown(cache)) == set("dca"), "the one used longest ago made room"
    fill(Cache(folder=tmp_path, limit=size // 2), "e" * 64, now)
    assert set(shown(cache)) == set("dca"), "what is larger than the whole cache is not kept"


def test_only_what_is_its_own_is_removed(tmp_path: Path) -> None:
    cache = Cache(folder=tmp_path, limit=10**9)
    fill(cache, KEYS[0], time.time())
    others = [tmp_path / "notes" / "mine" / "meta.json", tmp_path / "tokens" / "thesis.txt"]
    parts = [tmp_path / "tokens" / f".stillery-part-{age}" for age in ("old", "young")]
    for path in others:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("{}")
    for part in parts:
        part.mkdir()
    os.utime(parts[0], (0, 0))
    assert [entry.about for entry in cache.clear()] == ["entry a"]
    assert all(path.exists() for path in others) and cache.entries() == []
    assert [part.exists() for part in parts] == [False, True], "a young part may be one that is being written"


RACER = """
import sys
from pathlib import Path
import numpy as np
from stillery.data.cache.folder import Cache
from stillery.data.cache.arrays import Arrays, read_arrays, write_arrays
cache = Cache(folder=Path(sys.argv[1]), limit=10**9)
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    key, arrays = f"{number:064x}", Arrays(arrays={"flat": np.full(20_000, number)}, facts={})
    kept = read_arrays(cache, "tokens", key)
    if kept is None:
        write_arrays(cache, "tokens", key, arrays, "numbers")
        kept = read_arrays(cache, "tokens", key)
    assert (kept.arrays["flat"] == number).all()
"""


def test_processes_may_race(tmp_path: Path) -> None:
    start = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ended = [(*racer.communicate(timeout=60), racer.returncode) for racer in racers]
    assert ended == [("", "", 0)] * 3
    assert len(Cache(folder=tmp_path, limit=10**9).entries()) == 20 and not list(tmp_path.glob("tokens/.*"))


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what a killed process leaves behind: a lock that is a file would stay for good."""
    fcntl = pytest.importorskip("fcntl")

    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    first, second = Turn(tmp_path), Turn(tmp_path)
    assert first.take() and second.take()
    # As if the process of the first one had been killed.
    del first
    assert Turn(tmp_path).take()
    second.let_go()
    assert Turn(tmp_path).take()
