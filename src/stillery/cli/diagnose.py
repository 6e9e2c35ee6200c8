"""The command `stillery diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["diagnose"]


def diagnose(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    probe: Annotated[
        bool, typer.Option("--probe", help="Also try other starts of the student, for 48 steps each.")
    ] = False,
    difference: Annotated[
        float,
        typer.Option(help="The difference of two models, in points, that the scores should be able to show.", min=0.01),
    ] = 5.0,
    json: Annotated[str | None, typer.Option(help="Write JSON to this file; - prints it.", metavar="FILE|-")] = None,
) -> None:
    """Say why a student may be bad: each cause with its number and the option to change.

    Scores, losses, gradients and projections are read from the run folder. Where its data and models are still there,
    student and teacher are also scored on up to 512 training examples.
    """
    from pathlib import Path

    from stillery.cli.show import print_json
    from stillery.jobs.diagnosis.diagnose import diagnose as examine
    from stillery.jobs.output_paths import check_folder
    from stillery.jobs.run_folder import write_json
    from stillery.lines import show

    if json not in (None, "-"):
        check_folder(Path(json).parent, "--json")
    found = examine(run, probe=probe, difference=difference)
    if json == "-":
        print_json(found.to_dict())
        return
    if json is not None:
        write_json(Path(json), found.to_dict())
    for line in found.lines():
        show(line)
