"""Tables in four formats: what stands in them, and that each format can be read back."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from making import predicted, scored

from stillery.study.render import as_csv, as_json, as_latex, as_markdown, write_tables
from stillery.study.results import Published, Results, Row
from stillery.study.statistics import Conclusions, conclude
from stillery.study.tables import overall_table, score_table, spread_table, tables, task_table

RANDOM = np.random.default_rng(9)


def study(**changed) -> Results:
    scores = {
        "cola": {
            "big": [60.0],
            "none": [50.0, 50.4, 50.2, 50.1],
            "kd": [55.0, 55.3, 55.1, 55.4],
            "p_kd|2": [55.2, 55.1, np.nan, None],
            "lost": [np.nan] * 4,
        },
        "rte": {"big": [70.0], "none": [60, 61, 62, 61], "kd": [61, 60, 62, 63], "p_kd|2": [61, 62, 62, 61]},
    }
    rows = [
        Row(name="big", teacher=True, seeds=(0,)),
        Row(name="none", start="first"),
        Row(name="kd", start="first"),
        Row(name="p_kd|2", start=changed.get("start", "first")),
        Row(name="lost", start="first"),
    ]
    published = Published(
        name="PKD",
        source="Sun et al. (2019), Table 2",
        model="BERT-base, 12 to 6",
        data="GLUE test",
        scores={"rte": 65.5},
    )
    return scored(scores, rows=rows, published=(published,))


@pytest.fixture(scope="module")
def found() -> Conclusions:
    return conclude(study(start="last"), strategies=["kd", "p_kd|2"])


def markdown_rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_scores_show_how_many_runs_there_are(found: Conclusions) -> None:
    head, _, *rows = markdown_rows(as_markdown(score_table(found)))
    assert head == ["method", "start", "cola (accuracy)", "rte (accuracy)"]
    assert rows == [
        ["big (teacher)", "-", "60.0", "70.0"],
        ["none", "first", "50.2 (0.2)", "**61.0 (0.8)**"],
        ["kd", "first", "**55.2 (0.2)**", "**61.5 (1.3)**"],
        # Two runs cannot be distinguished from anything, so they are bold too, and say that they are two.
        [r"p\_kd\|2", "last", "**55.2 (0.1), 2 of 4, 1 failed**", "**61.5 (0.6)**"],
        ["lost", "first", "failed", "missing"],
        [r"PKD (published: Sun et al. (2019), Table 2; BERT-base, 12 to 6; GLUE test)", "-", "-", "65.5"],
    ]


def test_starts_are_shown_only_where_they_differ() -> None:
    assert score_table(conclude(study())).columns == ("method", "cola (accuracy)", "rte (accuracy)")


def test_a_task_has_means_intervals_and_differences(found: Conclusions) -> None:
    head, _, *rows = markdown_rows(as_markdown(task_table(found, found.tasks[0])))
    assert head == [
        "method", "start", "mean", "sd", "95% interval", "seeds", "minus none [95%]", "p", "minus kd [95%]", "p",
    ]  # fmt: skip
    by_name = {row[0]: row for row in rows}
    assert by_name["big (teacher)"][2:] == ["60.0", "-", "-", "1", "-", "-", "-", "-"]
    assert by_name["kd"][6].startswith("+5.0 [+4.")
    assert by_name["none"][8].startswith("-5.0 [-5.")
    assert by_name["lost"][2:] == ["-", "-", "-", "0 of 4, 4 failed", "-", "-", "-", "-"]


def test_every_table_has_its_reading_and_notes(found: Conclusions) -> None:
    for table in tables(found):
        text = as_markdown(table)
        assert table.reading
        assert text.endswith(f"{table.reading}\n")
        assert all(note in text for note in table.notes)
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_latex_has_a_whole_table_with_everything_escaped(found: Conclusions) -> None:
    for table in tables(found):
        text = as_latex(table)
        body = text.split("\\toprule\n")[1].split("\\bottomrule")[0]
        lines = [line for line in body.splitlines() if line != r"\midrule"]
        assert len(lines) == 1 + len(table.rows)
        for line in lines:
            assert line.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", line)) == len(table.columns) - 1
        assert text.count("{") == text.count("}")
        assert not re.search(r"(?<!\\)[_%#]", re.sub(r"\\label\{.*\}", "", text))
        for name in ("table", "tabular"):
            assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    text = as_latex(task_table(found, found.tasks[0]))
    assert r"p\_kd|2" in text
    assert "$-$5.0 [$-$5." in text
    assert r"12 to 6" in as_latex(score_table(found))
    assert "$-$" not in as_latex(score_table(found))


def test_csv_has_the_numbers_in_full(found: Conclusions) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(score_table(found)))))
    one = next(row for row in rows if row["task"] == "cola" and row["row"] == "kd")
    values = [55.0, 55.3, 55.1, 55.4]
    assert float(one["mean"]) == np.mean(values)
    assert float(one["sd"]) == np.std(values, ddof=1)
    assert [float(one[f"scores_{seed}"]) for seed in range(4)] == values
    lost = next(row for row in rows if row["task"] == "cola" and row["row"] == "lost")
    assert (lost["mean"], lost["failed"], lost["failures_0"]) == ("", "4", "the loss is NaN")
    other = next(row for row in rows if row["kind"] == "published")
    assert (other["mean"], other["model"], other["data"]) == ("65.5", "BERT-base, 12 to 6", "GLUE test")


def test_json_has_everything(found: Conclusions) -> None:
    read = json.loads(as_json(found, margin=3))
    assert [one["name"] for one in read["tables"]] == ["scores", "task-cola", "task-rte", "overall", "spread"]
    assert read["baselines"] == ["none", "kd"]
    difference = read["critical_difference"]
    assert [name for name, _ in difference["ranks"]][-1] == "none"
    assert difference["groups"] == [["p_kd|2", "kd", "none"]] or difference["groups"] == [["kd", "p_kd|2", "none"]]
    assert difference["guard"]["needed"] == 7
    spread = read["tables"][-1]["rows"]
    assert spread[0]["strategies"] == ["kd", "p_kd|2"]
    assert "3 points at most" in read["tables"][-1]["reading"]


def test_all_tables_are_written_whole(found: Conclusions, tmp_path: Path) -> None:
    written = write_tables(tmp_path / "out", found)
    assert {path.name for path in written} == {
        "tables.md", "tables.tex", "tables.json", "scores.csv", "task-cola.csv", "task-rte.csv", "overall.csv",
        "spread.csv",
    }  # fmt: skip
    assert sorted(written) == sorted((tmp_path / "out").iterdir())


def test_the_groups_of_methods_stand_under_the_overall_table() -> None:
    scores = {
        f"t{task}": {
            name: level + task + RANDOM.normal(0, 0.3, 3) for name, level in (("kd", 70), ("a", 75), ("b", 75))
        }
        for task in range(8)
    }
    found = conclude(scored(scores))
    assert found.overall is not None
    table = overall_table(found, found.overall)
    assert re.search(r"Groups that cannot be told apart \(.*\): (a and b|b and a); kd\.", " ".join(table.notes))
    assert table.rows[-1][0].text == "kd"
    assert re.fullmatch(r"7\d\.\d \(7\d\.\d to 7\d\.\d\)", table.rows[-1][1].text)


def test_a_spread_has_a_row_for_each_task(found: Conclusions) -> None:
    table = spread_table(found)
    assert [row[0].text for row in table.rows] == ["cola", "rte"]
    assert re.fullmatch(r"\d\.\d \(up to \d\.\d\)", table.rows[1][5].text)


def test_five_methods_and_seeds_on_two_thousand_examples_take_seconds() -> None:
    right = {f"m{place}": RANDOM.random((5, 2000)) < 0.8 + place / 100 for place in range(5)}
    results = predicted(right, "matthews")
    started = time.perf_counter()
    found = conclude(results, baselines=["m0"], strategies=list(right))
    assert found.tasks[0].examples == 2000
    # About one second on a slow core.
    assert time.perf_counter() - started < 20


def test_importing_the_statistics_loads_no_models() -> None:
    code = "import sys, stillery.study.render; print({'torch', 'transformers', 'sklearn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
