"""A plan is checked as a whole before anything runs; methods are compared on equal terms unless it says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillery.errors import UserError
from stillery.study.cells import planned
from stillery.study.plan import read_plan


def errors(path: Path) -> list[str]:
    """The errors of a plan, each from its line on."""
    with pytest.raises(UserError) as raised:
        planned(read_plan(path))
    return [line.removeprefix(f"{path}:") for line in raised.value.lines]


def names(path: Path) -> set[str]:
    return {cell.name for cell in planned(read_plan(path))[0]}


def test_a_small_plan(write_plan):
    cells, (table,) = planned(read_plan(write_plan("seeds = [0, 1]\n")))
    assert [(cell.job, cell.task, cell.row, cell.seed) for cell in cells] == [
        ("finetune", "reviews", None, 0),
        *(("distill", "reviews", row, seed) for row in ("none", "kd") for seed in (0, 1)),
    ]
    teacher, *students = cells
    assert {cell.teacher for cell in students} == {teacher.name}
    # Chosen on a tenth of train, by default; start and head are the same for all, and said.
    assert {cell.asked.run.condition.holdout for cell in cells} == {0.1}
    assert {(cell.asked.run.student.init, cell.asked.run.student.head) for cell in students} == {("first", "fresh")}
    assert [(row.start, row.head) for row in table.rows] == [("first", "fresh")] * 2


def test_all_errors_are_reported_together_with_their_lines(write_plan):
    path = write_plan(
        'seeds = [0, 0]\nlearning_rate = 1e-5\ntasks_dir = "x"\n',
        "[methods.none]\n[methods.kdd]\n[methods.kd]\ntemperature = -1\nepochs = 9\n[methods.pkd]\nbetta = 3\n",
        student='lr = "high"\nlayer = 2',
        teacher="batch_size = [8, 16]",
    )
    found = errors(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert {line.partition(": ")[0] for line in found} == {
        str(lines.index(text) + 1)
        for text in ("seeds = [0, 0]", "learning_rate = 1e-5", 'tasks_dir = "x"', "batch_size = [8, 16]",
                     "layer = 2", 'lr = "high"', "temperature = -1", "[methods.kdd]", "epochs = 9", "betta = 3")
    }  # fmt: skip
    assert [int(line.partition(": ")[0]) for line in found] == sorted(int(line.partition(": ")[0]) for line in found)
    # Values are checked in the same pass as names.
    assert "temperature is -1.0: it must be more than 0" in str(found)
    assert "learning_rate is not a setting: it is called lr here" in str(found)
    assert "unknown method 'kdd': did you mean 'kd'?" in str(found)
    assert "vary = ['epochs']" in str(found)


def test_values_of_settings_are_checked_where_the_keys_are_right(write_plan):
    path = write_plan(
        student='lr = [1e-3, "high"]', methods="[methods.kd]\ntemperature = -1\n[methods.pkd]\nlayer_weight = 'x'\n"
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    found = errors(path)
    assert [line for line in found if line.startswith(f"{lines.index('temperature = -1') + 1}: temperature is -1")]
    assert [
        line
        for line in found
        if line.startswith(f"{lines.index(next(x for x in lines if 'high' in x)) + 1}: lr is 'high'")
    ]
    assert [line for line in found if "method pkd" in line and "layer_weight" in line]


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ("seeds = 3\n", "seeds is 3: give a list of different whole numbers"),
        ("select = 'best'\n", "select is 'best': choose from mean, each"),
        ("search = 'random'\n", "search is 'random': choose from grid, tpe"),
        ("vary = ['depth']\n", "vary: depth is not a setting"),
        ("margin = -1\n", "margin is -1"),
        ("samples = [10\n", "not a TOML file"),
    ],
)
def test_bad_values(write_plan, top, said):
    path = write_plan(top)
    with pytest.raises(UserError) as raised:
        planned(read_plan(path))
    assert said in str(raised.value)


def test_files_and_tasks_that_are_not_there(write_plan, tmp_path):
    mine, two = "{name = 'mine', task = 'rtee'}", "{name = 'two', task = 'rte', data = 'b'}"
    path = write_plan(head=f"tasks = ['review.csv', 'sst-2', {mine}, {two}]\n")
    assert [line.partition(": ")[2] for line in errors(path)] == [
        "review.csv: no such file or folder",
        "sst-2: no such file or folder; if it is a task: did you mean 'sst2'?",
        "no task 'rtee'; did you mean 'rte'?",
        "task two has both task and data: give one",
    ]
    with pytest.raises(UserError, match="no such file"):
        read_plan(tmp_path / "nowhere.toml")


def test_a_method_with_terms_of_its_own_is_refused_unless_that_is_varied(write_plan):
    own = "[methods.none]\n[methods.kd]\ninit = 'even'\n"
    (line,) = errors(write_plan(methods=own))
    assert "kd alone sets init" in line and "vary = ['init']" in line
    _, (table,) = planned(read_plan(write_plan("vary = ['init']\n", own)))
    assert {row.name: row.start for row in table.rows} == {"none": None, "kd": "even"}
    # Several values of what is varied are rows of one table; of what is not, a table each.
    _, (table,) = planned(read_plan(write_plan("vary = ['init']\n", student="init = ['first', 'last']")))
    assert [(row.name, row.start) for row in table.rows] == [
        (f"{method} (init {start})", start) for method in ("none", "kd") for start in ("first", "last")
    ]
    _, tables = planned(read_plan(write_plan(student="init = ['first', 'last']")))
    assert [(table.name, [row.start for row in table.rows]) for table in tables] == [
        ("init first", ["first", "first"]),
        ("init last", ["last", "last"]),
    ]


def test_starts_that_papers_state_are_equal_too(write_plan):
    """distilbert's paper starts from evenly spaced layers, simkd reuses the head; all rows get the same."""
    students = planned(read_plan(write_plan(methods="[methods.distilbert]\n[methods.ild-rtc]\n")))[0][1:]
    assert {(cell.asked.run.student.init, cell.asked.run.student.head) for cell in students} == {("first", "fresh")}
    own = planned(read_plan(write_plan("vary = ['init', 'head']\n", "[methods.distilbert]\n[methods.ild-rtc]\n")))[0][
        1:
    ]
    assert {(cell.asked.run.student.init, cell.asked.run.student.head) for cell in own} == {(None, None)}


