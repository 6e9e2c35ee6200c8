"""Which students a search trains, and which one it recommends: rules on sizes and scores alone.

Scores are by candidate: a number, None of one whose training failed, and nothing of one that is not trained yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Scores", "Sized", "by_size", "contenders", "finalists", "reaches", "recommended", "to_train"]

Scores = Mapping[str, float | None]

# Scores of finished models are written with four decimals.
_ROUNDING = 1e-4
_LEAST_FINALISTS = 2


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A student of a search: its name, its shape (layers and width), and what it costs to run."""

    name: str
    shape: tuple[int, int]
    parameters: int
    latency_ms: float


def by_size(students: Iterable[Sized]) -> list[Sized]:
    """The students from the smallest on: by parameters, then by latency; starts of one shape stay in their order."""
    return sorted(students, key=lambda one: (one.parameters, one.latency_ms))


def reaches(score: float | None, target: float) -> bool:
    """Whether a score is at least the target; that of a failed training is not."""
    return score is not None and score >= target - _ROUNDING


def contenders(students: Sequence[Sized], short: Scores) -> list[Sized]:
    """The students that are worth a training in full, by their scores after a short one, from the smallest on.

    Of each shape that is its best start, the first of equals; and of the shapes those that are better than every
    smaller one.
    """
    best: dict[tuple[int, int], Sized] = {}
    for one in by_size(students):
        score = short.get(one.name)
        if score is not None and (one.shape not in best or score > _score(short, best[one.shape])):
            best[one.shape] = one
    found: list[Sized] = []
    for one in by_size(best.values()):
        if all(_score(short, one) > _score(short, other) for other in found):
            found.append(one)
    return found


def finalists(students: Sequence[Sized], short: Scores) -> list[Sized]:
    """The third of the students with the highest scores after a short training, at least two, from the smallest on."""
    scored = [one for one in by_size(students) if short.get(one.name) is not None]
    number = max(_LEAST_FINALISTS, -(-len(students) // 3))
    return by_size(sorted(scored, key=lambda one: -_score(short, one))[:number])


def to_train(students: Sequence[Sized], full: Scores, target: float) -> list[Sized]:
    """The students from the smallest up to the first that reaches the target; all of them while none is known to."""
    found = []
    for one in by_size(students):
        found.append(one)
        if reaches(full.get(one.name), target):
            break
    return found


def recommended(students: Sequence[Sized], full: Scores, target: float | None) -> Sized | None:
    """The smallest student that reaches the target, else the one with the highest score; None if all have failed.

    Of students with equal scores it is the smallest. Without a target it is the one with the highest score.
    """
    scored = [one for one in by_size(students) if full.get(one.name) is not None]
    if target is not None:
        for one in scored:
            if reaches(full[one.name], target):
                return one
    return max(scored, key=lambda one: _score(full, one), default=None)


def _score(scores: Scores, one: Sized) -> float:
    score = scores.get(one.name)
    return float("-inf") if score is None else score
