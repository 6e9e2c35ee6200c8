"""The tables of a plan, kept in the study's folder, so that they can be filled again without its data and models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from stillery.atomic import atomic_file
from stillery.errors import UserError
from stillery.small_files import read_json
from stillery.study.cells import PlannedCell, PlannedTable, PlannedTeacher, planned
from stillery.study.plan import Plan, read_plan
from stillery.study.results import Row

__all__ = ["keep_tables", "kept_tables", "table_folder"]

_FILE = "planned.json"
_KEY = ("task", "row", "seed")
_NOT_KEPT = ("asked", "search", *_KEY)
"""Settings are in the run folders."""


def table_folder(study: Path, name: str) -> Path:
    """Return the folder of the written files of a table; the only one of a study has no name."""
    place = study / "tables"
    plain = "".join(character if character.isalnum() or character in ".-" else "-" for character in name)
    return place / plain if name else place


def keep_tables(folder: Path, tables: Sequence[PlannedTable]) -> None:
    """Write the tables of a study beside its plan: which cells fill them."""
    text = json.dumps([_table(one) for one in tables], indent=1, default=dict) + "\n"
    if not (folder / _FILE).is_file() or (folder / _FILE).read_text(encoding="utf-8") != text:
        with atomic_file(folder / _FILE) as part:
            part.write_text(text, encoding="utf-8")


def kept_tables(folder: Path) -> tuple[Plan, list[PlannedTable]]:
    """Read the plan and the tables of a study from its folder, wherever that was copied to.

    The cells have no settings, which are in their run folders. A study of an earlier version is planned again, which
    needs its data and models.
    """
    file = folder / _FILE
    plan = read_plan(folder / "plan.toml")
    try:
        if not file.is_file():
            return _planned_again(folder)
        return plan, [_read(one) for one in read_json(file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: cannot be read ({error}); run the command of the study again, which writes it"
        ) from None


def _planned_again(folder: Path) -> tuple[Plan, list[PlannedTable]]:
    plan = read_plan(folder / "plan.toml")
    try:
        cells, tables = planned(plan)
    except UserError:
        cells, tables = [], []
    known = set(read_json(folder / "cells.json"))
    if not known <= {cell.name for cell in cells}:
        raise UserError(
            f"{folder}: a study of an earlier version, whose data and models are not where its plan names them; run "
            "its command once more: it trains nothing that is finished, and writes what is missing"
        )
    return plan, tables


def _kept_fields() -> list[str]:
    return [item.name for item in fields(PlannedCell) if item.name not in _NOT_KEPT]


def _table(one: PlannedTable) -> dict[str, Any]:
    return {
        "name": one.name,
        "tasks": one.tasks,
        "rows": [asdict(row) for row in one.rows],
        "teachers": [
            {"row": asdict(teacher.row), "cells": dict(teacher.cells), "folders": list(teacher.folders)}
            for teacher in one.teachers
        ],
        "trials": [
            [*key, [{name: getattr(cell, name) for name in _kept_fields()} for cell in cells]]
            for key, cells in one.trials.items()
        ],
    }


def _read(value: dict[str, Any]) -> PlannedTable:
    return PlannedTable(
        name=value["name"],
        tasks=tuple(value["tasks"]),
        rows=tuple(_row(one) for one in value["rows"]),
        teachers=tuple(
            PlannedTeacher(row=_row(one["row"]), cells=one["cells"], folders=dict.fromkeys(one["folders"], ""))
            for one in value["teachers"]
        ),
        trials={
            (task, row, seed): tuple(
                # No table reads the settings of a cell.
                PlannedCell(asked=cast(Any, None), **dict(zip(_KEY, (task, row, seed), strict=True)), **cell)
                for cell in cells
            )
            for task, row, seed, cells in value["trials"]
        },
    )


def _row(value: dict[str, Any]) -> Row:
    return Row(**{**value, "seeds": None if value["seeds"] is None else tuple(value["seeds"])})
