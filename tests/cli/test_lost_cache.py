"""A teacher cache that is removed, cleared or damaged while a run uses it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillery.train.objective import Objective
from stillery.train.teacher_cache import array_files

RUN = ("--method", "kd", "--layers", 2, "--cache", "on", "--max-length", 16, "--max-steps", 6, "--batch-size", 8,
       "--checkpoint-every", 2)  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def asked(tiny_teacher: Path, reviews: Path) -> tuple[object, ...]:
    return ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN)


@pytest.fixture
def whole(command, asked, cache, tmp_path) -> Path:
    done = command(*asked, "--out", tmp_path / "whole", "--verbose")
    assert done.code == 0 and "teacher cache: on" in done.err, done.err
    return tmp_path / "whole"


def same_as(out: Path, whole: Path) -> bool:
    ours, theirs = (load_file(one / "model.safetensors") for one in (out, whole))
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def at_step(number: int, do: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    after, taken = Objective.after_step, [0]

    def and_do(self: Objective, *, new_epoch: bool) -> None:
        after(self, new_epoch=new_epoch)
        taken[0] += 1
        if taken[0] == number:
            do()

    patch.setattr(Objective, "after_step", and_do)


def test_a_file_cut_short_while_it_is_read_stops_the_run(command, asked, cache, whole, tmp_path, monkeypatch):
    """Without the look at its size zeros are read, or the process is killed by SIGBUS."""
    files, out = sorted(cache.rglob("values.bin")), tmp_path / "run"
    assert len(files) == 1

    def cut() -> None:
        os.truncate(files[0], 8)

    with monkeypatch.context() as patch:
        at_step(3, cut, patch)
        done = command(*asked, "--out", out)
    assert done.code == 1 and done.err.splitlines()[-1] == (
        f"stillery: {files[0]} was cut short while the run read it; continue with --resume, which fills it again"
    )
    done = command("distill", "--resume", "--out", out)
    assert done.code == 0 and "damaged blocks of logits: 1, filled again" in done.err, done.err
    assert same_as(out, whole)


def test_a_flipped_bit_is_found_when_the_cache_is_opened(command, asked, cache, whole, tmp_path):
    (file,) = cache.rglob("values.bin")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = command(*asked, "--out", tmp_path / "run")
    assert done.code == 0 and "teacher cache: damaged blocks of logits: 1, filled again" in done.err, done.err
    assert same_as(tmp_path / "run", whole)


@pytest.mark.parametrize("how", ["removed", "cleared"])
def test_a_run_goes_on_without_the_files_that_it_has_open(command, asked, cache, whole, tmp_path, monkeypatch, how):
    from stillery.data.cache.folder import find_cache

    def remove() -> None:
        if how == "removed":
            shutil.rmtree(cache)
        else:
            found = find_cache()
            assert found is not None
            assert "teacher" not in {entry.kind for entry in found.clear()}, "it is in use"

    with monkeypatch.context() as patch:
        at_step(3, remove, patch)
        done = command(*asked, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert same_as(tmp_path / "run", whole)


def test_a_cache_lost_while_it_is_filled_is_said_in_the_metrics(command, asked, cache, tmp_path, monkeypatch):
    close, out = array_files.BlockWriter.close, tmp_path / "run"

    def lose(self: array_files.BlockWriter, whole: bool = True) -> None:
        shutil.rmtree(cache, ignore_errors=True)
        close(self, whole)

    monkeypatch.setattr(array_files.BlockWriter, "close", lose)
    done = command(*asked, "--out", out)
    why = f"{cache} cannot be used (No such file or directory)"
    assert done.code == 0 and f"teacher cache: off, {why}; the teacher runs live" in done.err, done.err
    (choice,) = json.loads((out / "metrics.json").read_text())["training"]["teacher_store"]
    assert choice["used"] is False and choice["why"] == why
