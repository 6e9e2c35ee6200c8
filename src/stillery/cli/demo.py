"""The command `stillery demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stillery.lines import command_line, show, width_of
from stillery.verbosity import Verbosity, verbosity

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to.  [default: demo, or demo-fast with --fast]")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="A shorter run with weaker models: under two minutes.")] = False,
) -> None:
    """Fine-tune a real model, distil it three ways, compare: the whole job in minutes, nothing to prepare."""
    from rich.console import Console

    from stillery.cli.show import load_line
    from stillery.evaluation.table import table
    from stillery.jobs.demo import run_demo

    folder = out or Path("demo-fast" if fast else "demo")
    result = run_demo(folder, fast=fast)
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(table(result.rows, console.width))
    console.print()
    if verbosity() is Verbosity.QUIET:
        return
    if result.reused:
        show(f"{result.reused} of {len(result.rows)} models were in {folder} already and are reused; remove it to redo")
    show(f"done in {result.seconds:.0f} s; the forward-matched student is in {result.student}")
    show(load_line(result.student))
    student, teacher = str(result.run), str(result.teacher)
    print("next:")
    for words in (
        ["evaluate", student, "--task", result.task, "--split", "test", "--against", teacher],
        ["distill", "--teacher", teacher, "--task", result.task, "--method", "pkd", "--layers", "3",
         "--out", f"{folder}/pkd"],
    ):  # fmt: skip
        print(command_line(["stillery", *words], width_of(sys.stdout)))
