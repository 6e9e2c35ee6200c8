"""Mapping of the outputs of a model to the classes of a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.errors import UserError
from stillery.lines import listed

__all__ = ["Mapped", "map_labels", "meaning", "merged"]

SYNONYMS: Mapping[str, Sequence[str]] = {
    "entailment": ("entails", "entailed", "entail"),
    "not_entailment": ("not_entailed", "non_entailment", "no_entailment"),
    "contradiction": ("contradicts", "contradictory"),
    "negative": ("neg",),
    "positive": ("pos",),
    "paraphrase": ("duplicate", "equivalent", "is_duplicate", "is_paraphrase", "semantically_equivalent"),
    "not_paraphrase": (
        *("not_duplicate", "not_equivalent", "different", "not_semantically_equivalent"),
        *("non_paraphrase", "non_duplicate", "no_paraphrase", "no_duplicate"),
    ),
    "acceptable": ("grammatical",),
    "unacceptable": ("not_acceptable", "ungrammatical", "not_grammatical"),
}
"""Synonyms of class names, by canonical name."""

_CANONICAL = {word: one for one, words in SYNONYMS.items() for word in words}


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """For each class of the task, the model outputs that map to it, and a description in words."""

    groups: tuple[tuple[int, ...], ...]
    note: str

    @property
    def one_to_one(self) -> bool:
        """Whether every class has one output."""
        return all(len(group) == 1 for group in self.groups)


def map_labels(model: Labels, task: Labels, name: str, merges: Mapping[str, str] | None = None) -> Mapped:
    """Map a model's labels to those of the task `name`: by name, by meaning or, without names, by position.

    `merges` maps other classes to one of the task's: an MNLI model's contradiction is RTE's not_entailment.

    >>> mnli = Labels(names=("contradiction", "neutral", "entailment"))
    >>> map_labels(mnli, Labels(names=("entails", "neutral")), "scitail", {"contradiction": "neutral"}).note
    'labels: entailment -> entails; contradiction, neutral -> neutral'
    """
    if model.kind != task.kind:
        raise _other(model, task, name)
    if task.regression:
        return Mapped(groups=((0,),), note="labels: the model's score -> the task's score")
    numbered = _numbers(model, task)
    found = numbered or _meanings(model, task, merges or {})
    groups = tuple(tuple(output for output, place in enumerate(found) if place == index) for index in range(task.count))
    if None in found or not all(groups):
        raise _other(model, task, name)
    said = "; ".join(
        f"{listed(model.names[output] for output in group)} -> {one}"
        for group, one in zip(groups, task.names, strict=True)
    )
    by = "labels by their numbers, as the model has no names for them" if numbered else "labels"
    return Mapped(groups=groups, note=f"{by}: {said}")


def merged(logits: NDArray[Any], groups: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Reduce a model's logits `[n, outputs]` to `[n, task classes]` by the maximum of each group of outputs.

    >>> merged(np.array([[0.1, 0.7, 0.2]]), [[0], [1, 2]]).tolist()
    [[0.1, 0.7]]
    """
    return np.stack([logits[:, list(group)].max(axis=1) for group in groups], axis=1)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def meaning(name: str) -> str:
    """The canonical name of a class, shared by all its synonyms."""
    plain = _plain(name)
    return _CANONICAL.get(plain, plain)


def _numbers(model: Labels, task: Labels) -> list[int | None]:
    """The class of each output if the model's labels are LABEL_0, ... or 0, ..., one per class; else an empty list."""
    if model.count != task.count:
        return []
    if model.default_names:
        return list(range(model.count))
    if set(model.names) == set(map(str, range(model.count))) and set(task.names) != set(model.names):
        return [int(name) for name in model.names]
    return []


def _meanings(model: Labels, task: Labels, merges: Mapping[str, str]) -> list[int | None]:
    """The class of each output by its name; exact names take precedence over synonyms."""
    exact = {_plain(name): index for index, name in enumerate(task.names)}
    meant = {meaning(name): index for index, name in enumerate(task.names)}
    found = [exact.get(_plain(name), meant.get(meaning(name))) for name in model.names]
    if len(set(found) - {None}) < sum(place is not None for place in found):
        # Two names for one class are two classes of a model for a different task.
        return [None]
    return [
        task.names.index(merges[meaning(name)]) if place is None and meaning(name) in merges else place
        for name, place in zip(model.names, found, strict=True)
    ]


def _other(model: Labels, task: Labels, name: str) -> UserError:
    return UserError(
        f"the model's labels ({_listed(model)}) are not those of {name} ({_listed(task)}); use a model fine-tuned on it"
    )


def _listed(labels: Labels) -> str:
    if labels.regression:
        return "a score"
    return listed(labels.names)
