"""Texts of the hidden-state stage by task: gains, and how scores go with size, length and the probe after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillery.jobs.analyses.after_layers import LastStage, Texts
from stillery.jobs.analyses.finished_runs import FinishedRun
from stillery.jobs.analyses.supplementary import Measured, finding

SCORES = {  # texts: task: score, probe
    None: {"rte": (60.0, 55.0), "sst2": (90.0, 30.0)},
    "mnli": {"rte": (66.0, 59.0), "sst2": (91.0, 31.0)},
    "cola": {"rte": (57.0, 51.0), "sst2": (88.0, 28.0)},
}


def made(probed: bool = True) -> tuple[list[FinishedRun], dict[str, Measured]]:
    runs, measured = [], {}
    for source, by_task in SCORES.items():
        for task, (score, probe) in by_task.items():
            folder = Path(f"{source}-{task}")
            values = {"seed": 0, **({"ild_task": source} if source else {})}
            runs.append(FinishedRun(folder=folder, values=values, task=task, metric="accuracy", score=score))
            stage = LastStage(begins=5, losses=[(1, 0.7), (2, 0.5)])
            measured[str(folder)] = Measured(stage=stage, probe=probe if probed else None)
    return runs, measured


def test_scores_are_compared_with_probes_within_a_task():
    """Over all pairs the probe would go against the score: the task that scores higher is probed lower."""
    runs, measured = made()
    found = finding(runs, {"mnli": Texts(size=400, length=30), "cola": None}, measured)
    assert found.data["gain"] == [[None, None], [-3, -2], [6, 1]]
    assert found.data["probe"] == [[55, 30], [51, 28], [59, 31]]
    assert found.data["spearman"] == {"probe": {"spearman": pytest.approx(1), "pairs": 6}}
    assert "a rank correlation of +1.00 with what a linear probe finds" in found.sentence
    assert found.sentence.endswith("over 6 pairs, too few to conclude from.")
    assert "higher than the task's own in 2 of 4 pairs, at most +6.00 (mnli for rte), with 1 run each" in found.sentence
    matrix = {(cell["y"], cell["x"]): cell for cell in found.spec["vconcat"][0]["data"]["values"]}
    assert (matrix["mnli", "rte"]["score"], matrix["mnli", "rte"]["value"]) == (66, 6)
    assert (matrix["the task's own", "sst2"]["score"], matrix["the task's own", "sst2"]["value"]) == (90, 0)
    titles = [chart.get("title") for chart in found.spec["vconcat"]]
    assert titles == ["Score", "Gain over the task's own texts", "Loss after the hidden-state stage"]
    axes = [chart["encoding"]["x"]["title"] for chart in found.spec["vconcat"][1]["concat"]]
    assert axes == ["number of texts", "tokens per text", "probe after that stage (%)"]


def test_without_snapshots_there_is_no_probe():
    runs, measured = made(probed=False)
    found = finding(runs, {"mnli": None, "cola": None}, measured)
    assert found.data["spearman"] == {} and "probe" not in found.sentence
    assert {row["probe"] for row in found.table} == {"-"}
