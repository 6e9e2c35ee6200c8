"""Settings found by trials: as many for every method, the same whoever runs them and however often they are stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stillery.errors import UserError
from stillery.study.cells import PlannedCell, planned
from stillery.study.claims import Claims
from stillery.study.collect import collect
from stillery.study.folder import State, StudyFolder
from stillery.study.plan import read_plan
from stillery.study.run import only
from stillery.study.search import RANDOM, Range, Search, settle
from stillery.study.statistics import conclude
from stillery.study.tables import tables
from stillery.study.workers import work

TPE = "search = 'tpe'\ntrials = 7\nseeds = [0, 1]\n"
RATES = "lr = {low = 1e-4, high = 1e-1, log = true}\nmax_steps = 3"
METHODS = "[methods.none]\n[methods.kd]\ntemperature = {low = 1, high = 8}\n"


def errors(path: Path) -> list[str]:
    with pytest.raises(UserError) as raised:
        planned(read_plan(path))
    return [line.removeprefix(f"{path}:") for line in raised.value.lines]


def begin(plan: Path, out: Path) -> tuple[StudyFolder, list[PlannedCell]]:
    read = read_plan(plan)
    cells, _ = planned(read)
    folder = StudyFolder(out)
    folder.begin(read, cells)
    return folder, cells


def run(plan: Path, out: Path) -> StudyFolder:
    folder, cells = begin(plan, out)
    work(folder, cells, Claims(folder.claims), poll=0.01)
    return folder


def proposals(folder: StudyFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.trials.iterdir()}


@pytest.mark.slow
def test_a_stopped_search_goes_on_with_the_trials_of_one_that_was_not(write_plan, tmp_path):
    """Also when it was stopped with trials in any order, and when their proposals are lost."""
    plan = write_plan("search = 'tpe'\ntrials = 7\n", METHODS, student=RATES)
    straight = run(plan, tmp_path / "straight")
    cells, (table,) = planned(read_plan(plan))
    assert len(cells) == 1 + 2 * 7 and all(straight.state(cell) is State.FINISHED for cell in cells)
    # As many trials for each, none twice.
    tried = {(cell.row, cell.number): dict(straight.tried(cell)) for cell in cells if cell.row}
    for row in ("none", "kd"):
        assert len({json.dumps(tried[row, number]) for number in range(7)}) == 7
        assert all(1e-4 <= tried[row, number]["lr"] <= 1e-1 for number in range(7))
    assert all(1 <= tried["kd", number]["temperature"] <= 8 for number in range(7))
    # The random ones are the same learning rates for all methods; the others follow the scores of each.
    rates = {row: [tried[row, number]["lr"] for number in range(7)] for row in ("none", "kd")}
    assert rates["none"][:RANDOM] == rates["kd"][:RANDOM] and rates["none"][RANDOM:] != rates["kd"][RANDOM:]
    # What runs did is what was proposed.
    for cell in cells[1:]:
        text = (straight.run(cell) / "run.toml").read_text(encoding="utf-8")
        assert f"lr = {straight.tried(cell)['lr']}\n" in text
    # Stopped after some cells, twice, the second time without what was proposed.
    folder, cells = begin(plan, tmp_path / "stopped")
    from stillery.study.run_cell import run_cell

    for cell in [cells[0], *cells[4:1:-1], *(one for one in cells if one.row == "kd" and one.number < RANDOM)]:
        if folder.ready(cell):
            run_cell(folder, cell)
    late = next(one for one in cells if one.row == "kd" and one.number == RANDOM)
    run_cell(folder, late)
    for path in folder.trials.iterdir():
        path.unlink()
    done = {path: path.stat().st_mtime_ns for path in folder.cells.glob("*/metrics.json")}
    run(plan, tmp_path / "stopped")
    assert proposals(folder) == proposals(straight)
    assert all(path.stat().st_mtime_ns == changed for path, changed in done.items())
    assert {cell.name: folder.metrics(cell.name)["metrics"] for cell in cells} == {
        cell.name: straight.metrics(cell.name)["metrics"] for cell in cells
    }
    # The table says how many each had; what it chose is best on what was held out.
    found = collect(straight, read_plan(plan), table)
    assert any("by TPE, the first 5 of them at random, one chosen by the mean" in note for note in found.notes)
    assert any(note.endswith("on what was held out: none 7, kd 7.") for note in found.notes)
    assert "chose one: 7 for each row." in str(tables(conclude(found.results))[0].notes)
    held = [held_out(straight, cell) for cell in table.trials["reviews", "kd", 0]]
    assert found.chosen["reviews", "kd", 0] == tried["kd", held.index(max(held))]
    assert not [note for note in found.notes if note.startswith("Warning")]
    # The report shows all that was tried, with the scores that it was chosen by.
    own = [one for one in found.tried if one.row == "kd"]
    assert [one.settings for one in own] == [tried["kd", number] for number in range(7)]
    assert [one.score for one in own] == held and [one.chosen for one in own].index(True) == held.index(max(held))


def held_out(folder: StudyFolder, cell: PlannedCell) -> float:
    training = folder.metrics(cell.name)["training"]
    assert training["selected_on"] == "holdout"
    best = training["dev_best" if training["kept_step"] != training["steps"] else "dev_last"]
    return float(best["accuracy"])


def test_a_trial_of_several_seeds_has_one_proposal_by_their_mean(write_plan, tmp_path):
    plan = write_plan(TPE, "[methods.none]\n", student=RATES)
    folder, cells = begin(plan, tmp_path / "out")
    for cell in cells[1:]:
        if cell.number < RANDOM:
            kept = {"accuracy": 50 + cell.number + 10 * cell.seed}
            training = {"dev_best": kept, "dev_last": {}, "kept_step": 1, "steps": 2}
            folder.run(cell).mkdir(parents=True)
            text = json.dumps({"metrics": kept, "training": training})
            (folder.run(cell) / "metrics.json").write_text(text, encoding="utf-8")
    one, other = (cell for cell in cells[1:] if cell.number == RANDOM)
    assert (one.seed, other.seed) == (0, 1) and folder.settled(one) == folder.settled(other)
    note = json.loads((folder.trials / str(one.proposal)).read_text(encoding="utf-8"))
    assert note["scores"] == [55, 56, 57, 58, 59]
    assert one.run(folder.cells, folder.tried(one)).run.training.lr == note["settings"]["lr"]


def test_a_trial_waits_for_those_before_it_and_only_for_them(write_plan, tmp_path):
    plan = write_plan(TPE, "[methods.none]\n", student=RATES)
    folder, cells = begin(plan, tmp_path / "out")
    teacher = folder.run(cells[0])
    teacher.mkdir(parents=True)
    for name in ("metrics.json", "config.json", "model.safetensors"):
        (teacher / name).write_text("{}", encoding="utf-8")
    assert {cell.number for cell in cells[1:] if folder.ready(cell)} == set(range(RANDOM))
    for cell in cells[1:]:
        if cell.number < RANDOM:
            folder.fail(cell.name, "the loss is NaN")
    assert {cell.number for cell in cells[1:] if folder.ready(cell)} == set(range(RANDOM + 1))
    # With --only the trials before it come along.
    chosen = only(cells, "*seed1-trial3-*")
    assert sorted({cell.number for cell in chosen if cell.row}) == [0, 1, 2] and cells[0] in chosen
    assert [cell.seed for cell in chosen if cell.number == 2] == [1]


def test_more_trials_and_seeds_only_add_cells(write_plan):
    def names(top: str, methods: str = "[methods.none]\n") -> set[str]:
        return {cell.name for cell in planned(read_plan(write_plan(top, methods, student=RATES)))[0]}

    few = names("search = 'tpe'\ntrials = 3\nseeds = [0, 1]\n")
    assert few < names("search = 'tpe'\ntrials = 5\nseeds = [0, 1, 2]\n", "[methods.none]\n[methods.kd]\n")
    each = names("search = 'tpe'\ntrials = 3\nseeds = [0, 1]\nselect = 'each'\n")
    assert len(each & few) == 1 and len(each) == len(few)


def test_few_values_are_tried_once_each_and_failed_trials_are_the_worst(tmp_path):
    space = {"epochs": Range(low=1, high=3, whole=True), "init": ("first", "last")}
    search = Search(name="abc", space=space, values={}, trials=((),) * 6, seed=0)
    scores: list[float | None] = []
    found = []
    for number in range(6):
        found.append(settle(tmp_path / "a", search, number, scores))
        scores.append(None if found[-1]["init"] == "last" else float(found[-1]["epochs"]))
    assert len({json.dumps(one) for one in found}) == 6
    # Numbers go to where scores are best, and choices away from those that fail.
    space = {"lr": Range(low=0.0, high=1.0), "kind": ("good", "bad")}
    search = Search(name="line", space=space, values={}, trials=((),) * 24, seed=0)
    scores, found = [], []
    for number in range(24):
        found.append(settle(tmp_path / "b", search, number, scores))
        scores.append(None if found[-1]["kind"] == "bad" else -abs(found[-1]["lr"] - 0.3))
    assert [one["kind"] for one in found[12:]].count("bad") < 5
    assert sum(abs(one["lr"] - 0.3) for one in found[12:]) < sum(abs(one["lr"] - 0.3) for one in found[:12])


def test_whoever_proposes_first_is_held_to(tmp_path):
    search = Search(name="abc", space={"lr": Range(low=0.0, high=1.0)}, values={}, trials=((),) * 9, seed=0)
    scores = [0.1, 0.2, 0.3, 0.4, 0.5]
    first = settle(tmp_path, search, RANDOM, scores)
    assert settle(tmp_path, search, RANDOM, [1.0, 0.0, 0.0, 0.0, 0.0]) == first
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    (tmp_path / search.file(RANDOM)).write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="this proposal cannot be read; remove it"):
        settle(tmp_path, search, RANDOM, scores)


@pytest.mark.parametrize(
    ("top", "student", "methods", "line", "said"),
    [
        (TPE, "lr = {low = 1e-3}", "", "lr =", "a range is {low = ..., high = ..., log = true}"),
        (TPE, "lr = {low = 0.1, high = 0.01}", "", "lr =", "low is less"),
        (TPE, "lr = {low = 0, high = 1, log = true}", "", "lr =", "with log = true low is more than 0"),
        (TPE, "lr = {low = -1, high = 1}", "", "lr =", "lr is -1.0: it must be more than 0"),
        (TPE, "epochs = {low = 1.5, high = 3}", "", "epochs =", "it is a whole number, so low and high are as well"),
        (TPE, "width = {low = 16, high = 32}", "", "width =", "several values of it make a table each"),
        (TPE, "keep = {low = 1, high = 3}", "", "keep =", "is no number: give a list"),
        (TPE, "", "temperature = {low = 1, high = 8}", "trials =", "none has 1 combination of settings to try"),
        (TPE, "lr = [1e-3, 1e-2]", "", "trials =", "all methods get as many"),
        (TPE, f"{RATES}\naccumulate = [2, 'x']", "", "accumulate =", "accumulate is 'x'"),
        (TPE + "holdout = 0\n", RATES, "", "lr =", "without a holdout nothing may choose one"),
        (TPE + f"{RATES.splitlines()[0]}\n", "", "", "lr =", "put what is to be chosen from under [student]"),
        ("search = 'tpe'\ntrials = 1\n", RATES, "", "trials =", "give a whole number from 2 on"),
        ("search = 'tpe'\n", RATES, "", "search =", "give trials = 10, say"),
        ("trials = 4\n", "lr = [1e-3, 1e-2]", "", "trials =", "a grid tries every value"),
        ("", RATES, "", "lr =", "lr is a range, of search = 'tpe'; for a grid give a list"),
    ],
)
def test_bad_searches_are_named_with_their_lines(write_plan, top, student, methods, line, said):
    path = write_plan(top, f"[methods.none]\n[methods.kd]\n{methods}\n", student=student)
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next(
        at
        for at, text in enumerate(lines, 1)
        if text.startswith(line) and ("max" in line or text not in ("batch_size = 8",))
    )
    found = [one for one in errors(path) if said in one]
    assert found and found[0].startswith(f"{number}: "), errors(path)


def test_a_range_of_a_teacher_is_none(write_plan):
    path = write_plan(TPE, student=RATES, teacher="weight_decay = {low = 0, high = 1}")
    assert any("weight_decay is a range: a teacher has one value" in line for line in errors(path))


def test_without_optuna_the_plan_says_what_to_install(write_plan, monkeypatch):
    import stillery.study.search_cells as module

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    (line,) = errors(write_plan(TPE, student=RATES))
    assert line.endswith('needs the package optuna: pip install "stillery[search]"')


def test_a_dry_run_shows_trials_and_steps(write_plan, tmp_path, capsys):
    from stillery.cli.study import study

    plan = write_plan(
        "search = 'tpe'\ntrials = 6\n", "[methods.none]\n", student="max_steps = {low = 2, high = 5}\nlr = [1e-3, 1e-2]"
    )
    study(plan, tmp_path / "out", dry_run=True)
    said = capsys.readouterr().out
    assert said.count("  up to 5 steps, ") == 6 and "-trial6-" in said
    assert "search by tpe: 6 trials for each method and task, of all seeds together, the first 5 at random" in said
    folder, cells = begin(plan, tmp_path / "out")
    settle(folder.trials, cells[1].search, 0, [])
    study(plan, tmp_path / "out", dry_run=True)
    assert ", open, lr 0.0" in capsys.readouterr().out
