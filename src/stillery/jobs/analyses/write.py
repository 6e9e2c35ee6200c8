"""Carry out an analysis and write its files: NAME.json, NAME.svg and NAME.png."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stillery.analyse.finding import Finding
from stillery.atomic import atomic_file
from stillery.errors import ErrorList, UserError, nearest
from stillery.jobs.analyses.settings import ANALYSES, Analysis, Request
from stillery.jobs.config.settings import DataSettings, GenerationSettings, setting_names
from stillery.jobs.first_checks import check_scoring
from stillery.jobs.output_paths import check_folder, check_new
from stillery.pictures.draw import check_can_draw, write_pictures
from stillery.setting import Named, make

__all__ = ["analysed", "find_analysis"]


def find_analysis(name: str) -> Analysis:
    """Return an analysis by name."""
    if name not in ANALYSES:
        raise UserError(f"unknown analysis {name!r}: {nearest(name, ANALYSES)}")
    return ANALYSES[name]


def analysed(
    name: str,
    subjects: Sequence[str],
    values: Mapping[str, Any],
    out: Path | None,
    *,
    overwrite: bool = False,
    named: Named = str,
) -> Finding:
    """Carry out an analysis of models or runs with these settings, and write its files to `out` if it is given.

    Names, paths and values are checked before a model is loaded.
    """
    analysis, errors = find_analysis(name), ErrorList()
    own, shared = setting_names(analysis.settings), [*setting_names(DataSettings), *setting_names(GenerationSettings)]
    given = {key: value for key, value in values.items() if value is not None}
    settings: Any
    settings, _ = make(
        analysis.settings, {key: value for key, value in given.items() if key in own or key not in shared}, named,
        errors,
    )  # fmt: skip
    data = {key: value for key, value in given.items() if key in shared and key not in own}
    for key in data if not analysis.reads else ():
        errors.add(f"{named(key)} is for analyses that run models: {name} reads finished runs")
    if len(subjects) < analysis.least or (analysis.most is not None and len(subjects) > analysis.most):
        errors.add(f"{name} takes {analysis.metavar}: {len(subjects)} given")
    if out is not None:
        with errors.catch():
            check_can_draw()
        with errors.catch():
            check_folder(out, named("out"))
            if not overwrite:
                check_new(analysis.files(out), named("out"))
    if analysis.reads:
        with errors.catch():
            models = [*subjects, getattr(settings, "teacher", None)]
            check_scoring(models, data.get("data"), data.get("data_dir"))
    errors.raise_any()
    found = analysis.run(Request(subjects=subjects, own=settings, data=data))
    record = {"subjects": list(subjects), **dataclasses.asdict(settings), **data, **found.settings,
              "version": version("stillery")}  # fmt: skip
    found = dataclasses.replace(found, settings={key: value for key, value in record.items() if value is not None})
    if out is not None:
        _write(analysis, found, out)
    return found


def _write(analysis: Analysis, found: Finding, out: Path) -> None:
    """Write the picture, then the data, so that a NAME.json always has its picture beside it."""
    block = found.block()
    write_pictures(block["spec"], out / analysis.name)
    with atomic_file(out / f"{analysis.name}.json") as part:
        part.write_text(json.dumps(block, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
