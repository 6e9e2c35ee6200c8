"""What a search would do: every student with its size and speed, its steps, and how long they take."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from stillery.jobs.finetune import run_finetune
from stillery.progress import quiet
from stillery.study.dry_run import Line
from stillery.study.dry_run import dry_run as looked_at
from stillery.study.folder import State, StudyFolder
from stillery.study.run import spent
from stillery.study.shrink.candidates import teacher_cell
from stillery.study.shrink.report import students_in_words
from stillery.study.shrink.request import Request, check_out
from stillery.study.shrink.run import plan
from stillery.study.shrink.shapes import shapes

__all__ = ["dry_run"]


def dry_run(request: Request, out: Path, workers: int = 1) -> str:
    """The students, their costs, and what the search takes at most; nothing is written to its folder."""
    check_out(out)
    folder = StudyFolder(out)
    if request.base is None:
        return _lines(request, folder, str(request.teacher), workers, [])
    shapes(request, request.base.run.model)
    cell = teacher_cell(request.base)
    if folder.state(cell) is State.FINISHED:
        return _lines(request, folder, str(folder.run(cell)), workers, [])
    steps, seconds = _known(looked_at(folder, [cell])[0])
    said = [f"teacher: {steps:,} steps, {spent(seconds)}"]
    with tempfile.TemporaryDirectory(prefix="stillery-") as place, quiet():
        run = request.base.run
        few = replace(run, training=replace(run.training, max_steps=1, keep="last"))
        run_finetune(replace(request.base, run=few), Path(place) / "teacher")
        return _lines(request, folder, str(Path(place) / "teacher"), workers, said, seconds)


def _lines(
    request: Request, folder: StudyFolder, teacher: str, workers: int, said: list[str], before: float = 0.0
) -> str:
    search, basis, _ = plan(request, teacher, folder.path)
    lines = {line.cell.name: line for line in looked_at(folder, search.cells)}
    said = [*said, f"{'student':<28}{'params':>9}{'latency':>11}{'steps':>9}{'time':>9}"]
    for one in search.candidates:
        for cell in (one.short, one.full):
            if cell is not None:
                line = lines[cell.name]
                steps, seconds = _known(line)
                name = one.name if cell is one.full else f"{one.name}, short"
                done = "" if line.state is State.OPEN else f"  {line.state}"
                said.append(
                    f"{name:<28}{one.cost.parameters / 1e6:>8.1f}M{one.cost.latency_ms:>8.1f} ms{steps:>9,}"
                    f"{spent(seconds):>9}{done}"
                )
    known = [_known(line) for line in lines.values()]
    seconds = before + sum(each for _, each in known)
    several = f", {spent(seconds / workers)} with {workers} workers" if workers > 1 else ""
    least = "" if search.target is None or search.every else "; it ends with the first student that is good enough"
    total = sum(steps for steps, _ in known)
    said.append(
        f"{students_in_words(len(search.candidates))}, chosen by {basis.chooses} {basis.metric}; at most {total:,} "
        f"steps, about {spent(seconds)} in one worker{several}{least}"
    )
    return "\n".join(said)


def _known(line: Line) -> tuple[int, float]:
    """Steps and seconds of a cell; only cells whose data or models are missing have none, and here all are there."""
    assert line.steps is not None and line.seconds is not None
    return line.steps, line.seconds