def test_a_changed_option_is_a_new_cell_and_others_stay(write_plan, tmp_path):
    before = names(write_plan())
    assert names(write_plan("seeds = [0]\ntitle2 = 0\n".replace("title2 = 0\n", ""))) == before
    hotter = names(write_plan(methods="[methods.none]\n[methods.kd]\ntemperature = 3.0\n"))
    assert len(before & hotter) == 2 and len(hotter - before) == 1
    # Another teacher is another student of it.
    assert not names(write_plan(teacher="lr = 1e-3")) & before
    # What counts is what a file holds, not where it is.
    rows = (tmp_path / "reviews.csv").read_bytes()
    (tmp_path / "reviews.csv").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "reviews.csv").write_bytes(rows)
    moved = "tasks = ['elsewhere/reviews.csv']\nmax_length = 32\nbatch_size = 8\nmax_steps = 2\n"
    assert names(write_plan(head=moved)) == before
    (tmp_path / "elsewhere" / "reviews.csv").write_bytes(rows + b"one more,positive\r\n")
    assert not names(write_plan(head=moved)) & before


def test_grids_are_tried_and_need_something_to_choose_by(write_plan):
    path = write_plan(student="lr = [1e-3, 1e-2]", methods="[methods.none]\n[methods.kd]\ntemperature = [1.0, 4.0]\n")
    _, (table,) = planned(read_plan(path))
    trials = {key[1]: [dict(cell.trial) for cell in cells] for key, cells in table.trials.items()}
    assert trials["none"] == [{"lr": 1e-3}, {"lr": 1e-2}]
    assert len(trials["kd"]) == 4 and {"lr": 1e-3, "temperature": 4.0} in [
        {name.removeprefix("options."): value for name, value in one.items()} for one in trials["kd"]
    ]
    (line,) = errors(write_plan("holdout = 0\n", student="lr = [1e-3, 1e-2]"))
    assert "without a holdout nothing may choose one" in line


def test_layers_to_copy_are_one_value(write_plan):
    _, tables = planned(read_plan(write_plan(student="copy_layers = [1, 4]")))
    assert [row.start for row in tables[0].rows] == ["layers 1,4"] * 2
    _, tables = planned(read_plan(write_plan(student="copy_layers = [[1, 4], [2, 3]]")))
    assert [table.name for table in tables] == ["copy layers 1,4", "copy layers 2,3"]


def test_a_subset_of_all_is_the_teachers_too_and_one_of_students_is_not(write_plan):
    cells, tables = planned(read_plan(write_plan("samples = [20, 40]\n")))
    assert [table.name for table in tables] == ["samples 20", "samples 40"]
    taught = {cell.teacher: cell.asked.run.condition.samples for cell in cells if cell.teacher}
    assert {cell.name: cell.asked.run.condition.samples for cell in cells if not cell.teacher} == taught
    cells, _ = planned(read_plan(write_plan(student="samples = [20, 40]\nlabel_noise = 0.2")))
    (teacher,) = [cell for cell in cells if not cell.teacher]
    assert teacher.asked.run.condition.samples is None and teacher.asked.run.condition.label_noise is None


