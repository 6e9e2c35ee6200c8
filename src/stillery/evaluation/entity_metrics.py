"""Metrics of token classification: precision, recall and F1 of entities, and the accuracy of tags.

Everything is computed from counts per sentence, so that intervals can be a bootstrap over sentences. seqeval is not
used because it scores whole files: a thousand draws would read all tags a thousand times. A test checks that both
agree, for each scheme and type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.errors import UserError, nearest
from stillery.evaluation import paired
from stillery.evaluation.entities import OUTSIDE, Entities, TagSet, entities, scheme_of, strict_entities
from stillery.evaluation.measures import FromSums
from stillery.lines import listed

__all__ = [
    "ENTITY_METRICS",
    "TagScores",
    "Tagged",
    "one_tag",
    "sentence_counts",
    "tag_agreement",
    "tag_agreement_evaluation",
    "tag_difference",
    "tag_evaluation",
    "tag_measure",
    "tag_scores",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tagged:
    """The gold tags of the words of sentences.

    `tags` has the tag of each word, sentence after sentence; those of sentence i are `offsets[i]:offsets[i + 1]`.
    """

    tags: Ints
    offsets: Ints
    tag_set: TagSet

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def sentence(self) -> Ints:
        """The index of the sentence of each word."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def scheme(self) -> str:
        """The tagging scheme of the gold tags."""
        return scheme_of(self.tag_set, self.tags, self.offsets)

    def entities_in(self, tags: Ints, strict: bool) -> Entities:
        """Extract entities from other tags of the same words, as conlleval counts them or strictly by the scheme."""
        if strict:
            return strict_entities(tags, self.offsets, self.tag_set, self.scheme)
        return entities(tags, self.offsets, self.tag_set)


@dataclass(frozen=True, kw_only=True, eq=False)
class TagScores:
    """Metrics of predicted tags, in percent, and the 95% interval [low, high] of each.

    `types` has precision, recall and F1 of each entity type, the interval of F1, and the number of gold entities.
    """

    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    types: Mapping[str, Mapping[str, Any]]


def _ratio(above: Floats, below: Floats) -> Floats:
    # Undefined values count as 0, as in seqeval.
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Counts:
    """Sums over sentences, of each resample `[draws]` or of all sentences `[1]`.

    `hits`, `found` and `there` count correct, predicted and gold entities; `right` counts the correctly tagged words
    among `words`.
    """

    hits: Floats
    found: Floats
    there: Floats
    right: Floats
    words: Floats

    @property
    def precision(self) -> Floats:
        """The share of predicted entities that are correct."""
        return _ratio(self.hits, self.found)

    @property
    def recall(self) -> Floats:
        """The share of gold entities that were found."""
        return _ratio(self.hits, self.there)

    @property
    def f1(self) -> Floats:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.hits, self.found + self.there)

    @property
    def accuracy(self) -> Floats:
        """The share of correctly tagged words."""
        return _ratio(self.right, self.words)


_Measure = Callable[[_Counts], Floats]

ENTITY_METRICS: Mapping[str, tuple[_Measure, bool]] = {
    "f1": (lambda counts: counts.f1, False),
    "precision": (lambda counts: counts.precision, False),
    "recall": (lambda counts: counts.recall, False),
    "accuracy": (lambda counts: counts.accuracy, False),
    "f1_strict": (lambda counts: counts.f1, True),
    "precision_strict": (lambda counts: counts.precision, True),
    "recall_strict": (lambda counts: counts.recall, True),
}
"""Metrics of tags, and whether entities only count if they strictly follow the tagging scheme.

All except `accuracy`, which is over words, are micro-averaged over whole entities of all types.
"""

DEFAULT_METRICS = ("f1", "precision", "recall", "accuracy")
PLAIN_METRICS = ("accuracy",)


class _Measured:
    """Per-sentence counts of predicted tags, and their sums on resamples of the sentences."""

    def __init__(self, gold: Tagged, guess: Ints, strict: bool = False) -> None:
        types = len(gold.tag_set.types) if gold.tag_set.marks_entities else 0
        self.rows = np.zeros((len(gold), types, 3))
        if types:
            there, found = gold.entities_in(gold.tags, strict), gold.entities_in(guess, strict)
            right = found.within(there)
            _count(self.rows[:, :, 0], gold, found.start[right], found.type[right])
            _count(self.rows[:, :, 1], gold, found.start, found.type)
            _count(self.rows[:, :, 2], gold, there.start, there.type)
        self.words = np.zeros((len(gold), 2))
        np.add.at(self.words[:, 0], gold.sentence, guess == gold.tags)
        np.add.at(self.words[:, 1], gold.sentence, 1)

    def counts(self, times: Floats, kind: int | None = None) -> _Counts:
        """Sum the counts, of one entity type or all, with each sentence weighted by `times` `[draws, sentences]`."""
        rows = self.rows.sum(axis=1) if kind is None else self.rows[:, kind]
        hits, found, there = (times @ rows).T
        right, words = (times @ self.words).T
        return _Counts(hits=hits, found=found, there=there, right=right, words=words)


