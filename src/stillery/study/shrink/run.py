"""A search from its request to one recommended folder: measured, trained by workers, chosen, written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillery.errors import Stopped, UserError
from stillery.jobs.finetune import prepare_finetune
from stillery.jobs.warm import kept_warm
from stillery.progress import quiet, say
from stillery.study.cells import PlannedCell
from stillery.study.claims import Pace
from stillery.study.folder import State, StudyFolder
from stillery.study.shrink.candidates import Candidate, candidates, short_steps, teacher_cell, terms
from stillery.study.shrink.files import copy_run, read_search, write_search
from stillery.study.shrink.measure import DEV, Basis, Cost, basis, costs
from stillery.study.shrink.report import Final, curve, final, reading, students_in_words, table, write_curve
from stillery.study.shrink.request import Request, check_out
from stillery.study.shrink.search import Search
from stillery.study.shrink.shapes import Shape, shapes
from stillery.study.shrink.training import Trainings

__all__ = ["Shrunk", "run_shrink"]

_ROUNDS = 3
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
    """Continue a search, together with whoever else works on the same folder, and write what it comes to.

    Args:
        request: what is asked for.
        out: the folder of the search.
        workers: worker processes on this machine, for each of its GPUs where it has some; 0 trains in this process.
        retry: train students again that failed.
        pace: how often workers show that they are alive.
    """
    check_out(out)
    folder = StudyFolder(out)
    runner = Trainings(folder=folder, workers=workers, pace=pace or Pace())
    asked = shapes(request, request.teacher or str(request.base and request.base.run.model))
    saved = read_search(out)
    if saved is not None and saved["terms"] != _terms(request):
        raise UserError(
            f"--out {out} holds another search: its teacher, data, method or training differ; give another folder"
        )
    teacher = request.teacher or _trained_teacher(request, runner, retry=retry)
    planned = _planned(request, teacher, asked, saved)
    write_search(
        out,
        {"terms": _terms(request), "basis": asdict(planned.basis), "teacher": asdict(planned.teacher),
         "shapes": [asdict(one) for one in planned.costs]},
    )  # fmt: skip
    search = planned.search
    if retry:
        for cell in search.cells:
            folder.retry(cell.name)
    _say_plan(planned)
    best = _searched(runner, search)
    return _written(folder, planned, best)


def plan(request: Request, teacher: str, out: Path | None = None) -> tuple[Search, Basis, list[Cost]]:
    """What a search would do with a finished teacher, without writing anything."""
    saved = None if out is None else read_search(out)
    planned = _planned(request, teacher, shapes(request, teacher), saved)
    return planned.search, planned.basis, planned.costs


def _terms(request: Request) -> str:
    return terms(request, request.teacher or str(request.base and request.base.run.model))


def _trained_teacher(request: Request, runner: Trainings, *, retry: bool) -> str:
    """The teacher that is fine-tuned first, as a cell of the search."""
    assert request.base is not None
    cell, folder = teacher_cell(request.base), runner.folder
    if retry:
        folder.retry(cell.name)
    if folder.state(cell) is State.OPEN:
        with kept_warm(), quiet():
            prepare_finetune(request.base)
        if read_search(folder.path) is None:
            write_search(folder.path, {"terms": _terms(request)})
        say(f"teacher: fine-tune {request.base.run.model}")
        runner.run([cell], lambda _: "teacher fine-tuned")
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
            f"no student costs so little: the smallest, {small.shape}, has "
            f"{small.parameters:,} parameters, the fastest, {fast.shape}, takes "
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
        first, total = f"each for {steps:,} steps, then ", total + len(short) * steps
    how = "the best of them" if search.target is None and short else "from the smallest on"
    how = "each" if search.every or (search.target is None and not short) else how
    say(
        f"search: {students_in_words(len(search.candidates))}; {first}{how} for {found.steps:,} steps, at most "
        f"{total:,} in all (--dry-run says how long that takes)"
    )


def _searched(runner: Trainings, search: Search) -> Candidate:
    """Train what is needed; what of it is damaged is made again."""
    folder = runner.folder
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
        runner.run(search.cells, came_to, search.wanted)
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
    copy_run(folder.run(best.full), folder.path / RECOMMENDED)
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
