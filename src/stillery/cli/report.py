"""The command `stillery report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    places: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Folders of studies and of runs; .json files of stillery analyse."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page.  [default: report.html]", metavar="FILE.html", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page in --out.")] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve the page on 127.0.0.1 instead, and follow a study that is running."),
    ] = False,
    port: Annotated[int, typer.Option(help="The port of --serve; 0 takes any that is free.", min=0, max=65535)] = 8710,
) -> None:
    """Make one HTML page of studies and runs: scores, costs, curves, disagreements.

    The page needs no network and opens from disk: sentences, tables to sort and filter, charts with intervals, the
    examples on which teacher and student disagree, and the commands that make the numbers again.
    """
    from stillery.errors import UserError

    if serve:
        if out is not None or overwrite:
            raise UserError("--serve writes no file: leave out --out and --overwrite")
        from stillery.reports.serve import serve as follow

        follow(places, port)
        return
    from stillery.reports.write import write_report

    print(write_report(places, out or Path("report.html"), overwrite=overwrite))