def _count(into: Floats, gold: Tagged, first_words: Ints, types: Ints) -> None:
    np.add.at(into, (gold.sentence[first_words], types), 1)


def tag_scores(
    gold: Tagged, guess: Ints, metrics: Sequence[str] | None = None, *, draws: int = 1000, seed: int = 0
) -> TagScores:
    """Score predicted tags: by default by F1, precision and recall of entities, and accuracy; plain tags by accuracy.

    Args:
        gold: the gold tags.
        guess: the predicted tags, one per word as in `gold`; -1 is a missing tag, which is in no entity and counts as
            wrong.
        metrics: names among `ENTITY_METRICS`.
        draws: the number of resamples of the sentences for the intervals (percentile bootstrap).
        seed: the seed of the resamples.
    """
    measured = _all_measured(gold, guess, names := _chosen(gold, metrics))
    resamples = list(paired.resamples(len(gold), draws=draws, seed=seed))
    values, spread = {}, {}
    for name in names:
        measure, strict = ENTITY_METRICS[name]
        values[name] = 100 * float(measure(measured[strict].counts(np.ones((1, len(gold)))))[0])
        spread[name] = paired.bounds(_drawn(measured[strict], measure, resamples), paired.LEVEL)
    types = _types(gold, measured[False], resamples) if gold.tag_set.marks_entities else {}
    return TagScores(metrics=values, intervals=spread, types=types)


def _all_measured(gold: Tagged, guess: Ints, names: Sequence[str]) -> dict[bool, _Measured]:
    _check(gold, guess)
    modes = {False, *(ENTITY_METRICS[name][1] for name in names)}
    return {strict: _Measured(gold, guess, strict) for strict in modes}


def _drawn(measured: _Measured, measure: _Measure, resamples: Sequence[Floats], kind: int | None = None) -> Floats:
    return 100 * np.concatenate([measure(measured.counts(times, kind)) for times in resamples])


