"""Precision is tried in a child process first."""

from __future__ import annotations

import os

import pytest

from stillery.faults import Fault
from stillery.train import precision


def test_auto_is_fp32_on_a_cpu() -> None:
    assert precision.choose("auto", "cpu") == "fp32"
    assert precision.choose("fp32", "cpu") == "fp32"


def test_a_precision_that_kills_the_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    precision._trial.cache_clear()
    with pytest.raises(Fault, match=r"SIGILL.*--precision fp32"):
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
    with pytest.raises(Fault, match="no such format"):
        precision.choose("fp16", "cpu")
    precision._trial.cache_clear()