def test_a_student_that_its_teacher_rules_out_is_found_before_anything_runs(write_plan):
    """The teacher has 4 layers of 32 and 4 heads: depth, layers to copy, width, and a method of one layer at least."""
    path = write_plan(
        "vary = ['layers']\n", "[methods.none]\n[methods.kd]\nlayers = [2, 9]\n[methods.pkd]\nlayers = 1\n"
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    deep, pkd = errors(path)
    assert (
        deep
        == f"{lines.index('layers = [2, 9]') + 1}: layers 9: the teacher has only 4 layers, a student cannot be deeper"
    )
    assert pkd.startswith(f"{lines.index('layers = 1') + 1}: match patience: no layer pairs between a student of 1")
    path = write_plan(student="copy_layers = [1, 7]\nwidth = 30\nheads = 4\nbeams = 2")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert errors(path) == [
        f"{lines.index('copy_layers = [1, 7]') + 1}: copy_layers 1,7: {path.parent / 'model'} has layers 1 to 4",
        f"{lines.index('width = 30') + 1}: width 30 is not divisible by 4 heads: choose heads so that it divides width",
        f"{lines.index('beams = 2') + 1}: beams is for models that generate text, such as T5 or Llama; this one is a "
        "classifier",
    ]


def test_settings_and_options_of_single_tasks(write_plan, tmp_path, reviews):
    (tmp_path / "others.csv").symlink_to(reviews)
    head = "tasks = ['reviews.csv', 'others.csv']\nmax_length = 32\nmax_steps = 2\n"
    methods = "[methods.none]\n[methods.kd]\n[methods.kd.tasks.others]\ntemperature = [2.0, 4.0]\nhard_weight = 0.1\n"
    path = write_plan(
        head=head, methods=methods, teacher="[teacher.tasks.others]\nlr = 1e-3",
        student="[student.tasks.reviews]\nlr = 1e-4\nmax_steps = 3",
    )  # fmt: skip
    cells, (table,) = planned(read_plan(path))
    rates = {(cell.task, cell.row): cell.asked.run.training.lr for cell in cells}
    assert rates[("reviews", None)] == rates[("others", "kd")] == 5e-5
    assert (rates[("others", None)], rates[("reviews", "none")], rates[("reviews", "kd")]) == (1e-3, 1e-4, 1e-4)
    options = {task: [cell.asked.run.method for cell in table.trials[task, "kd", 0]] for task in table.tasks}
    assert [(one.temperature, one.hard_weight) for one in options["others"]] == [(2.0, 0.1), (4.0, 0.1)]
    assert [(one.temperature, one.hard_weight) for one in options["reviews"]] == [(None, None)]
    path.write_text(
        path.read_text().replace("kd.tasks.others", "kd.tasks.other").replace("lr = 1e-4", "layers = [1, 2]")
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    assert errors(path) == [
        f"{lines.index('layers = [1, 2]') + 1}: layers is a list, which makes tables of all tasks: put it under "
        "[student]",
        f"{lines.index('[methods.kd.tasks.other]') + 1}: no task 'other' in this plan; did you mean 'others'?",
    ]


def test_published_rows_are_of_this_plan(write_plan):
    row = "[[published]]\nname = '{}'\nsource = 'A paper'\nmodel = 'BERT'\ndata = 'dev'\nscores = {}\n"
    good = row.format("kd (paper)", "{reviews = 91.5}")
    plan = read_plan(write_plan(methods=f"[methods.kd]\n{good}"))
    planned(plan)
    assert [(one.name, one.scores) for one in plan.published] == [("kd (paper)", {"reviews": 91.5})]
    bad = [
        row.format("kd", "{reviews = 91.5}"),
        row.format("a", "{review = 1.0}"),
        row.format("b", "{reviews = 'x'}"),
        row.format("c", "{reviews = 1}\ntable = 'layers 3'"),
        row.format("d", "{reviews = 1}\nyear = 2020"),
    ]
    found = errors(write_plan(methods="[methods.kd]\n" + "".join(bad)))
    assert [line.split(": ")[1].split(";")[0] for line in found] == [
        "kd is the name of another row",
        "no task 'review' in this plan",
        "scores is {'reviews'",
        "no table 'layers 3' here",
        "a published row has name, source, model, data and scores, may have table, and no more",
    ]
