"""A score of the dev split with, beside its metrics, the one answer that all examples were given, if they were."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OneAnswer", "Scores"]


@dataclass(frozen=True, kw_only=True)
class OneAnswer:
    """The one answer that a model gives every example, in words.

    `expected` is the share of the examples that should have been given it, where that is known.
    """

    answer: str
    examples: int
    expected: float | None = None


class Scores(dict[str, float]):
    """Metrics by name, and the one answer all examples were given, if they were."""

    def __init__(self, metrics: dict[str, float], one_answer: OneAnswer | None = None) -> None:
        super().__init__(metrics)
        self.one_answer = one_answer
