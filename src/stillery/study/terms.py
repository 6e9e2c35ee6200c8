"""The terms that methods are compared on: equal for all rows of a table, unless the plan varies one on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.run_file import read_toml
from stillery.jobs.config.settings import MethodSettings, setting_names
from stillery.study.cells import PlannedCell, PlannedTable
from stillery.study.folder import StudyFolder
from stillery.study.results import Key
from stillery.train.settings import Storing

__all__ = ["differences"]

_OWN = {
    *setting_names(MethodSettings), *setting_names(Storing), "options", "stored_stages", "processes", "job",
    "checkpoint_seconds",
}  # fmt: skip
"""What a method decides, or what changes nothing about what is learnt."""

_WITH = {
    "content of teacher": "teacher", "reuse": "head", "projector": "head", "allow_custom_head": "head",
    "copy_layers": "init", "copy_encoder_layers": "init", "copy_decoder_layers": "init", "init_from": "init",
}  # fmt: skip
"""Settings that come with another one."""


def differences(
    folder: StudyFolder, table: PlannedTable, finished: Mapping[Key, PlannedCell], vary: Sequence[str]
) -> list[str]:
    """In which settings, data, teachers and steps the runs of a table differ, as their run folders say.

    What the plan varies on purpose is named as that; anything else is a warning, since the rows cannot be compared.
    """
    meant: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    for task in table.tasks:
        for seed in sorted({key[2] for key in finished}):
            cells = {key[1]: cell for key, cell in finished.items() if (key[0], key[2]) == (task, seed)}
            terms = {row: _terms(folder, cell) for row, cell in cells.items()}
            for name in sorted({name for one in terms.values() for name in one}):
                values = {row: one.get(name) for row, one in terms.items()}
                if len({str(value) for value in values.values()}) > 1:
                    said = ", ".join(f"{row} {value}" for row, value in values.items())
                    (meant if _WITH.get(name, name) in vary else found).setdefault(name, []).append(said)
    lines = [f"Varied on purpose: {name} ({said[0]})." for name, said in meant.items()]
    return lines + [
        f"Warning: the rows differ in {name} ({said[0]}), so they are not on equal terms."
        for name, said in found.items()
    ]


def _terms(folder: StudyFolder, cell: PlannedCell) -> dict[str, Any]:
    """All that a run has in common with those it is compared with."""
    run = folder.run(cell)
    try:
        values = read_toml(run / "run.toml")
    except UserError:
        return {}
    prints, tried = values.pop("fingerprints", {}), folder.tried(cell)
    found = {name: value for name, value in values.items() if name not in _OWN and name not in tried}
    found |= {f"content of {name}": prints[name] for name in ("data", "teacher") if name in prints}
    training = folder.metrics(cell.name).get("training", {})
    if values.get("patience") is None:
        found["steps"] = training.get("steps")
    return found
