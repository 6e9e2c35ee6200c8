"""A search from its request to one recommended folder: measured, trained by workers, chosen, written."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from stillery.atomic import atomic_file, atomic_folder
from stillery.errors import Stopped, UserError
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.run_paths import MACHINE, machine_paths, written_paths
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.warm import kept_warm
from stillery.progress import bar, console, quiet, say
from stillery.study.cells import PlannedCell
from stillery.study.claims import Pace
from stillery.study.folder import State, StudyFolder
from stillery.study.run import devices
from stillery.study.shrink.candidates import Candidate, candidates, short_steps, teacher_cell, terms
from stillery.study.shrink.measure import DEV, Basis, Cost, basis, costs
from stillery.study.shrink.report import Final, curve, final, reading, table, write_curve
from stillery.study.shrink.request import Request, check_out
from stillery.study.shrink.search import Search
from stillery.study.shrink.shapes import Shape, shapes
from stillery.study.workers import Workers

__all__ = ["Shrunk", "run_shrink"]

_LOOK, _ROUNDS = 0.5, 3
_FILE = "search.json"
RECOMMENDED = "recommended"


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """What a search has come to.

    Attributes:
        out: its folder.
        recommended: the folder of the recommended student, an ordinary run folder that transformers loads.
        found: whether that student is within the margin; True where the best one was sought.
        students: the curve: a row for the teacher and each student, from the smallest on.
        final: the recommended student's score on what is scored once.
        text: the curve as a table, and what it says.
    """

    out: Path
    recommended: Path
    found: bool
    students: list[dict[str, Any]]
    final: Final
    text: str

    def __repr__(self) -> str:
        return f"search in {self.out}\n\n{self.text}\n\nmodel: {self.recommended}"


@dataclass(frozen=True, kw_only=True)
class _Planned:
    """A search that is measured and may begin."""

    request: Request
    basis: Basis
    teacher: Cost
    costs: list[Cost]
    search: Search


def run_shrink(
    request: Request, out: Path, *, workers: int = 1, retry: bool = False, pace: Pace | None = None
) -> Shrunk:
    """Go on with a search, together with whoever else works on the same folder, and write what it comes to."""
    check_out(out)
    folder, pace = StudyFolder(out), pace or Pace()
    asked = shapes(request, request.teacher or str(request.base and request.base.run.model))
    saved = _read(out)
    if saved is not None and saved["terms"] != _terms(request):
        raise UserError(
            f"--out {out} holds another search: its teacher, data, method or training differ; give another folder"
        )
    teacher = request.teacher or _trained_teacher(request, folder, pace, retry=retry)
    planned = _planned(request, teacher, asked, saved)
    _write(out, request, planned)
    search = planned.search
    if retry:
        for cell in search.cells:
            folder.retry(cell.name)
    _say_plan(planned)
    best = _searched(folder, search, workers, pace)
    return _written(folder, planned, best)


def plan(request: Request, teacher: str, out: Path | None = None) -> tuple[Search, Basis, list[Cost]]:
    """What a search would do with a finished teacher, without writing anything."""
    saved = None if out is None else _read(out)
    planned = _planned(request, teacher, shapes(request, teacher), saved)
    return planned.search, planned.basis, planned.costs


def _terms(request: Request) -> str:
    return terms(request, request.teacher or str(request.base and request.base.run.model))


def _trained_teacher(request: Request, folder: StudyFolder, pace: Pace, *, retry: bool) -> str:
    """The teacher that is fine-tuned first, as a cell of the search."""
    assert request.base is not None
    cell = teacher_cell(request.base)
    if retry:
        folder.retry(cell.name)
    if folder.state(cell) is State.OPEN:
        with kept_warm(), quiet():
            prepare_finetune(request.base)
        if _read(folder.path) is None:
            _write_json(folder.path / _FILE, {"terms": _terms(request)})
        say(f"teacher: fine-tune {request.base.run.model}")
        _watch(folder, [cell], lambda _: [cell], 1, pace, lambda _: cell.name)
    failure = folder.failure(cell.name)
    if failure is not None:
        raise Stopped(f"the teacher could not be trained: {failure}; try again with --retry-failed")
    return str(folder.run(cell))


def _planned(request: Request, teacher: str, asked: Sequence[Shape], saved: dict[str, Any] | None) -> _Planned:
    """Measure what is not measured yet, and make the students of the search."""
    known = [] if not saved else [Cost(**one) for one in saved.get("shapes", [])]
    own = Cost(**saved["teacher"]) if saved and "teacher" in saved else None
    with kept_warm():
        if saved and "basis" in saved:
            found = Basis(**saved["basis"])
            request = request.without_holdout() if found.chooses == DEV else request
        else:
            request, found = basis(request, teacher, asked[0])
        missing = [shape for shape in asked if shape not in {(one.layers, one.width) for one in known}]
        if missing:
            own, new = costs(request, teacher, missing, own)
            known += new
    assert own is not None
    wanted = [one for one in known if (one.layers, one.width) in asked]
    students = candidates(request, teacher, found, wanted)
    if not students:
        small = min(wanted, key=lambda one: one.parameters)
        fast = min(wanted, key=lambda one: one.latency_ms)
        raise UserError(
            f"no student costs so little: the smallest, {small.layers} layers x {small.width}, has "
            f"{small.parameters:,} parameters, the fastest, {fast.layers} layers x {fast.width}, takes "
            f"{fast.latency_ms:.1f} ms (the teacher {own.latency_ms:.1f} ms); allow more, or try smaller shapes"
        )
    target = None if request.within is None else found.score - request.within
    search = Search(candidates=tuple(students), basis=found, target=target, every=request.every)
    return _Planned(request=request, basis=found, teacher=own, costs=known, search=search)


def _say_plan(planned: _Planned) -> None:
    """Say what chooses, and what the search costs at most."""
    search, found = planned.search, planned.basis
    said = {
        "dev": "the teacher may know what would be held out of train, so dev chooses",
        "half of dev": "the teacher may know what would be held out of train, and there is no test split to report: "
        "one half of dev chooses, the other is scored once",
    }
    if found.chooses in said:
        say(f"{said[found.chooses]} (a teacher that is fine-tuned with --holdout 0.1 does not)")
    say(f"teacher: {found.chooses} {found.metric} {found.score:.2f} on {found.examples:,} examples")
    short = [one for one in search.candidates if one.short is not None]
    total = len(search.candidates) * found.steps
    first = ""
    if short:
        steps = short_steps(found.steps)
        first, total = f"{len(short)} students for {steps:,} steps each, then ", total + len(short) * steps
    how = "the best of them" if search.target is None and short else "from the smallest on"
    how = "each" if search.every or (search.target is None and not short) else how
    say(
        f"search: {len(search.candidates)} students; {first}{how} for {found.steps:,} steps, at most {total:,} in all "
        "(--dry-run says how long a step takes)"
    )


def _searched(folder: StudyFolder, search: Search, workers: int, pace: Pace) -> Candidate:
    """Train what is needed; what of it is damaged is made again."""
    names = {one.full.name: one.name for one in search.candidates}
    names |= {one.short.name: f"{one.name}, short" for one in search.candidates if one.short is not None}

    def came_to(cell: PlannedCell) -> str:
        if folder.state(cell) is not State.FINISHED:
            return f"{names[cell.name]} failed: {folder.failure(cell.name)}"
        short = cell.name not in {one.full.name for one in search.candidates}
        score = search.scores(folder, short=short).get(names[cell.name].removesuffix(", short"))
        return f"{names[cell.name]}: {search.basis.chooses} {search.basis.metric} " + (
            "not readable" if score is None else f"{score:.2f} (teacher {search.basis.score:.2f})"
        )

    for _ in range(_ROUNDS):
        _watch(folder, search.cells, search.wanted, workers, pace, came_to)
        unread = search.unreadable(folder)
        for cell in unread:
            folder.set_aside(cell.name, "its scores cannot be read")
        if not unread:
            break
    else:
        raise Stopped(f"{folder.path}: results are damaged again and again; look at the disk")
    best = search.recommended(folder)
    if best is None:
        reasons = [folder.failure(cell.name) for cell in search.wanted(folder)]
        reason = next((one for one in reasons if one), "no student was left over")
        raise Stopped(f"every student failed, such as by: {reason}; try again with --retry-failed")
    return best


def _watch(
    folder: StudyFolder, cells: Sequence[PlannedCell], wanted: Callable[[StudyFolder], Sequence[PlannedCell]],
    workers: int, pace: Pace, came_to: Callable[[PlannedCell], str],
) -> None:  # fmt: skip
    """Have workers run the cells that are wanted, and say what each has come to."""
    if not any(folder.state(cell) is State.OPEN or folder.damage(cell) for cell in _failing(folder, wanted(folder))):
        return
    before = {cell.name for cell in cells if folder.state(cell) is not State.OPEN}
    told, began = set(before), time.monotonic()
    with Workers(folder, cells, workers, pace, devices(), wanted) as running, bar("students", None) as shown:
        while True:
            wrong = running.look()
            for cell in cells:
                if cell.name not in told and folder.state(cell) is not State.OPEN:
                    told.add(cell.name)
                    line = came_to(cell)
                    shown.advance(1, [line])
                    if not console.is_terminal:
                        say(f"{line} ({time.monotonic() - began:.0f} s)")
            if wrong is not None:
                raise Stopped(f"{wrong}; everything finished is kept: run the same command to go on")
            if not running.busy:
                return
            time.sleep(_LOOK)


def _failing(folder: StudyFolder, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
    return [cell for cell in cells if folder.state(cell) in (State.OPEN, State.FINISHED)]


def _written(folder: StudyFolder, planned: _Planned, best: Candidate) -> Shrunk:
    """Write the curve and the recommended student."""
    search, found, request = planned.search, planned.basis, planned.request
    rows = curve(folder, search, planned.teacher, planned.costs)
    scored = final(folder.run(best.full), found)
    limits = [f"{request.max_params:,} parameters"] if request.max_params is not None else []
    limits += [f"{request.max_latency:g} ms"] if request.max_latency is not None else []
    lines = reading(
        rows, found, request.within, scored, limits=f", of those with at most {' and '.join(limits)}" * bool(limits)
    )
    _copy(folder.run(best.full), folder.path / RECOMMENDED)
    reached = next(row["within"] for row in rows if row["recommended"]) is not False
    write_curve(
        folder.path, rows,
        {"task": found.task, "metric": found.metric, "chosen_on": found.chooses, "examples": found.examples,
         "within": request.within, "max_params": request.max_params, "max_latency_ms": request.max_latency,
         "recommended": best.name, "found": reached, "folder": RECOMMENDED, "scored_once": asdict(scored),
         "reading": lines},
    )  # fmt: skip
    text = "\n".join([table(rows, found), "", *lines])
    return Shrunk(
        out=folder.path, recommended=folder.path / RECOMMENDED, found=reached, students=rows, final=scored, text=text
    )


def _copy(run: Path, place: Path) -> None:
    """Copy a run folder; big files are linked, as nothing changes them, and its run file names paths from there."""
    with atomic_folder(place) as part:
        shutil.copytree(run, part, copy_function=_link, dirs_exist_ok=True)
        values = read_toml(run / "run.toml")
        for name in ("run.toml", MACHINE):
            (part / name).unlink(missing_ok=True)
        (part / "run.toml").write_text(tomli_w.dumps(written_paths(values, place)), encoding="utf-8")
        far = machine_paths(values, place)
        if far:
            (part / MACHINE).write_text(tomli_w.dumps(far), encoding="utf-8")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _read(out: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((out / _FILE).read_text(encoding="utf-8"))
        return {"terms": str(found["terms"]), **found}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / _FILE}: cannot be read ({error}); give another --out") from None


def _write(out: Path, request: Request, planned: _Planned) -> None:
    """Write what was measured, so that the same command goes on with the same numbers."""
    record = {
        "terms": _terms(request), "basis": asdict(planned.basis), "teacher": asdict(planned.teacher),
        "shapes": [asdict(one) for one in planned.costs],
    }  # fmt: skip
    _write_json(out / _FILE, record)


def _write_json(path: Path, record: dict[str, Any]) -> None:
    with atomic_file(path) as part:
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
