"""The benchmark tasks of writing text: data to text, and translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stillery.data.tasks.specification import Hub

__all__ = ["TEXT_TASKS", "TextTask"]

_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_CONVERTED = "refs/convert/parquet"


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """One task of writing text.

    Args:
        name: what `--task` calls it.
        about: what it asks, in a few words.
        prefix: what T5 reads before each source; every encoder-decoder gets it.
        folders: what its folder may be called in a data folder.
        hub: where it is on the hub, if it is there.
        languages: the columns a translation is from and to; None for triples to be put in words.
        plain: whether names in triples are written as words: `cityServed` as `city Served`, `_` as a space.
        metrics: what it is measured by, the first one first.
    """

    name: str
    about: str
    prefix: str
    folders: tuple[str, ...]
    hub: Hub | None = None
    languages: tuple[str, str] | None = None
    plain: bool = False
    metrics: tuple[str, ...] = ("bleu", "chrf")

    package: ClassVar[None] = None
    out_of_domain_for: ClassVar[None] = None


_ALL = (
    TextTask(
        name="dart",
        about="put triples of a table in a sentence, several ways being right",
        prefix="translate Graph to English: ",
        folders=("DART", "dart"),
        hub=Hub(repo="Yale-LILY/dart", folder="default", splits=_SPLITS, revision=_CONVERTED, also=("dart",)),
    ),
    TextTask(
        name="webnlg",
        about="put triples of DBpedia in a sentence, several ways being right",
        prefix="translate Graph to English: ",
        folders=("WebNLG", "webnlg"),
        hub=Hub(repo="GEM/web_nlg", folder="en", splits=_SPLITS, revision=_CONVERTED),
        plain=True,
    ),
    TextTask(
        name="wmt16-en-ro",
        about="translate English news to Romanian",
        prefix="translate English to Romanian: ",
        folders=("WMT16-en-ro", "wmt16-en-ro", "wmt16"),
        hub=Hub(repo="wmt/wmt16", folder="ro-en", splits=_SPLITS, also=("wmt16",)),
        languages=("en", "ro"),
    ),
    TextTask(
        name="multi30k-en-de",
        about="translate English captions of photographs to German",
        prefix="translate English to German: ",
        folders=("Multi30k", "multi30k"),
        hub=Hub(repo="bentrevett/multi30k", folder="default", splits=_SPLITS, revision=_CONVERTED),
        languages=("en", "de"),
    ),
    TextTask(
        name="multi30k-en-fr",
        about="translate English captions of photographs to French",
        prefix="translate English to French: ",
        folders=("Multi30k", "multi30k"),
        languages=("en", "fr"),
    ),
)

TEXT_TASKS: dict[str, TextTask] = {task.name: task for task in _ALL}
"""Every named task of writing text."""
