"""Tiny plans on real sentences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]

HEAD = """
title = "tiny"
tasks = ["reviews.csv"]
max_length = 32
batch_size = 8
max_steps = 2
"""
REST = """
[teacher]
model = "model"
[student]
layers = 2
"""
METHODS = """
[methods.none]
[methods.kd]
"""


@pytest.fixture
def write_plan(tmp_path: Path, tiny_teacher: Path, reviews: Path) -> Write:
    """Write a plan beside the data and the model it names."""
    for name, target in (("model", tiny_teacher), ("reviews.csv", reviews)):
        (tmp_path / name).symlink_to(target)

    def write(top: str = "", methods: str = METHODS, *, student: str = "", teacher: str = "", head: str = HEAD) -> Path:
        rest = REST.replace("[student]", f"{teacher}\n[student]")
        path = tmp_path / "plan.toml"
        path.write_text(f"{head}{top}{rest}{student}\n{methods}", encoding="utf-8")
        return path

    return write
