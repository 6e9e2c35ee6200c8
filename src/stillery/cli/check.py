"""`stillery check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["check"]


def check(run_file: Annotated[Path, typer.Argument(help="A run file.", metavar="RUN.toml")]) -> None:
    """Check a run file: settings, model, data, shapes. Trains nothing and writes nothing."""
    from stillery.faults import Fault
    from stillery.jobs.settings import Distill, Finetune, read_toml, resolve

    values = read_toml(run_file)
    where = f"{run_file}: "
    job = values.get("job", "distill" if "teacher" in values else "finetune" if "model" in values else None)
    if job == "distill":
        from stillery.jobs.distill import prepare_distill

        prepared = prepare_distill(resolve(Distill, values, where))
    elif job == "finetune":
        from stillery.jobs.finetune import prepare_finetune

        prepared = prepare_finetune(resolve(Finetune, values, where))
    else:
        raise Fault(f"{where}job is {job!r}: say distill or finetune, and name the teacher or the model")
    for line in prepared.summary():
        print(line)
    print(f"{run_file}: ok")
