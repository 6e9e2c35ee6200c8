"""Label new text with a model, streaming from file to file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stillery.data.readers.writer import write_rows
from stillery.data.schema.labels import SEPARATOR, Labels
from stillery.data.schema.new_texts import TextBatch, TextFile, open_texts
from stillery.data.tokens.encode import tokenise
from stillery.errors import ErrorList, UserError
from stillery.evaluate.metrics import predicted
from stillery.evaluate.predictions import named_sets, predict_logits, probabilities
from stillery.jobs.config.run_file import trained_length
from stillery.jobs.config.settings import DataSettings
from stillery.jobs.inputs import check_batch_size, to_device, token_limit
from stillery.jobs.model_kind import refuse_text, writes_text
from stillery.jobs.output_paths import check_file
from stillery.jobs.text_predict import run_text_predict
from stillery.models.load import Loaded, load_classifier
from stillery.progress import bar, quiet, say

__all__ = ["run_predict"]


def run_predict(
    model: str,
    data: Path,
    out: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    max_length: int | None = None,
    batch_size: int = 64,
    source: str | None = None,
    **writing: Any,
) -> int:
    """Write every row of a file with its `prediction` and, for classes, a `probability_NAME` each; return the rows.

    Several labels of a text are joined by `|`. A model that writes text adds an `output`; `source` is its column, and
    `writing` its `prompt` or `prefix` and how it searches, by the names of the settings.
    """
    check_batch_size(batch_size)
    given = {name: value for name, value in writing.items() if value is not None}
    if writes_text(model):
        if text is not None or text_pair is not None:
            name = "--text" if text is not None else "--text-pair"
            raise UserError(f"{name} is for classifiers: a model that writes text has --source")
        if max_length is not None:
            given["max_length"] = max_length
        return run_text_predict(model, data, out, source=source, given=given, batch_size=batch_size)
    refused = ErrorList()
    refuse_text([*(["source"] if source is not None else []), *given], refused)
    refused.raise_any()
    loaded, labels, file = _checked(model, data, out, text, text_pair)
    added, cut = _added(labels), 0
    with write_rows(out, [*file.names, *added], file.types) as writer, bar("predict", file.rows) as shown:
        length = max_length or trained_length(model).get("max_length", DataSettings.max_length)
        limit = token_limit(length, loaded.model.config)
        to_device(loaded.model)
        for rows in file.batches():
            answers, cut_here = _answers(rows, loaded, labels, limit, batch_size)
            kept = {name: file.column(rows, name) for name in file.names}
            writer.write(kept | dict(zip(added, answers, strict=True)))
            cut += cut_here
            shown.advance(len(rows.examples))
    if cut:
        say(f"{cut} of {file.rows} texts are longer than {limit} tokens and were cut")
    return file.rows


def _checked(
    model: str, data: Path, out: Path, text: str | None, text_pair: str | None
) -> tuple[Loaded, Labels, TextFile]:
    """Everything that is needed; all errors are reported together."""
    errors = ErrorList()
    loaded: Loaded | None = None
    file: TextFile | None = None
    with errors.catch():
        check_file(out, "--out", data)
    with errors.catch():
        loaded = load_classifier(model)
        labels = Labels.of_model(loaded.model.config)
    with errors.catch():
        file = open_texts(data, text=text, text_pair=text_pair)
    errors.raise_any()
    assert loaded is not None and file is not None
    clash = [name for name in _added(labels) if name in file.names]
    if clash:
        raise UserError(f"{data.name}: the column {clash[0]!r} is there already; rename or remove it")
    return loaded, labels, file


def _added(labels: Labels) -> list[str]:
    """The names of the columns that are added to a file."""
    return ["prediction"] + ([] if labels.regression else [f"probability_{name}" for name in labels.names])


def _answers(
    rows: TextBatch, loaded: Loaded, labels: Labels, limit: int, batch_size: int
) -> tuple[list[list[Any]], int]:
    """The values of the added columns, and how many texts were cut."""
    with quiet():
        tokens = tokenise(rows.examples, loaded.tokenizer, limit)
    logits = predict_logits(
        loaded.model,
        tokens,
        rows.examples,
        pad_id=int(loaded.tokenizer.pad_token_id),
        batch_size=batch_size,
        description=None,
    )
    guess = predicted(logits, labels)
    if labels.regression:
        return [guess.tolist()], tokens.truncated
    shares = [[round(float(share), 6) for share in column] for column in probabilities(logits, labels).T]
    names = _joined(guess, labels) if labels.multi else [labels.names[index] for index in guess]
    return [names, *shares], tokens.truncated


def _joined(guess: NDArray[Any], labels: Labels) -> list[str]:
    """The names of each row in one text, a JSON list where a name holds what would separate them."""
    sets = named_sets(guess, labels)
    if any(SEPARATOR in name for name in labels.names):
        return [json.dumps(names, ensure_ascii=False) for names in sets]
    return [SEPARATOR.join(names) for names in sets]
