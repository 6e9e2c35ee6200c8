"""A few kills of the crash matrix; all of them are in `make faults`."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_matrix import RUNS, Inputs, crash, reference
from text_models import make_writer, write_pairs


@pytest.fixture(scope="module")
def inputs(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    place = tmp_path_factory.mktemp("writers")
    return Inputs(
        classifier=tiny_teacher,
        reviews=reviews,
        writer=make_writer(place / "writer", "t5", layers=2),
        pairs=write_pairs(place / "pairs.csv"),
    )


@pytest.mark.parametrize("name", ["finetune", "tinybert, cache", "sequence level"])
def test_killed_runs_end_with_the_same_bits(inputs: Inputs, tmp_path: Path, name: str) -> None:
    whole = reference(name, inputs, tmp_path / "whole")
    for seed in range(2):
        found = crash(whole, tmp_path / str(seed), seed, kills=1)
        assert not found.wrong, found


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_killed_again_and_again(inputs: Inputs, tmp_path: Path, name: str) -> None:
    whole = reference(name, inputs, tmp_path / "whole")
    for seed in range(4):
        found = crash(whole, tmp_path / str(seed), seed)
        assert not found.wrong, found
