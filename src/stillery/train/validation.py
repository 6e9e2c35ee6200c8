"""Scores on the dev split: metrics, and the constant prediction if all examples got one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OneAnswer", "Scores"]


@dataclass(frozen=True, kw_only=True)
class OneAnswer:
    """The constant prediction that a model gives for every example, in words.

    `expected` is the share of examples for which it is correct, if known.
    """

    answer: str
    examples: int
    expected: float | None = None


class Scores(dict[str, float]):
    """Metrics by name, and the constant prediction if all examples got one."""

    def __init__(self, metrics: dict[str, float], one_answer: OneAnswer | None = None) -> None:
        super().__init__(metrics)
        self.one_answer = one_answer
