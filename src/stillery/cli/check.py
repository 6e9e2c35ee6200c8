"""`stillery check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["check"]


def check(run_file: Annotated[Path, typer.Argument(help="A run file.", metavar="RUN.toml")]) -> None:
    """Check a run file: settings, model, data, shapes. Trains nothing and writes nothing."""
    from stillery.errors import UserError
    from stillery.jobs.config.run_file import ask, read_toml
    from stillery.jobs.config.settings import Distill, Finetune
    from stillery.jobs.distill import prepare_distill
    from stillery.jobs.finetune import prepare_finetune
    from stillery.setting import option_name

    values = read_toml(run_file)
    job = values.get("job", "finetune" if "model" in values else "distill")
    if job == "distill":
        prepared = prepare_distill(ask(Distill, {}, run_file, option_name))
    elif job == "finetune":
        prepared = prepare_finetune(ask(Finetune, {}, run_file, option_name))
    else:
        raise UserError(f"{run_file}: job is {job!r}: choose from distill, finetune")
    for line in prepared.summary():
        print(line)
    print(f"{run_file}: ok")
