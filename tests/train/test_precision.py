"""Precision is tried in a child process first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stillery.data.cache.folder import find_cache
from stillery.errors import UserError
from stillery.train import precision


def test_auto_is_fp32_on_a_cpu() -> None:
    assert precision.choose("auto", "cpu") == "fp32"
    assert precision.choose("fp32", "cpu") == "fp32"


def test_a_precision_that_kills_the_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    precision._trial.cache_clear()
    with pytest.raises(UserError, match=r"SIGILL.*--precision fp32"):
        precision.choose("bf16", "cpu")
    precision._trial.cache_clear()


def test_a_limit_on_instructions_is_set_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = "import os, signal; os.environ.get('ONEDNN_MAX_CPU_ISA') or os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(precision, "_TRIAL", trial)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    precision._trial.cache_clear()
    assert precision.choose("bf16", "cpu") == "bf16"
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"
    precision._trial.cache_clear()


def test_a_child_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_TRIAL", "raise RuntimeError('no such format')")
    precision._trial.cache_clear()
    with pytest.raises(UserError, match="no such format"):
        precision.choose("fp16", "cpu")
    precision._trial.cache_clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A GPU that says it has bf16, and the trials that were made on it."""
    tried: list[str] = []
    run = subprocess.run
    monkeypatch.setenv("STILLERY_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(subprocess, "run", lambda command, **given: tried.append(command[-1]) or run(command, **given))
    precision._trial.cache_clear()
    yield tried
    precision._trial.cache_clear()


def test_auto_trains_a_moment_on_a_gpu_once(gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_TRIAL", "import sys; assert sys.argv[1:] == ['cuda', 'bfloat16']")
    for _ in range(2):
        assert precision.choose("auto", "cuda") == "bf16"
        # As in another process.
        precision._trial.cache_clear()
    assert gpu == ["bfloat16"], "remembered"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another GPU")
    assert precision.choose("auto", "cuda") == "bf16" and len(gpu) == 2
    cache = find_cache()
    assert cache is not None
    found = [entry.about for entry in cache.entries() if entry.kind == "precision"]
    assert sorted(found) == [f"bf16 works on {name}, torch {torch.__version__}" for name in ("a GPU", "another GPU")]
    precision._trial.cache_clear()
    monkeypatch.setenv("STILLERY_CACHE", "off")
    assert precision.choose("auto", "cuda") == "bf16" and len(gpu) == 3


def test_auto_is_fp32_on_a_gpu_that_fails_the_trial(gpu: list[str], monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(precision, "_TRIAL", "raise RuntimeError('no kernel image')")
    assert precision.choose("auto", "cuda") == "fp32"
    said = " ".join(capsys.readouterr().err.split())
    assert "bf16 does not work on this GPU: RuntimeError: no kernel image; training in fp32" in said
    cache = find_cache()
    assert cache is not None and not [entry for entry in cache.entries() if entry.kind == "precision"]
    precision._trial.cache_clear()
    assert precision.choose("auto", "cuda") == "fp32" and len(gpu) == 2, "tried again by the next process"
