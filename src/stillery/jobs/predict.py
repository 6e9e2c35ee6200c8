"""Add a model's predictions to the rows of a file, streaming from file to file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stillery.data.readers.writer import write_rows
from stillery.errors import ErrorList, UserError
from stillery.evaluation.inference_mode import to_device
from stillery.jobs.config.run_file import trained_reading, trained_search
from stillery.jobs.config.settings import (
    DataSettings,
    GenerationSettings,
    InputSettings,
    SearchSettings,
    setting_names,
)
from stillery.jobs.evaluate import check_batch_size
from stillery.jobs.kinds.base import Reader
from stillery.jobs.kinds.find import kind_of_model, other_kind_meant
from stillery.jobs.kinds.refuse import refuse
from stillery.jobs.load_to_score import load_to_score
from stillery.jobs.output_paths import check_file
from stillery.models.load_model import Loaded
from stillery.progress import bar, say
from stillery.setting import make, option_name

__all__ = ["run_predict"]


def run_predict(
    model: str, data: Path, out: Path, *, batch_size: int = 64, overwrite: bool = False, **settings: Any
) -> int:
    """Write every row of a file with the model's predictions for it; return the number of rows.

    A classifier adds its `prediction` and, for classes, a `probability_NAME` each; several labels of a text are joined
    by `|`. A token classifier adds a `prediction` for each word, a model that generates text an `output`, one that
    embeds texts an `embedding`. `settings` are input and search settings, by name; the others are inherited from the
    model's own run. An existing file is refused or, with `overwrite`, replaced once all rows are written.
    """
    check_batch_size(batch_size)
    given, errors = {name: value for name, value in settings.items() if value is not None}, ErrorList()
    inputs = _inputs(trained_reading(model) | trained_search(model) | given, errors)
    kind = kind_of_model(model, inputs.data)
    asked = _inputs(given, ErrorList())
    refuse(kind, (asked.data, asked.generation, asked.search), errors, frozenset(given))
    loaded: Loaded | None = None
    file: Any = None
    encoding: Any = None
    with errors.catch():
        check_file(out, "--out", data, overwrite=overwrite)
    with errors.catch():
        loaded = load_to_score(kind, model, inputs.data)
    with errors.catch():
        other = other_kind_meant(kind, model, replace(inputs.data, data=str(data)))
        if other is not None:
            raise UserError(
                f"{data.name} is for {other.name}, and {model} for {kind.name}: give {data.name} to a model for "
                f"{other.name}, or other data to this one"
            )
        file = kind.predicting.open(data, inputs)
    if loaded is not None:
        with errors.catch():
            encoding = kind.encoding(inputs, [loaded.model.config], loaded.tokenizer)
    if loaded is not None and file is not None:
        clash = [name for name in kind.predicting.columns(loaded) if name in file.names]
        for name in clash[:1]:
            errors.add(f"{data.name}: the column {name!r} is there already; rename or remove it")
    errors.raise_any()
    assert loaded is not None
    for note in encoding.notes:
        say(note)
    reader = Reader(loaded=loaded, encoding=encoding, batch_size=batch_size, description=data.name)
    to_device(loaded.model)
    predicting, cut = kind.predicting, 0
    added = predicting.columns(loaded)
    with write_rows(out, [*file.names, *added], file.types) as writer, bar(predicting.verb, file.rows) as shown:
        for rows in file.batches(predicting.at_once(batch_size)):
            answers, cut_here = predicting.rows(reader, rows)
            kept = {name: file.column(rows, name) for name in file.names}
            writer.write(kept | dict(zip(added, answers, strict=True)))
            cut += cut_here
            shown.advance(len(rows.examples))
    if cut:
        say(f"{cut} of {file.rows} {predicting.noun} are longer than {encoding.max_length} tokens and were cut")
    return int(file.rows)


def _inputs(values: Mapping[str, Any], errors: ErrorList) -> InputSettings:
    """Return the input and search settings with these values."""
    data, _ = make(DataSettings, _of(DataSettings, values), option_name, errors)
    generation, _ = make(GenerationSettings, _of(GenerationSettings, values), option_name, errors)
    search, _ = make(SearchSettings, _of(SearchSettings, values), option_name, errors)
    return InputSettings(data=data, generation=generation, search=search)


def _of(group: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in setting_names(group) if name in values}