def _types(gold: Tagged, measured: _Measured, resamples: Sequence[Floats]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind, name in enumerate(gold.tag_set.types):
        counts = measured.counts(np.ones((1, len(gold))), kind)
        if not (counts.there[0] or counts.found[0]):
            continue
        low, high = paired.bounds(_drawn(measured, lambda one: one.f1, resamples, kind), paired.LEVEL)
        found[name] = {
            **{each: round(100 * float(getattr(counts, each)[0]), 4) for each in ("precision", "recall", "f1")},
            "interval": [round(low, 4), round(high, 4)],
            "entities": int(counts.there[0]),
        }
    return found


def tag_measure(gold: Tagged, guess: Ints, metric: str) -> FromSums:
    """Return a metric of predicted tags, in percent, that can be computed on resamples of the sentences."""
    rows, value = sentence_counts(gold, guess, metric)
    return FromSums(rows=rows, value=value)


def tag_difference(
    gold: Tagged, guess: Ints, teacher: Ints, metric: str, *, draws: int = paired.DRAWS, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """The difference student minus teacher in percent, and its 95% interval by a paired bootstrap over sentences."""
    ours, theirs = (tag_measure(gold, tags, metric) for tags in (guess, teacher))
    return paired.difference(ours, theirs, len(gold), draws=draws, seed=seed)


def sentence_counts(gold: Tagged, guess: Ints, metric: str) -> tuple[Floats, Callable[[Floats], Floats]]:
    """Counts per sentence `[sentences, counts]`, and a function from their sums `[draws, counts]` to the percentage."""
    (name,) = _chosen(gold, [metric])
    measure, strict = ENTITY_METRICS[name]
    measured = _all_measured(gold, guess, [name])[strict]

    def value(sums: Floats) -> Floats:
        hits, found, there, right, words = sums.T
        return 100 * measure(_Counts(hits=hits, found=found, there=there, right=right, words=words))

    return np.concatenate([measured.rows.sum(axis=1), measured.words], axis=1), value


def tag_agreement(guess: Ints, teacher: Ints, offsets: Ints, tag_set: TagSet) -> dict[str, float]:
    """Agreement of two models in percent: on the tags of words and, if tags mark them, on entities.

    The latter is the F1 of the student's entities with the teacher's as gold: most words are outside of entities, where
    agreement is easy.
    """
    theirs = Tagged(tags=teacher, offsets=offsets, tag_set=tag_set)
    names = ("accuracy", "f1") if tag_set.marks_entities else ("accuracy",)
    counts = _all_measured(theirs, guess, names)[False].counts(np.ones((1, len(theirs))))
    found = {"agreement": 100 * float(counts.accuracy[0])}
    return found | ({"entity_agreement": 100 * float(counts.f1[0])} if "f1" in names else {})


def tag_agreement_evaluation(
    task: str, guess: Ints, teacher: Ints, offsets: Ints, tag_set: TagSet, *, draws: int = 1000
) -> dict[str, Any]:
    """An evaluation without gold tags: agreement of a model with its teacher, in percent with 95% intervals."""
    theirs = Tagged(tags=teacher, offsets=offsets, tag_set=tag_set)
    scores = tag_scores(theirs, guess, ("accuracy", "f1") if tag_set.marks_entities else None, draws=draws)
    called = {"accuracy": "agreement", "f1": "entity_agreement"}
    return {
        "task": task,
        "examples": len(theirs),
        "words": len(teacher),
        "metrics": {called[name]: round(value, 4) for name, value in scores.metrics.items()},
        "intervals": {
            called[name]: [round(bound, 4) for bound in between] for name, between in scores.intervals.items()
        },
        "unlabelled": True,
    }


def tag_evaluation(
    task: str,
    gold: Tagged,
    guess: Ints,
    teacher: Ints | None = None,
    metrics: Sequence[str] | None = None,
    *,
    draws: int = 1000,
) -> dict[str, Any]:
    """The public JSON object of an evaluation, in percent with four decimals.

    Holds `task`, `examples`, `words`, `metrics`, `intervals` (95%) and `types`; with a teacher also `teacher_metrics`,
    `agreement`, `entity_agreement` and `difference` (the first metric, student minus teacher, with its paired
    interval).
    """
    scores = tag_scores(gold, guess, metrics, draws=draws)
    found: dict[str, Any] = {
        "task": task,
        "examples": len(gold),
        "words": len(gold.tags),
        "metrics": _rounded(scores.metrics),
        "intervals": {name: [round(bound, 4) for bound in between] for name, between in scores.intervals.items()},
    }
    if scores.types:
        found["types"] = scores.types
    if teacher is not None:
        main = next(iter(scores.metrics))
        value, between = tag_difference(gold, guess, teacher, main, draws=draws)
        found["teacher_metrics"] = _rounded(tag_scores(gold, teacher, metrics, draws=1).metrics)
        found |= _rounded(tag_agreement(guess, teacher, gold.offsets, gold.tag_set))
        found["difference"] = {
            "metric": main, "value": round(value, 4), "interval": [round(bound, 4) for bound in between],
        }  # fmt: skip
    return found


def one_tag(guess: Ints, tag_set: TagSet) -> str | None:
    """The tag predicted for all words, if they all get the same one."""
    given = np.unique(guess[guess >= 0])
    return tag_set.names[given[0]] if len(given) == 1 else None


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _check(gold: Tagged, guess: Ints) -> None:
    if len(guess) != len(gold.tags):
        raise UserError(f"{len(guess)} predicted tags cannot be compared with the tags of {len(gold.tags)} words")
    if len(gold) == 0:
        raise UserError("there are no sentences to evaluate on")


def _chosen(gold: Tagged, metrics: Sequence[str] | None) -> list[str]:
    marks = gold.tag_set.marks_entities
    if metrics is None:
        return list(DEFAULT_METRICS if marks else PLAIN_METRICS)
    if not metrics:
        raise UserError("no metric was asked for")
    for name in metrics:
        if name not in ENTITY_METRICS:
            raise UserError(f"unknown metric {name!r}; {nearest(name, list(ENTITY_METRICS))}")
        if not marks and name not in PLAIN_METRICS:
            raise UserError(
                f"metric {name!r} is of entities, and the tags ({listed(gold.tag_set.names, 4)}) mark none: they are "
                f"not {OUTSIDE} and prefixed types such as B-PER; use accuracy"
            )
    return list(metrics)
