"""Specifications of the text generation benchmarks: data-to-text and translation."""

from __future__ import annotations

from stillery.data.tasks.specification import GenerationTask, Hub

__all__ = ["GENERATION_TASKS"]

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_CONVERTED = "refs/convert/parquet"

_ALL = (
    GenerationTask(
        name="dart",
        about="put triples of a table in a sentence, several ways being right",
        prefix="translate Graph to English: ",
        folders=("DART", "dart"),
        hub=Hub(repo="Yale-LILY/dart", folder="default", splits=_SPLITS, revision=_CONVERTED, also=("dart",)),
    ),
    GenerationTask(
        name="webnlg",
        about="put triples of DBpedia in a sentence, several ways being right",
        prefix="translate Graph to English: ",
        folders=("WebNLG", "webnlg"),
        hub=Hub(repo="GEM/web_nlg", folder="en", splits=_SPLITS, revision=_CONVERTED),
        plain=True,
    ),
    GenerationTask(
        name="wmt16-en-ro",
        about="translate English news to Romanian",
        prefix="translate English to Romanian: ",
        folders=("WMT16-en-ro", "wmt16-en-ro", "wmt16"),
        hub=Hub(repo="wmt/wmt16", folder="ro-en", splits=_SPLITS, also=("wmt16",)),
        languages=("en", "ro"),
    ),
    GenerationTask(
        name="multi30k-en-de",
        about="translate English captions of photographs to German",
        prefix="translate English to German: ",
        folders=("Multi30k", "multi30k"),
        hub=Hub(repo="bentrevett/multi30k", folder="default", splits=_SPLITS, revision=_CONVERTED),
        languages=("en", "de"),
    ),
    GenerationTask(
        name="multi30k-en-fr",
        about="translate English captions of photographs to French",
        prefix="translate English to French: ",
        folders=("Multi30k", "multi30k"),
        languages=("en", "fr"),
    ),
)

GENERATION_TASKS: dict[str, GenerationTask] = {task.name: task for task in _ALL}
"""All named text generation tasks."""
