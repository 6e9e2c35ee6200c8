"""The texts that a run was scored on, read again from its data: predictions are stored by id, without the texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings, GenerationSettings, InputSettings, setting_names
from stillery.jobs.kinds.find import kind_of_model
from stillery.models.model_folder import model_in

__all__ = ["Texts"]


class Texts:
    """Reads the examples of runs, those of the same data once."""

    def __init__(self) -> None:
        self._read: dict[str, Any] = {}

    def of(self, folder: Path, values: Mapping[str, Any], split: str | None) -> tuple[dict[str, str], str]:
        """Return the texts of a run's scored split by id, or none and the reason.

        Args:
            folder: the run folder.
            values: its run file.
            split: the split that it was scored on.
        """
        inputs = InputSettings(data=_group(DataSettings, values), generation=_group(GenerationSettings, values))
        data = inputs.data
        key = repr((inputs, split))
        if key not in self._read:
            try:
                self._read[key] = self._examples(folder, inputs, split), ""
            except (UserError, OSError, KeyError, ValueError) as error:
                where = data.task or data.data or "the data"
                self._read[key] = {}, f"the texts of {Path(where).name} cannot be read here ({_short(error)})"
        found: tuple[dict[str, str], str] = self._read[key]
        return found

    def _examples(self, folder: Path, inputs: InputSettings, split: str | None) -> dict[str, str]:
        model = model_in(folder) or folder
        read = kind_of_model(str(model), inputs.data).read(inputs, None)
        scored = read.scored.get(split or "") or read.scored.get("test") or read.scored["dev"]
        columns = [column.to_pylist() for column in scored.examples.inputs.values()]
        return {
            name: "\n".join(_line(one) for one in row)
            for name, row in zip(scored.examples.ids, zip(*columns, strict=True), strict=True)
        }


def _group(group: type, values: Mapping[str, Any]) -> Any:
    known = {item.name for item in dataclasses.fields(group)}
    return group(**{name: values[name] for name in setting_names(group) if name in values and name in known})


def _line(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 160 else f"{text[:160]}…"
