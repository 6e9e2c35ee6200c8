"""Memory is held while a run trains and given back after it, where the C library is glibc and nobody said otherwise."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from stillery.train import held_memory
from stillery.train.held_memory import held_heap


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the C library was asked for."""
    found: list[tuple] = []
    for name in held_memory._OWN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(held_memory, "_malloc", lambda name: lambda *given: found.append((name, *given)) or 1)
    return found


def test_it_is_held_inside_and_given_back_after(asked: list[tuple]) -> None:
    @held_heap()
    def stopped() -> None:
        assert asked == [("mallopt", -3, 2**30), ("mallopt", -1, 2**31 - 1)]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert asked[2:] == [("mallopt", -3, 2**25), ("mallopt", -1, 2**26), ("malloc_trim", 0)]


@pytest.mark.parametrize("name", held_memory._OWN)
def test_what_somebody_has_set_stays(asked: list[tuple], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with held_heap():
        pass
    assert not asked


def test_another_c_library_is_left_alone(asked: list[tuple], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_memory, "_malloc", lambda name: None)
    with held_heap():
        pass
    assert not asked


def test_a_function_that_is_not_there_is_none() -> None:
    assert held_memory._malloc("no_such_function_of_any_library") is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc does")
def test_large_pieces_are_not_given_back_inside_and_are_after() -> None:
    """In a process of its own, by the pages it holds: 40 MB that are freed inside the block are still its own."""
    program = """
import numpy as np
from stillery.train.held_memory import held_heap
def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
def take():
    np.ones(40_000_000, dtype=np.uint8)
take()
before = held()
with held_heap():
    take()
    inside = held()
print(inside - before, held() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    inside, after = map(float, done.stdout.split())
    assert inside > 30 and after < 10
