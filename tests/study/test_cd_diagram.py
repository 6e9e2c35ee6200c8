"""The critical-difference diagram shows ranks, names and bars as the statistics have them, where there are enough."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from making import scored

from stillery.errors import UserError
from stillery.study.cd_diagram import cd_specification, write_cd_diagram
from stillery.study.statistics import conclude

NAMES = (
    "none",
    "kd",
    "pkd",
    "alp-kd",
    "layer-forward",
    "layer-reverse",
    "layer-all-to-one",
    "rail-kd",
    "cr-ild",
    "codir",
)


def study(methods: int, tasks: int, step: float = 0.3):
    random = np.random.default_rng(4)
    return conclude(
        scored(
            {
                f"task{task}": {
                    name: list(60 + step * at + random.normal(0, 1, 3)) for at, name in enumerate(NAMES[:methods])
                }
                for task in range(tasks)
            }
        )
    )


def values(spec, mark: str, layer: int = 0):
    return [one for one in spec["layer"] if one["mark"]["type"] == mark][layer]["data"]["values"]


def test_ranks_names_and_bars_are_those_of_the_statistics():
    found = study(10, 30)
    one = found.overall.difference
    spec = cd_specification(found)
    left, right = values(spec, "text"), values(spec, "text", 1)
    assert [name["method"] for name in left] + [name["method"] for name in right] == [name for name, _ in one.ranks]
    assert f"{one.ranks[0][0]}  {one.ranks[0][1]:.2f}" == left[0]["label"]
    # Names of one side have rows of their own, and the line of each leads from its rank to its name.
    for side in (left, right):
        assert len({name["y"] for name in side}) == len(side) == 5
    corners = {(point["method"], point["corner"]): (point["rank"], point["y"]) for point in values(spec, "line")}
    for name in (*left, *right):
        assert corners[name["method"], 0] == (dict(one.ranks)[name["method"]], 0)
        assert corners[name["method"], 2] == (name["rank"], name["y"])
    # Lines do not cross: the further out a rank is, the shorter its line.
    assert [name["y"] for name in left] == sorted(name["y"] for name in left)
    assert [name["y"] for name in right] == sorted((name["y"] for name in right), reverse=True)
    joined = [group for group in one.groups if len(group) > 1]
    assert len(joined) > 1 and len(values(spec, "rule")) == len(joined)
    assert [point["method"] for point in values(spec, "point")] == [name for group in joined for name in group]
    assert max(bar["y"] for bar in values(spec, "rule")) < min(name["y"] for name in (*left, *right)) - 6


def test_it_is_written_as_specification_and_pictures(tmp_path):
    found = study(5, 4)
    assert [path.name for path in write_cd_diagram(tmp_path, found)] == [
        f"critical-difference.{kind}" for kind in ("json", "svg", "png")
    ]
    drawn = (tmp_path / "critical-difference.svg").read_text(encoding="utf-8")
    assert all(name in drawn for name in NAMES[:5]) and "Average ranks over 4 tasks" in drawn
    # So few tasks cannot tell methods apart, and the picture says so.
    said = json.loads((tmp_path / "critical-difference.json").read_text(encoding="utf-8"))["title"]["subtitle"]
    assert "4 tasks cannot tell any methods apart" in " ".join(said)
    assert not any(part in drawn for part in ("NaN", "undefined"))


def test_there_is_none_of_two_methods_or_one_task(tmp_path):
    assert cd_specification(study(2, 8)) is None and cd_specification(study(5, 1)) is None
    assert write_cd_diagram(tmp_path, study(5, 1)) == [] and not list(tmp_path.iterdir())


def test_without_the_package_the_specification_is_there_and_one_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"stillery\[pictures\]"):
        write_cd_diagram(tmp_path, study(5, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["critical-difference.json"]
