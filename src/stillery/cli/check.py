"""The command `stillery check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.lines import show
from stillery.verbosity import Verbosity, verbosity

__all__ = ["check"]


def check(run_file: Annotated[Path, typer.Argument(help="A run file.", metavar="RUN.toml")]) -> None:
    """Check a run file: settings, model, data, shapes. Trains nothing and writes nothing."""
    from stillery.errors import UserError
    from stillery.jobs.config.run_file import ask, read_toml
    from stillery.jobs.config.settings import Asked, Distill, Finetune
    from stillery.jobs.first_checks import check_first
    from stillery.setting import option_name

    values = read_toml(run_file)
    job = values.get("job", "finetune" if "model" in values else "distill")
    if job not in ("distill", "finetune"):
        raise UserError(f"{run_file}: job is {job!r}: choose from distill, finetune")
    asked: Asked[Any] = ask(Distill if job == "distill" else Finetune, {}, run_file, option_name)
    check_first(asked)
    from stillery.jobs.distill import prepare_distill
    from stillery.jobs.finetune import prepare_finetune

    prepared = prepare_distill(asked) if job == "distill" else prepare_finetune(asked)
    if verbosity() is not Verbosity.QUIET:
        for line in [*prepared.summary(), *prepared.details(), f"{run_file}: ok"]:
            show(line)
