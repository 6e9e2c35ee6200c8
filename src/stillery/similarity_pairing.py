"""Pairings by the similarity of layers: the matrix is measured once and passed to the pairings that need it.

A similarity matrix has a row for each of the student's layers and a column for each of the teacher's, the embedding
output first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from stillery import declare
from stillery.errors import UserError
from stillery.recipe import Match, Pairs, Stage

__all__ = ["Similarity", "asks", "check_measured", "unmeasured", "with_similarity"]

Similarity = Sequence[Sequence[float]]


def asks(match: Match) -> bool:
    """Return whether a match's pairing needs the similarity of the layers and does not have it yet."""
    declared = declare.facts_of(match.pair)
    needed = declared is not None and "similarity" in declared.needs
    return needed and declare.option_of(match.pair, "similarity") is None


def with_similarity(stages: Sequence[Stage], of: Callable[[Stage, Match], Similarity]) -> tuple[Stage, ...]:
    """Return the stages with the measured similarity passed to every pairing that needs it."""
    return tuple(
        replace(
            stage,
            matches=tuple(_given(match, of(stage, match)) if asks(match) else match for match in stage.matches),
        )
        for stage in stages
    )


def unmeasured(match: Match, student_layers: int, teacher_layers: int) -> Match:
    """Return the match with a similarity of 0 for all layers if none is measured yet, so that it can be checked."""
    return _given(match, [[0.0] * (teacher_layers + 1)] * (student_layers + 1)) if asks(match) else match


def check_measured(stages: Sequence[Stage]) -> None:
    """Raise UserError if a pairing needs a similarity that was not measured."""
    for match in (match for stage in stages for match in stage.matches):
        if asks(match):
            raise UserError(
                f"match {match.name}: its pairing needs the similarity of the layers: give it as "
                "partial(pairing, similarity=...), or train by stillery.distill, which measures it"
            )


def _given(match: Match, similarity: Similarity) -> Match:
    plain: Callable[..., Pairs] = match.pair
    return replace(match, pair=partial(plain, similarity=similarity))
