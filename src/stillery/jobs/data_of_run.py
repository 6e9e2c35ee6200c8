"""The data of a finished run, to score other models on its examples."""

from __future__ import annotations

from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.run_file import run_of
from stillery.jobs.config.run_paths import ELSEWHERE
from stillery.jobs.config.settings import DataSettings, setting_names

__all__ = ["data_of_run"]


def data_of_run(model: str) -> dict[str, Any]:
    """Return the settings by which the run of a model reads its data; raise UserError where they are not known."""
    values = run_of(model)
    if {"data", "data_dir"} & set(values.get(ELSEWHERE, ())):
        raise UserError(f"{model}: the data of its run is not where it was: give it with --data or --data-dir")
    found = {name: values[name] for name in setting_names(DataSettings) if name in values}
    if not {"data", "task"} & found.keys():
        raise UserError(f"{model}: no run, so its dev split is not known: give examples with --data or --task")
    # Lengths are each model's own; labels are needed to score, whether the run had any or not.
    return {name: value for name, value in found.items() if name not in ("max_length", "unlabelled")}
