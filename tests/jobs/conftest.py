"""Rows in memory that tests of the Python names are given."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def rows(reviews: Path) -> list[dict[str, str]]:
    """The reviews as a list of dicts."""
    with reviews.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
