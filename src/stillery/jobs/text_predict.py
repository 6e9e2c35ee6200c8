"""Have a model write texts for new sources, streaming from file to file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillery.data.readers.writer import write_rows
from stillery.data.schema.new_texts import TextFile, open_texts
from stillery.data.schema.text_examples import TextExamples
from stillery.errors import ErrorList
from stillery.evaluate.generate import generate
from stillery.jobs.config.run_file import trained_reading, trained_search
from stillery.jobs.config.settings import DataSettings, GenerationSettings, SearchSettings, setting_names
from stillery.jobs.inputs import to_device
from stillery.jobs.output_paths import check_file
from stillery.jobs.text_inputs import Reading
from stillery.jobs.text_scores import decoding_of
from stillery.models.load import Loaded, load_generator
from stillery.progress import bar, quiet, say
from stillery.setting import make, option_name

__all__ = ["run_text_predict"]

OUTPUT = "output"
"""The column that is added."""
# Batches of the model in a batch of the file: texts of like length are written together.
_TOGETHER = 4


def run_text_predict(
    model: str, data: Path, out: Path, *, source: str | None, given: Mapping[str, Any], batch_size: int
) -> int:
    """Write every row of a file with what the model writes for its source as `output`; return the rows.

    `given` are settings of reading and searching by name; what it leaves open is as the model's run has it.
    """
    errors = ErrorList()
    loaded: Loaded | None = None
    file: TextFile | None = None
    with errors.catch():
        check_file(out, "--out", data)
    with errors.catch():
        loaded = load_generator(model)
    with errors.catch():
        file = open_texts(data, text=source, sources=True)
    values = trained_reading(model) | trained_search(model) | dict(given)
    reads, _ = make(DataSettings, _of(DataSettings, values), option_name, errors)
    writes, _ = make(GenerationSettings, _of(GenerationSettings, values), option_name, errors)
    searches, _ = make(SearchSettings, _of(SearchSettings, values), option_name, errors)
    if loaded is not None:
        with errors.catch():
            reading = Reading.of(reads, writes, [loaded.model.config])
            decoding = decoding_of(searches, reading, [loaded.model.config])
    if file is not None and OUTPUT in file.names:
        errors.add(f"{data.name}: the column {OUTPUT!r} is there already; rename or remove it")
    errors.raise_any()
    assert loaded is not None and file is not None
    to_device(loaded.model)
    cut = 0
    with write_rows(out, [*file.names, OUTPUT], file.types) as writer, bar("write", file.rows) as shown:
        for rows in file.batches(_TOGETHER * batch_size):
            some = rows.examples
            examples = TextExamples(ids=some.ids, sources=some.texts, targets=None, origin=some.source)
            with quiet():
                prompts = reading.prompts(examples, loaded.tokenizer, data.name)
            texts = generate(
                loaded.model, loaded.tokenizer, prompts, decoding=decoding, batch_size=batch_size, description=None
            )
            writer.write({name: file.column(rows, name) for name in file.names} | {OUTPUT: texts})
            cut += prompts.truncated
            shown.advance(len(some))
    if cut:
        say(f"{cut} of {file.rows} sources are longer than {reading.max_source} tokens and were cut")
    return file.rows


def _of(group: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in setting_names(group) if name in values}
