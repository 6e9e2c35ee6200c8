"""Every shipped plan is right as far as can be told without its models and data, and its page lists it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillery.errors import UserError
from stillery.study.at_hand import config_of
from stillery.study.cells import planned
from stillery.study.plan import read_plan

ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "studies").glob("*/*.toml"))
PAGE = (ROOT / "docs/paper-plans.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _offline(monkeypatch) -> None:
    # What the hub has is not asked: where a model is out of reach its shape is known.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_plan_is_right_and_its_shapes_are_known(path):
    plan = read_plan(path)
    cells, tables = planned(plan, to_run=False)
    # A column for each task, a cell for each seed, and no method beside the table's terms unless it says so.
    students = {(cell.task, cell.row, cell.seed) for cell in cells if cell.row is not None}
    rows = {row.name for table in tables for row in table.rows}
    assert students == {(task.name, row, seed) for task in plan.tasks for row in rows for seed in plan.seeds}
    # Nothing was left unchecked: the shape of every model is known.
    for cell in cells:
        named = [cell.asked.run.model] if cell.row is None else [cell.asked.run.student.init_from]
        assert all(config_of(model) is not None for model in named if model is not None)
        start = None if cell.row is None else cell.asked.run.student.init
        assert start is None or "/" not in start or config_of(start) is not None
    assert all(one.source and one.model and one.data for one in plan.published)
    # The page says the same of it, and the plan's first lines say what is missing offline.
    (line,) = re.findall(
        rf"^\| \[{path.stem}\]\(\.\./studies/{path.parent.name}/{path.name}\) \|.*$", PAGE, re.MULTILINE
    )
    label = re.search(r"(Table|Figure) \d+", plan.title)
    assert label is None or label[0] in line.replace("**", "")
    assert re.search(r"^# .*[Oo]ffline there (are|is) no ", plan.text, re.MULTILINE)


def test_the_page_lists_nothing_else():
    listed = re.findall(r"\(\.\./studies/([\w./-]+)\)", PAGE)
    assert sorted(listed) == sorted(f"{path.parent.name}/{path.name}" for path in PLANS)


@pytest.mark.parametrize(
    ("plan", "was", "now", "said"),
    [
        ("layer-selection/table-1-glue", "layers = 3\n", "layers = 13\n", "layers 13: the teacher has only 12 layers"),
        ("layer-selection/table-1-dart", "layers = 3\n", "layers = 3\nheads = 3\n", "width 1024 is not divisible by 3"),
        ("layer-selection/width-glue", "[384, 576]", "[384, 500]", "width 500 is not divisible by 7 heads"),
        (
            "layer-selection/table-1-wmt16",
            "samples = 100_000",
            "samples = 100_000\nmetric = 'f1'",
            "metric is for class",
        ),
        ("ild-rtc/table-1-6-layers", "hard_weight = 0.2", "hard_weight = 1.2", "hard_weight"),
        (
            "ild-rtc/table-1-6-layers",
            "tasks.sst2]\nlr",
            "tasks.sst]\nlr",
            "no task 'sst' in this plan; did you mean 'sst2'",
        ),
        ("ild-rtc/table-5", "init google/bert_uncased_L-2", "init bert_uncased_L-2", "no table 'init bert_uncased_L-2"),
        ("ild-rtc/table-7", 'init = "first"', 'init = "first"\ncopy_layers = [1, 13]', "layers 1 to 12"),
        ("rail-kd/table-5", "projection_start", "projections", "projections is not a setting"),
        ("cr-ild/table-3", '"stsb"', '"sts-b"', "sts-b: no such file"),
        ("cr-ild/table-3", 'attention = "mse"', 'attention = "mean"', "attention"),
        ("cr-ild/figure-2", 'init = "first"', 'init = "first"\nheads = 8', "head by head"),
        (
            "cr-ild/figure-12-layers",
            "relation_heads = 16",
            "relation_heads = 12",
            "12 relation heads do not divide 512",
        ),
        ("cr-ild/table-1-small", "least_steps = 1", "ild_max_length = 16\nleast_steps = 1", "neither is given"),
        ("cr-ild/table-6", "rte = 65.0", "rtee = 65.0", "no task 'rtee' in this plan"),
    ],
)
def test_what_is_wrong_in_a_plan_is_found_at_its_line(tmp_path, plan, was, now, said):
    text = (ROOT / "studies" / f"{plan}.toml").read_text(encoding="utf-8")
    assert was in text
    path = tmp_path / "plan.toml"
    path.write_text(text.replace(was, now, 1), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        planned(read_plan(path), to_run=False)
    (line,) = [line for line in raised.value.lines if said in line][:1]
    number = int(re.match(rf"{re.escape(str(path))}:(\d+): ", line)[1])
    # The line is that of the setting, or of the table of the method that cannot be.
    changed = text[: text.index(was)].count("\n") + 1
    assert number <= changed + now.count("\n") + 1 and number > 0
    assert len(raised.value.lines) < 20


def test_a_dry_run_says_what_is_missing(tmp_path, capsys):
    from stillery.cli.study import study

    study(ROOT / "studies/ild-rtc/table-7.toml", tmp_path / "out", dry_run=True, only="seed0")
    *cells, last = capsys.readouterr().out.splitlines()
    assert len(cells) == 91 and all(line.endswith("  4 epochs") or "teacher" in line for line in cells)
    assert last == (
        "91 cells were checked only; to run them, this is missing: model google-bert/bert-base-uncased, data of cola"
    )
    assert not (tmp_path / "out").exists()
    # A run does not begin without them.
    with pytest.raises(UserError, match="cola: no data found"):
        planned(read_plan(ROOT / "studies/ild-rtc/table-7.toml"))
