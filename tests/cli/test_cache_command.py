"""`stillery cache`: what is kept, and how to be rid of it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest

from stillery.data.cache.arrays import Arrays, write_arrays
from stillery.data.cache.folder import find_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_listed_and_cleared(command, cache: Path) -> None:
    assert (
        command("cache").out == f"0 entries, 0.0 MB, in {cache} (limit 5 GB a kind; teacher outputs: --cache-limit)\n"
    )
    found = find_cache()
    assert found is not None
    kept = Arrays(arrays={"flat": np.zeros(500_000, np.int32)}, facts={})
    write_arrays(found, "tokens", "a" * 64, kept, "9 texts of a.csv")
    listed = command("cache").out.splitlines()
    assert listed[0].split() == ["tokens", "2.0", "MB", "9", "texts", "of", "a.csv"]
    assert listed[1].startswith("1 entry, 2.0 MB, in ")
    (row,) = command("cache", "--json").json["list"]
    assert (row["kind"], row["about"], row["folder"]) == (
        "tokens",
        "9 texts of a.csv",
        str(cache / "tokens" / ("a" * 64)),
    )
    with (cache / "tokens" / ("a" * 64) / "meta.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        kept_lines = command("cache", "clear").out.splitlines()
    assert kept_lines[0].startswith("0 entries, 0.0 MB, removed from")
    assert kept_lines[1] == "1 more in use by other runs, or not to be removed from here; clear again later"
    assert "1 entry, 2.0 MB, removed from" in command("cache", "clear").out
    assert not list(cache.glob("tokens/*"))


def test_what_it_does_not_know(command, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("cache", "clean")
    assert (done.code, done.err) == (2, "stillery: cache clean: choose list or clear\n")
    monkeypatch.setenv("STILLERY_CACHE", "off")
    assert command("cache").code == 2
