"""Detection of files with tagged sentences, for which a pretrained encoder is fine-tuned as a token classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from stillery.data.readers.conll import is_conll
from stillery.data.readers.files import read_batches
from stillery.data.readers.row_numbers import NESTED
from stillery.data.schema.answer_tags import TAGS, TOKENS, tagging
from stillery.data.schema.columns import find
from stillery.data.schema.roles import TEXT
from stillery.data.schema.split_folders import find_splits, is_folder
from stillery.data.schema.values import holds_lists
from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings

__all__ = ["meant", "refuse_texts"]

FIRST_ROWS = 100


def meant(data: DataSettings) -> bool:
    """Return whether the training file is CoNLL, or has lists of words and no label of the whole text.

    False for a file that cannot be read: its error is reported when it is read in full.
    """
    if data.data is None or data.regression or data.multi_label or data.text_pair is not None or data.query is not None:
        return False
    try:
        path = _first_file(Path(data.data))
        if is_conll(path):
            return True
        batch = next(iter(read_batches(path, FIRST_ROWS, data.encoding)), None)
        return batch is not None and _tags_words(batch, path.name, data)
    except UserError:
        return False


def refuse_texts(path: Path, encoding: str | None, model: str | None = None) -> None:
    """Raise UserError for data without lists of words, which a token classifier needs.

    The error of a file that cannot be read is reported when it is read in full.
    """
    try:
        file = _first_file(path)
        batch = None if is_conll(file) else next(iter(read_batches(file, FIRST_ROWS, encoding)), None)
    except UserError:
        return
    if batch is None or any(_lists(batch, column) for column in batch.schema.names):
        return
    line = (
        f"{model or 'the model'} tags words, and {file.name} has no lists of words (its columns are "
        f"{', '.join(map(repr, batch.schema.names[:10]))}); give sentences as CoNLL or as lists of words"
    )
    if model is not None:
        line += f", or fine-tune it for whole texts first: stillery finetune --model {model} --data FILE"
    raise UserError(line)


def _first_file(path: Path) -> Path:
    folder = find_splits(path) if is_folder(path) else None
    return path if folder is None else (folder.whole or folder.splits["train"])[0]


def _tags_words(batch: pa.RecordBatch, where: str, data: DataSettings) -> bool:
    columns = find(
        batch.schema.names, where, tagging(text=data.text, label=data.label, encoding=data.encoding), need=False
    )
    tags = columns.get(TAGS.name)
    if not _lists(batch, columns[TOKENS.name]):
        return False
    return _lists(batch, tags) if tags is not None else not _has_text(batch.schema.names)


def _lists(batch: pa.RecordBatch, name: str) -> bool:
    """Return whether a column holds lists, or was read as text only because some of its rows are no lists."""
    field = batch.schema.field(name)
    return holds_lists(field.type) or NESTED in (field.metadata or {})


def _has_text(names: Sequence[str]) -> bool:
    return any(name.strip().casefold() in TEXT.usual for name in names)
