"""Files read with column names and answers by keyword, as the options of the command line name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.data.schema import load_splits as reader
from stillery.data.schema.answer_labels import classification
from stillery.data.schema.answer_texts import generation
from stillery.data.schema.columns import Columns, find
from stillery.data.schema.examples import Examples, Splits
from stillery.data.schema.labels import Labels


def load(path: Path, *, need_labels: bool = True, **asked: Any) -> Splits:
    """The splits of labelled texts."""
    return reader.load(path, classification(**asked), need_answers=need_labels)


def load_file(path: Path, *, need_labels: bool = True, **asked: Any) -> tuple[Examples, Labels | None]:
    """One file of labelled texts."""
    return reader.load_file(path, classification(**asked), need_answers=need_labels)


def load_to_score(path: Path, *, split: str | None = None, **asked: Any) -> Examples:
    """Labelled texts to score on."""
    return reader.load_to_score(path, classification(**asked), split)


def load_inputs(path: Path, **asked: Any) -> Examples:
    """Texts alone."""
    return reader.load_inputs(path, classification(**asked))


def load_generation(path: Path, *, need_targets: bool = True, **asked: Any) -> Splits:
    """The splits of sources and targets."""
    return reader.load(path, generation(**asked), need_answers=need_targets)


def load_generation_to_score(path: Path, *, split: str | None = None, **asked: Any) -> Examples:
    """Sources and targets to score on."""
    return reader.load_to_score(path, generation(**asked), split)


def load_sources(path: Path, **asked: Any) -> Examples:
    """Sources alone."""
    return reader.load_inputs(path, generation(**asked))


def label_columns(names: Any, where: str, *, need: bool = True, **asked: Any) -> Columns:
    """The columns of labelled texts."""
    return find(names, where, classification(**asked), need=need)


def target_columns(
    names: Any, where: str, source: str | None = None, target: str | None = None, *, need: bool = True
) -> Columns:
    """The columns of sources and targets."""
    return find(names, where, generation(source, target), need=need)
