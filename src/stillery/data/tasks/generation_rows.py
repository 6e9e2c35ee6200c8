"""Reader of one split of a text generation task from the files of its benchmark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import at
from stillery.data.schema.examples import Examples, columns_of
from stillery.data.schema.values import TEXTS
from stillery.data.tasks.benchmark_texts import filled, texts_of
from stillery.data.tasks.layouts import Files
from stillery.data.tasks.specification import GenerationTask
from stillery.errors import UserError

__all__ = ["linearised", "read_split"]

Triple = Sequence[str]
WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def read_split(task: GenerationTask, split: str, files: Files) -> tuple[Examples, str]:
    """Read the rows of a split with a source and a target, and return them with a note on skipped rows.

    Empty texts among several references are skipped too.
    """
    read = _translations if task.languages is not None else _described
    chunks: list[tuple[pa.Array, pa.Array]] = []
    for path in files.paths:
        before = 0
        for batch in read_batches(path):
            chunks.append(read(task, batch, path, before))
            before += batch.num_rows
    sources = pa.concat_arrays([some for some, _ in chunks])
    references = pa.concat_arrays([some for _, some in chunks])
    sizes = pc.list_value_length(references).to_numpy()
    kept = np.flatnonzero(filled(sources) & (sizes > 0))
    if not len(kept):
        raise UserError(f"{files.paths[0]}: no row has a source and a target; copy the file again")
    chosen = pa.array(kept)
    references = references.take(chosen)
    left = len(sources) - len(kept)
    examples = Examples(
        ids=tuple(f"{task.name}-{split}-{row + 1}" for row in kept),
        columns=columns_of(
            source=sources.take(chosen),
            target=pc.list_element(references, 0),
            references=references if task.languages is None else None,
        ),
        source=f"{task.name} {split}",
    )
    return examples, f"{split} without {left} rows that lack a source or a target" if left else ""


def linearised(triples: Sequence[Triple], plain: bool = False) -> str:
    """Linearise triples, with the markers of subject, relation and object used for T5 and BART.

    With `plain`, names are written as words.

    >>> linearised([("Newberry College", "NICKNAME", "Wolves"), ("Newberry College", "STATE", "South Carolina")])
    '<H> Newberry College <R> NICKNAME <T> Wolves <H> Newberry College <R> STATE <T> South Carolina'
    >>> linearised([("Aarhus_Airport", "cityServed", '"Aarhus, Denmark"')], plain=True)
    '<H> Aarhus Airport <R> city Served <T> Aarhus, Denmark'
    """
    if plain:
        triples = [
            (_worded(one), _worded(WORDS.sub(" ", relation)), _worded(other)) for one, relation, other in triples
        ]
    return " ".join(f"<H> {subject} <R> {relation} <T> {thing}" for subject, relation, thing in triples)


def _worded(name: str) -> str:
    return " ".join(name.strip().strip('"').replace("_", " ").split())


def _translations(task: GenerationTask, batch: pa.RecordBatch, path: Path, before: int) -> tuple[pa.Array, pa.Array]:
    """Read the columns of the two languages, or the two fields of a column `translation`."""
    assert task.languages is not None
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    pairs = columns.get("translation")
    if pairs is not None and pa.types.is_struct(pairs.type):
        columns |= {field.name: pc.struct_field(pairs, field.name) for field in pairs.type}
    missing = [name for name in task.languages if name not in columns]
    if missing:
        raise UserError(
            f"{path}: {task.name} needs a column {missing[0]!r}; the file has {', '.join(batch.schema.names)}"
        )
    source, target = (texts_of(columns[name], name, path) for name in task.languages)
    there = filled(target)
    offsets = np.concatenate([[0], np.cumsum(there)]).astype(np.int32)
    return source, pa.ListArray.from_arrays(pa.array(offsets), target.filter(pa.array(there)))


def _described(task: GenerationTask, batch: pa.RecordBatch, path: Path, before: int) -> tuple[pa.Array, pa.Array]:
    """Read linearised triples, and their reference sentences."""
    names = batch.schema.names
    column = next((name for name in ("tripleset", "input") if name in names), None)
    if column is None or not {"references", "annotations", "target"} & set(names):
        raise UserError(
            f"{path}: {task.name} needs the columns tripleset and references; the file has {', '.join(names)}"
        )
    sources, references = [], []
    for row, record in enumerate(batch.to_pylist(), start=before + 1):
        try:
            sources.append(linearised(_triples(record[column]), task.plain))
        except (ValueError, TypeError):
            raise UserError(
                f"{at(path.name, row)}: column {column!r} is no list of triples such as "
                '[["subject", "relation", "object"]]'
            ) from None
        references.append([text for text in _sentences(record) if isinstance(text, str) and text.strip()])
    return pa.array(sources, type=pa.large_string()), pa.array(references, type=TEXTS)


def _triples(value: Any) -> list[Triple]:
    """Parse the triples of a row: a list, JSON, or texts such as `subject | relation | object`."""
    found = json.loads(value) if isinstance(value, str) else value or []
    triples = [one.split(" | ") if isinstance(one, str) else one for one in found]
    if any(len(triple) != 3 or not all(isinstance(one, str) for one in triple) for triple in triples):
        raise ValueError("not triples")
    return triples


def _sentences(record: dict[str, Any]) -> Sequence[Any]:
    """The references; on the hub, DART has them in its annotations, and WebNLG has an additional single target."""
    found = record.get("references") or []
    annotated = record.get("annotations")
    if not found and isinstance(annotated, dict):
        found = annotated.get("text") or []
    elif not found and annotated:
        found = [one.get("text") for one in annotated]
    return _listed(found) or [record.get("target")]


def _listed(value: Any) -> list[Any]:
    """A list, or one parsed from the JSON in a .csv cell; any other text becomes a list of one."""
    if not isinstance(value, str):
        return list(value)
    try:
        found = json.loads(value)
    except ValueError:
        return [value]
    return found if isinstance(found, list) else [value]
