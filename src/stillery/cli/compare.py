"""The command `stillery compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["compare"]


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of finished runs, or of exports.")],
    baseline: Annotated[
        str | None,
        typer.Option(help="The run that the others are compared with.  [default: the first student]", metavar="RUN"),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The metric to compare.  [default: the first, a task's official one]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the table; its suffix decides the format: .csv, .md, .jsonl, .parquet."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show finished runs and their teachers in one table, with paired differences.

    Sizes, scores and speed are read from the run folders; no model is loaded. The runs must have been scored on the
    same examples. Differences have 95% intervals of a bootstrap that resamples the examples for both models alike.

    With folders of `stillery export` among them, all models are loaded and scored, on the examples of the first run.
    Such a folder stands for its ONNX files; one file can be named alone.
    """
    from stillery.cli.show import show_comparison
    from stillery.jobs.comparison.compare import compare_runs
    from stillery.jobs.comparison.write import check_table

    if out is not None:
        check_table(out)
    show_comparison(compare_runs(runs, baseline=baseline, metric=metric), json=json, out=out)
