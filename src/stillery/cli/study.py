"""The command `stillery study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stillery.errors import Interrupted, Stopped
from stillery.lines import listed, plain

__all__ = ["study"]


def study(
    plan: Annotated[Path, typer.Argument(help="A plan; see docs/studies.md.", metavar="PLAN.toml")],
    out: Annotated[Path, typer.Option(help="Folder of the study. What is finished in it is never done again.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every cell, their steps and how long they take; run nothing.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(help="Only cells with this in their name (* and ? fit anything), and their teachers."),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Worker processes: for each GPU, or for each machine without one.", min=1)
    ] = 1,
    engine: Annotated[
        str, typer.Option(help="Where workers run: local, on this machine; ray, on a Ray cluster.", metavar="ENGINE")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster, HOST:PORT or auto.  [default: Ray on this machine, for this study]"),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="A recipe of the plan that may run; the plan alone starts no code.", metavar="FILE:FUNCTION"),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed.")] = False,
) -> None:
    """Compare methods over tasks and seeds on equal terms, resumable, on one machine or many."""
    if dry_run:
        _show_dry_run(plan, out, only, workers, recipe or [])
        return
    from stillery.study.folder import State
    from stillery.study.run import run_study

    try:
        found = run_study(
            plan, out, workers=workers, select=only, retry=retry_failed, engine=engine, address=address,
            recipes=recipe or [],
        )  # fmt: skip
    except KeyboardInterrupt as stopped:
        raise Interrupted(f"; the same command continues the study in {out}", stopped) from None
    print(plain(found.text))
    for name, reason in found.failures.items():
        print(plain(f"failed: {name}: {reason}"))
    counts = {state: sum(one is state for one in found.states.values()) for state in State}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    print(f"cells: {said}; tables in {out / 'tables'}")
    if found.failures:
        raise Stopped(f"{len(found.failures)} of {len(found.states)} cells failed; run them again with --retry-failed")


def _show_dry_run(plan: Path, out: Path, only: str | None, workers: int, recipes: list[str]) -> None:
    from stillery.study.cells import planned
    from stillery.study.dry_run import dry_run as looked_at
    from stillery.study.folder import StudyFolder
    from stillery.study.plan import read_plan
    from stillery.study.run import only as chosen
    from stillery.study.run import spent
    from stillery.study.search import RANDOM

    read = read_plan(plan, recipes)
    cells, _ = planned(read, to_run=False)
    lines = looked_at(StudyFolder(out), chosen(cells, only))
    for line in lines:
        tried = ", ".join(f"{name.removeprefix('options.')} {value}" for name, value in line.tried.items())
        most = "up to " if line.most else ""
        long = f"{line.cell.asked.run.training.epochs} epochs" if line.steps is None else f"{most}{line.steps} steps"
        measured = [] if line.seconds is None else [spent(line.seconds), str(line.state)]
        print(plain(f"{line.cell.name}  {', '.join([long, *measured, *([tried] if tried else [])])}"))
    measured_lines = [line for line in lines if line.seconds is not None]
    seconds = sum(line.seconds or 0.0 for line in measured_lines)
    one = f", {spent(seconds / workers)} with {workers} workers" if workers > 1 else ""
    if read.search == "tpe":
        each = "all seeds together" if read.select == "mean" else "each seed"
        print(f"search by tpe: {read.trials} trials for each method and task, of {each}, the first {RANDOM} at random")
    if measured_lines:
        steps = sum(line.steps or 0 for line in measured_lines)
        print(f"{len(measured_lines)} cells, {steps:,} steps, about {spent(seconds)} in one worker{one}")
    lacking = list(dict.fromkeys(what for line in lines for what in line.cell.absent))
    if lacking:
        unmeasured = len(lines) - len(measured_lines)
        print(f"{unmeasured} cells were checked only; to run them, this is missing: {listed(lacking, 40)}")
