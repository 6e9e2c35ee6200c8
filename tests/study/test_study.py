"""A study with tiny models: every cell once, whatever happens to the workers, and a table at the end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stillery.errors import UserError
from stillery.models.model_folder import model_folder
from stillery.study.cells import planned
from stillery.study.claims import Claims
from stillery.study.collect import Damaged, collect
from stillery.study.folder import State, StudyFolder
from stillery.study.plan import read_plan
from stillery.study.run import only, run_study
from stillery.study.run_cell import run_cell
from stillery.study.workers import work


@pytest.fixture(autouse=True)
def _no_teacher_cache(monkeypatch) -> None:
    # Whether a cache is used is decided by the clock, and rounds otherwise: weights are compared below.
    monkeypatch.setenv("STILLERY_CACHE", "off")


def run(plan: Path, out: Path) -> tuple[StudyFolder, list[str]]:
    """Run a study in this process; gives what was set aside, in words."""
    read = read_plan(plan)
    cells, _ = planned(read)
    folder = StudyFolder(out)
    folder.begin(read, cells)
    before = folder.said_aside()
    work(folder, cells, Claims(folder.claims), poll=0.01)
    return folder, [line for name, line in folder.said_aside().items() if name not in before]


def weights(folder: StudyFolder, cell: str) -> bytes:
    return (Path(model_folder(str(folder.run(cell)))) / "model.safetensors").read_bytes()


def written(folder: StudyFolder) -> dict[str, float]:
    return {path.parent.name: path.stat().st_mtime for path in folder.cells.glob("*/metrics.json")}


def names(plan: Path) -> dict[str, str]:
    """The cells of a plan of one seed, by row."""
    return {cell.row or "teacher": cell.name for cell in planned(read_plan(plan))[0]}


def test_from_a_plan_to_a_table(write_plan, tmp_path, stillery):
    """Through the command: a failed cell does not stop the rest, what is finished is not done again.

    Students of one teacher, in several workers, read its predictions from a cache that one of them has filled.
    """
    hot, more = "[methods.hot]\nmethod = 'kd'\ntemperature = 4.0\n", "[methods.more]\nmethod = 'kd'\nsamples = 999\n"
    methods = f"[methods.none]\n[methods.kd]\n{hot}{more}"
    plan = write_plan("seeds = [0]\nvary = ['samples']\n", methods, student="cache = 'on'")
    out, cache = tmp_path / "out", tmp_path / "cache"
    done = stillery("study", plan, "--out", out, "--workers", 2, STILLERY_CACHE=str(cache))
    assert done.returncode == 1, done.stderr
    assert "1 of 5 cells failed; run them again with --retry-failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert "failed: reviews-more-seed0-" in done.stdout and "the training split has only" in done.stdout
    assert "cells: 4 finished, 1 failed" in done.stdout
    assert "| none |" in done.stdout and "more has 0 of 1 seed (1 failed)" in done.stdout
    assert "Scored on test, once; weights were chosen on a part of train that was held out." in done.stdout
    assert {path.name for path in (out / "tables").iterdir()} == {
        "report.md", "tables.md", "tables.tex", "tables.json", "scores.csv", "task-reviews.csv"
    }  # fmt: skip
    folder = StudyFolder(out)
    before = written(folder)
    assert len(before) == 4
    for name in before:
        assert pq.read_metadata(folder.run(name) / "predictions.parquet").num_rows == 16
        assert "holdout = 0.1" in (folder.run(name) / "run.toml").read_text()
    # The table is of the scores of the runs.
    table = json.loads((out / "tables" / "tables.json").read_text())["tables"][0]
    scores = {row["row"]: row["scores"] for row in table["rows"]}
    for cell in planned(read_plan(plan))[0]:
        if cell.name in before:
            found = folder.metrics(cell.name)["metrics"]["accuracy"]
            assert scores[cell.row or "model"][str(cell.seed)] == pytest.approx(found)
    again = run_study(plan, out)
    assert again.text in done.stdout and written(folder) == before
    # Another plan is refused, unless it only adds cells.
    with pytest.raises(UserError, match="holds another study: 2 of its cells are not in"):
        run_study(write_plan("seeds = [0]\n", student="cache = 'on'"), out)
    plan = write_plan("seeds = [0, 1]\nvary = ['samples']\n", methods, student="cache = 'on'")
    more = planned(read_plan(plan))[0]
    folder.begin(read_plan(plan), more)
    assert [folder.state(cell) for cell in more].count(State.OPEN) == 4
    # Both students used the cache, which is one array of logits; its examples were filled once.
    used = [folder.metrics(name)["training"].get("teacher_store") for name in before]
    assert [[one["used"] for one in choices] for choices in used if choices] == [[True], [True]]
    assert len(list(cache.glob("teacher/*/values.bin"))) == 1
    logs = "".join(path.read_text(encoding="utf-8") for path in (out / "logs").iterdir())
    filled = re.findall(r"fill the teacher cache: (\d+)/\d+ in", logs)
    assert filled == re.findall(r"(\d+) train, \d+ holdout", logs)[:1]


def test_killed_workers_lose_nothing_and_the_rest_ends_with_the_same_bits(write_plan, tmp_path):
    """kill -9 of a study and its workers while a student is trained: another continues the cell."""
    plan = write_plan(
        methods="[methods.kd]\n", student="max_steps = 400\ncheckpoint_seconds = 0.05\neval_every = 10\nlr = 1e-3"
    )
    straight, _ = run(plan, tmp_path / "straight")
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "stillery", "study", str(plan), "--out", str(out)]
    begun = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    folder, kd = StudyFolder(out), names(plan)["kd"]
    deadline = time.monotonic() + 240
    while not list((folder.run(kd) / "checkpoints").glob("step-*")):
        assert time.monotonic() < deadline and begun.poll() is None
        time.sleep(0.01)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    read = read_plan(plan)
    assert folder.state(planned(read)[0][1]) is State.OPEN
    teacher = (folder.run(names(plan)["teacher"]) / "metrics.json").stat().st_mtime
    _, told = run(plan, out)
    assert told == []
    assert (folder.run(names(plan)["teacher"]) / "metrics.json").stat().st_mtime == teacher
    steps = [json.loads(line)["step"] for line in (folder.run(kd) / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    # Checkpoints are written by the clock, in a teacher that the plan says nothing of as well.
    assert "checkpoint_seconds = 30.0" in (folder.run(names(plan)["teacher"]) / "run.toml").read_text()
    assert weights(folder, kd) == weights(straight, kd)
    assert folder.metrics(kd)["metrics"] == straight.metrics(kd)["metrics"]


def test_corrupt_results_are_set_aside_and_made_again(write_plan, tmp_path):
    plan = write_plan()
    folder, _ = run(plan, tmp_path / "out")
    _, (table,) = planned(read_plan(plan))
    before = {row: weights(folder, name) for row, name in names(plan).items()}
    kept = written(folder)
    none, kd = (folder.run(names(plan)[row]) for row in ("none", "kd"))
    (none / "metrics.json").write_text('{"metrics": {"accur', encoding="utf-8")
    (kd / "predictions.parquet").write_bytes((kd / "predictions.parquet").read_bytes()[:-20])
    _, told = run(plan, tmp_path / "out")
    assert len(told) == 2
    assert "predictions.parquet is not readable; it is set aside in" in told[0]
    assert "metrics.json is not readable" in told[1]
    assert {row: weights(folder, name) for row, name in names(plan).items()} == before
    assert len(list((tmp_path / "out" / "quarantine").glob("*/run.toml"))) == 2
    teacher = names(plan)["teacher"]
    assert written(folder)[teacher] == kept[teacher]
    # Predictions of another model are found when the table is made.
    shutil.copy(kd / "predictions.parquet", tmp_path / "kept.parquet")
    rows = pq.read_table(kd / "predictions.parquet")
    other = ["negative" if one == "positive" else "positive" for one in rows["label"].to_pylist()]
    pq.write_table(rows.set_column(rows.column_names.index("label"), "label", [other]), kd / "predictions.parquet")
    if folder.metrics(names(plan)["kd"])["metrics"]["accuracy"] != 50:
        with pytest.raises(Damaged, match=names(plan)["kd"]):
            collect(folder, read_plan(plan), table)


def test_a_full_disk_ends_the_worker_and_keeps_what_is_finished(write_plan, tmp_path, monkeypatch):
    plan, out = write_plan(), tmp_path / "out"
    run(plan, out)
    folder, kd = StudyFolder(out), names(plan)["kd"]
    shutil.rmtree(folder.run(kd))
    import stillery.study.run_cell as module

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(out))

    monkeypatch.setattr(module, "run_distill", full)
    with pytest.raises(OSError, match="No space left"):
        run(plan, out)
    # No cell is to blame.
    assert folder.failure(kd) is None
    monkeypatch.undo()
    monkeypatch.setenv("STILLERY_CACHE", "off")
    run(plan, out)
    assert len(written(folder)) == 3


def test_what_was_begun_and_cannot_be_gone_on_with_is_begun_again(write_plan, tmp_path):
    """A checkpoint that is damaged, as a machine that lost its power may leave it."""
    plan, out = write_plan(), tmp_path / "out"
    folder, _ = run(plan, out)
    kd = names(plan)["kd"]
    expected = weights(folder, kd)
    (folder.run(kd) / "metrics.json").unlink()
    place = folder.run(kd) / "checkpoints" / "step-1"
    place.mkdir(parents=True)
    (place / "state.json").write_text("{", encoding="utf-8")
    _, told = run(plan, out)
    assert "checkpoints/step-1" in told[0] and "damaged" in told[0] and "set aside" in told[0]
    assert weights(folder, kd) == expected


def test_the_chosen_setting_is_best_on_what_was_held_out(write_plan, tmp_path):
    plan = write_plan("seeds = [0, 1]\n", "[methods.none]\n", student="lr = [1e-6, 3e-2]\nmax_steps = 6")
    folder, _ = run(plan, tmp_path / "out")
    cells, (table,) = planned(read_plan(plan))
    held: dict[float, list[float]] = {}
    for cell in cells[1:]:
        training = folder.metrics(cell.name)["training"]
        assert training["selected_on"] == "holdout"
        best = training["dev_best" if training["kept_step"] != training["steps"] else "dev_last"]
        held.setdefault(cell.trial["lr"], []).append(best["accuracy"])
    found = collect(folder, read_plan(plan), table)
    means = {lr: sum(scores) / len(scores) for lr, scores in held.items()}
    assert means[1e-6] != means[3e-2]
    chosen = max(means, key=lambda lr: means[lr])
    assert {trial["lr"] for trial in found.chosen.values()} == {chosen}
    assert f"Chosen for none: reviews: lr {chosen}." in found.notes


def test_terms_that_differ_are_said(write_plan, tmp_path):
    """What is varied on purpose is named; what differs otherwise, as in a folder edited by hand, is a warning."""
    own = "[methods.none]\n[methods.kd]\ninit = 'last'\n"
    plan = write_plan("vary = ['init']\n", own, student="init = 'first'")
    folder, _ = run(plan, tmp_path / "out")
    _, (table,) = planned(read_plan(plan))
    found = collect(folder, read_plan(plan), table)
    assert "Varied on purpose: init (none first, kd last)." in found.notes
    assert [row.start for row in found.results.rows if not row.teacher] == ["first", "last"]
    assert not [note for note in found.notes if note.startswith("Warning")]
    file = folder.run(names(plan)["kd"]) / "run.toml"
    file.write_text(file.read_text().replace("batch_size = 8", "batch_size = 16"), encoding="utf-8")
    (warning,) = [note for note in collect(folder, read_plan(plan), table).notes if note.startswith("Warning")]
    assert "the rows differ in batch_size (none 8, kd 16), so they are not on equal terms" in warning


def test_a_student_of_a_failed_teacher_is_not_tried(write_plan, tmp_path):
    plan = write_plan(teacher="metric = 'bleu'")
    folder, _ = run(plan, tmp_path / "out")
    cells, (table,) = planned(read_plan(plan))
    assert [folder.state(cell) for cell in cells] == [State.FAILED, State.BLOCKED, State.BLOCKED]
    assert not (tmp_path / "out" / "cells" / names(plan)["kd"]).exists()
    kd = collect(folder, read_plan(plan), table).results.cells["reviews", "kd", 0]
    assert (kd.failure or "").startswith("its teacher failed: ") and "bleu" in (kd.failure or "")


def test_a_dry_run_names_every_cell_with_its_steps_and_trains_nothing_there(write_plan, tmp_path, capsys):
    from stillery.cli.study import study

    plan = write_plan("epochs = 2\n", student="max_steps = 300")
    text = plan.read_text().replace("max_steps = 2\n", "", 1)
    plan.write_text(text)
    study(plan, tmp_path / "out", dry_run=True, workers=2)
    said = capsys.readouterr().out
    # 128 training examples less those that are held out, in batches of 8.
    (steps,) = {line.split()[1] for line in said.splitlines()[:-1]}
    assert 26 <= int(steps) <= 32 and said.count(" open\n") == 3
    assert f"3 cells, {3 * int(steps)} steps, about" in said and "with 2 workers" in said
    assert not (tmp_path / "out").exists()
    cells, _ = planned(read_plan(plan))
    assert [cell.row for cell in only(cells, "*kd*")] == [None, "kd"]
    with pytest.raises(UserError, match="no cell is called so"):
        only(cells, "pkd")


def test_engines_that_cannot_run_are_one_line(write_plan, tmp_path, monkeypatch):
    plan, out = write_plan(), tmp_path / "out"
    with pytest.raises(UserError, match="--engine is 'slurm': choose from local, ray"):
        run_study(plan, out, engine="slurm")
    with pytest.raises(UserError, match="give --engine ray with it"):
        run_study(plan, out, address="auto")
    assert not out.exists()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r'needs the package ray: pip install "stillery\[ray\]"'):
        run_study(plan, out, engine="ray")


def test_a_further_cell_in_a_worker_costs_little(write_plan, tmp_path):
    """Data and teacher are read once: a further cell of two steps takes far less than a start of the command."""
    plan = write_plan("seeds = [0, 1, 2]\n", "[methods.kd]\n")
    read = read_plan(plan)
    cells, _ = planned(read)
    folder = StudyFolder(tmp_path / "out")
    folder.begin(read, cells)
    took = []
    from stillery.jobs.warm import kept_warm

    with kept_warm():
        for cell in cells:
            began = time.process_time()
            run_cell(folder, cell)
            took.append(time.process_time() - began)
    assert all(folder.state(cell) is State.FINISHED for cell in cells)
    assert took[-1] < 2, took
