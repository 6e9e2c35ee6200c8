"""What a study tried before it chose, as a table and charts of its report."""

from __future__ import annotations

from stillery.reports.charts import differences, seeds_and_means
from stillery.reports.content import Apart, Point
from stillery.reports.search import search_figure, search_table
from stillery.study.tried import Tried

SCORES = {("none", 1): 61.0, ("none", 2): 64.0, ("none", 3): 62.5, ("kd", 1): 60.0, ("kd", 2): None}


def trials() -> list[Tried]:
    return [
        Tried(
            task="reviews", row=row, number=number, score=score, seeds=0 if score is None else 2,
            settings={"lr": 0.001 * number} | ({"options.temperature": 4.0} if row == "kd" else {}),
            chosen=(row, number) in {("none", 2), ("kd", 1)},
        )
        for (row, number), score in SCORES.items()
    ]  # fmt: skip


def test_every_trial_is_in_the_table_and_the_chosen_ones_are_bold():
    (table,) = search_table(trials())
    assert [one.name for one in table.columns] == ["method", "trial", "lr", "temperature", "held out", "seeds"]
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown[1] == ["none", "2", "0.002", "-", "64.0", "2"]
    assert shown[4] == ["kd", "2", "0.002", "4", "-", "0"]
    assert [row[1].text for row in table.rows if any(cell.bold for cell in row)] == ["2", "1"]
    assert table.bold == "those that were chosen" and table.tasks == []


def test_the_chart_has_the_best_so_far_and_no_trial_without_a_score():
    (figure,) = search_figure(trials())
    (chart,) = figure.charts
    rows = chart.spec["data"]["values"]
    none = [(row["trial"], row["score"], row["best"], row["what"]) for row in rows if row["method"] == "none"]
    assert none == [(1, 61.0, 61.0, "tried"), (2, 64.0, 64.0, "chosen"), (3, 62.5, 64.0, "tried")]
    assert [row["settings"] for row in rows if row["method"] == "kd"] == ["lr 0.001, temperature 4"]
    assert search_figure([]) == [] and search_table([]) == []


def test_bars_end_where_scores_do():
    """The interval of two seeds reaches beyond any score, and would leave no room for the points."""
    point = Point(name="kd", task="reviews", score=50.0, low=-188.0, high=288.0, seeds={"0": 31.0, "1": 69.0})
    (row,) = seeds_and_means([point], "accuracy")["data"]["values"]
    assert (row["from"], row["to"], row["low"], row["high"]) == (0, 100, -188, 288)
    apart = Apart(name="kd", other="none", value=-18.8, low=-215.0, high=20.0, clear=False)
    (row,) = differences([apart], "accuracy")["data"]["values"]
    assert (row["from"], row["to"]) == (-100, 20)
