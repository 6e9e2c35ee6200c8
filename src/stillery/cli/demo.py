"""`stillery demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    if result.reused:
        print(
            f"{result.reused} of {len(result.rows)} models were in {folder} already and are reused; remove it to redo"
        )
    print(f"done in {result.seconds:.0f} s; the forward-matched student is in {result.student}")
    print(load_line(result.student))
