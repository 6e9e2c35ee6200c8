"""Runs outside a study that differ in the seed alone are one row of a table."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev

import pytest
from report_runs import make_run

from stillery.jobs.comparison.models import read_run
from stillery.reports.run_part import run_parts


def test_runs_of_several_seeds_are_one_row(tmp_path: Path):
    for method, layers, seeds in (("kd", 3, (0, 1, 2)), ("kd", 2, (0, 1)), ("pkd", 3, (0,))):
        for seed in seeds:
            make_run(tmp_path / f"{method}-{layers}-{seed}", right=0.7, seed=seed, method=method, layers=layers)
    # The seed of one run is another's, and its data is not the only thing it differs in.
    make_run(tmp_path / "pkd-again", right=0.6, seed=0, method="pkd")
    runs = [read_run(str(folder)) for folder in sorted(tmp_path.iterdir())]
    ((part, _),) = run_parts(runs)
    table = part.tables[1]
    assert table.title == "Over seeds"
    shown = {row[0].text: row for row in table.rows}
    assert set(shown) == {"kd, 3 layers", "kd, 2 layers"}
    scores = [run.scores["metrics"]["accuracy"] for run in runs if run.how == "kd, 3 layers"]
    row = shown["kd, 3 layers"]
    assert [cell.key for cell in row[1:6]] == pytest.approx([fmean(scores), stdev(scores), min(scores), max(scores), 3])
    assert row[6].text == "kd-3-0, kd-3-1, kd-3-2"
    # The table of all runs stays as it is.
    assert len(part.tables[0].rows) >= len(runs)


def test_without_a_second_seed_there_is_no_such_table(tmp_path: Path):
    for method in ("kd", "pkd"):
        make_run(tmp_path / method, right=0.7, seed=0, method=method)
    ((part, _),) = run_parts([read_run(str(folder)) for folder in sorted(tmp_path.iterdir())])
    assert [table.title for table in part.tables] == ["Results"]
