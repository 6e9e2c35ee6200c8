"""Numbers and labels of pictures are readable where a phone shows them 360 pixels wide."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from stillery.analyse.angles import BINS, AngleTable
from stillery.jobs.analyses import angles, layer_divergence
from stillery.pictures.draw import write_pictures

PHONE, READABLE = 360, 7.5


def smallest(spec: dict, folder: Path) -> tuple[float, str]:
    """The smallest letters of a picture, in pixels on a phone, and the picture."""
    svg = write_pictures(spec, folder / "picture")[0].read_text(encoding="utf-8")
    width = float(re.search(r'width="([\d.]+)"', svg)[1])  # type: ignore[index]
    letters = min(float(one) for one in re.findall(r'font-size="([\d.]+)px"', svg))
    return letters * min(PHONE / width, 1), svg


@pytest.mark.parametrize(("students", "teachers"), [(3, 6), (2, 8), (6, 12)])
def test_angles(students: int, teachers: int, tmp_path: Path):
    rng = np.random.default_rng(0)
    shape = (students, teachers, teachers)
    tables = [
        AngleTable(
            students=tuple(range(1, students + 1)), teachers=tuple(range(1, teachers + 1)), tokens=100,
            mean=rng.uniform(-1, 1, shape), acute=rng.uniform(0, 1, shape),
            histogram=rng.integers(0, 9, (students, BINS)),
        )
        for _ in range(3)
    ]  # fmt: skip
    found = angles.finding(tables[0], "853 dev examples", {0: tables[1], 20: tables[2]})
    letters, svg = smallest(found.block()["spec"], tmp_path)
    assert letters >= READABLE
    # The angles at snapshots are a chart of their own.
    assert "While training" in svg and found.data["over_steps"]["steps"] == [0, 20]


@pytest.mark.parametrize("layers", [7, 13])
def test_layer_divergence(layers: int, tmp_path: Path):
    maps = {name: np.random.default_rng(0).uniform(0, 3, (layers, layers)) for name in ("teacher", "pretrained")}
    letters, _ = smallest(layer_divergence.finding(maps, ["853 dev examples"]).block()["spec"], tmp_path)
    assert letters >= READABLE
