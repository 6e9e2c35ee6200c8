"""What of a plan is kept in a study's folder, so that its tables can be made again without its data and models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from stillery.atomic import atomic_file
from stillery.errors import UserError
from stillery.study.cells import PlannedCell, PlannedTable, PlannedTeacher, planned
from stillery.study.plan import Plan, read_plan
from stillery.study.plan_lines import Lines
from stillery.study.results import Published, Row

__all__ = ["keep_tables", "kept_tables"]

_FILE = "planned.json"


def keep_tables(folder: Path, plan: Plan, tables: Sequence[PlannedTable]) -> None:
    """Write what the tables of a study are made of beside its plan."""
    value = {
        "title": plan.title, "seeds": plan.seeds, "vary": plan.vary, "select": plan.select,
        "baselines": plan.baselines, "strategies": plan.strategies, "margin": plan.margin,
        "published": [asdict(one) for one in plan.published],
        "tables": [_table(one) for one in tables],
    }  # fmt: skip
    text = json.dumps(value, indent=1, default=dict) + "\n"
    if not (folder / _FILE).is_file() or (folder / _FILE).read_text(encoding="utf-8") != text:
        with atomic_file(folder / _FILE) as part:
            part.write_text(text, encoding="utf-8")


def kept_tables(folder: Path) -> tuple[Plan, list[PlannedTable]]:
    """Read the plan and the tables of a study from its folder, wherever that was copied to.

    The plan has what tables need, and the cells no settings, which their run folders have. A study of an earlier
    version is planned again, which needs its data and models.
    """
    file = folder / _FILE
    try:
        text = (folder / "plan.toml").read_text(encoding="utf-8")
        if not file.is_file():
            return _planned_again(folder)
        value = json.loads(file.read_text(encoding="utf-8"))
        plan = Plan(
            file=folder / "plan.toml", text=text, lines=Lines(text), title=value["title"], tasks=(), teachers=(),
            methods=(), shared={}, student={}, seeds=tuple(value["seeds"]), vary=tuple(value["vary"]),
            select=value["select"], baselines=None if value["baselines"] is None else tuple(value["baselines"]),
            strategies=tuple(value["strategies"]), margin=value["margin"],
            published=tuple(Published(**one) for one in value["published"]),
        )  # fmt: skip
        return plan, [_read(one) for one in value["tables"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}: the plan of this study cannot be read ({error}); run its command again, which writes it"
        ) from None


def _planned_again(folder: Path) -> tuple[Plan, list[PlannedTable]]:
    plan = read_plan(folder / "plan.toml")
    try:
        cells, tables = planned(plan)
    except UserError:
        cells, tables = [], []
    known = set(json.loads((folder / "cells.json").read_text(encoding="utf-8")))
    if not known <= {cell.name for cell in cells}:
        raise UserError(
            f"{folder}: a study of an earlier version, whose data and models are not where its plan names them; run "
            "its command once more: it trains nothing that is finished, and writes what is missing"
        )
    return plan, tables


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
            [*key, [{"name": cell.name, "trial": dict(cell.trial), "teacher": cell.teacher} for cell in cells]]
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
                # Settings are in the run folders; no table reads them from here.
                PlannedCell(asked=cast(Any, None), task=task, row=row, seed=seed, **cell)
                for cell in cells
            )
            for task, row, seed, cells in value["trials"]
        },
    )


def _row(value: dict[str, Any]) -> Row:
    return Row(**{**value, "seeds": None if value["seeds"] is None else tuple(value["seeds"])})
