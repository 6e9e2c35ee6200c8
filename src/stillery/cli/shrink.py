"""The command `stillery shrink`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.options import as_trained_else, with_settings
from stillery.errors import Interrupted
from stillery.setting import Panel
from stillery.study.shrink.defaults import GROUPS, HOLDOUT, METHOD, NOT_HERE
from stillery.study.shrink.request import Given, requested

__all__ = ["shrink"]


def _option(text: str, panel: Panel = Panel.FIRST, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel=panel, **more)


@with_settings(
    *GROUPS, defaults=as_trained_else("teacher") | {"holdout": str(HOLDOUT), "method": METHOD}, hidden=NOT_HERE
)
def shrink(
    *,
    teacher: Annotated[str | None, _option("Fine-tuned model: a folder, a run folder, or a name on the hub.")] = None,
    model: Annotated[str | None, _option("A pretrained model to fine-tune as the teacher first.")] = None,
    within: Annotated[
        float | None,
        _option("Find the smallest student that is so many points below the teacher at most.  [default: 1.0]"),
    ] = None,
    max_params: Annotated[
        str | None, _option("Find the best student with so many parameters at most, such as 15M.", metavar="N")
    ] = None,
    max_latency: Annotated[
        float | None, _option("Find the best student that takes so many milliseconds a text at most.", metavar="MS")
    ] = None,
    layers: Annotated[
        str | None, _option("Depths to try, such as 2,3.  [default: every sixth of the teacher's]", metavar="LIST")
    ] = None,
    widths: Annotated[
        str | None, _option("Widths to try, such as 192,384.  [default: the teacher's]", metavar="LIST")
    ] = None,
    inits: Annotated[
        str | None, _option("Starts to try, such as first,even.  [default: the method's]", metavar="LIST")
    ] = None,
    settings: dict[str, Any],
    every: Annotated[
        bool,
        typer.Option(
            "--every", help="Train every student in full, for the whole curve.", rich_help_panel=Panel.STUDENT
        ),
    ] = False,
    out: Annotated[Path, _option("Folder of the search; the same command continues it.")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print every student, its size, speed and time; train none.", rich_help_panel=Panel.OUTPUT
        ),
    ] = False,
    workers: Annotated[
        int, _option("Worker processes: for each GPU, or in all where there is none.", Panel.SPEED, min=1)
    ] = 1,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Train students again that failed.", rich_help_panel=Panel.OUTPUT)
    ] = False,
) -> None:
    """Find the smallest student within a margin of its teacher, or the best one under a limit.

    Students are trained from the smallest on and chosen on a part of train that is held out; the recommended one is
    then scored once. What is finished is never done again.
    """
    given = Given(
        teacher=teacher, model=model, within=within, max_params=max_params, max_latency=max_latency, layers=layers,
        widths=widths, inits=inits, every=every,
    )  # fmt: skip
    request = requested(given, settings)
    if dry_run:
        from stillery.study.shrink.dry_run import dry_run as looked_at

        print(looked_at(request, out, workers))
        return
    from stillery.cli.show import load_line
    from stillery.lines import show
    from stillery.study.shrink.run import run_shrink

    try:
        found = run_shrink(request, out, workers=workers, retry=retry_failed)
    except KeyboardInterrupt as stopped:
        raise Interrupted(f"; the same command continues the search in {out}", stopped) from None
    table, _, reading = found.text.partition("\n\n")
    print(table)
    for line in ("", *reading.splitlines()):
        show(line)
    show(f"curve: {out / 'curve.csv'}, {out / 'curve.json'}")
    show(f"model: {found.recommended}")
    show(load_line(found.recommended))
