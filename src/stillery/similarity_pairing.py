"""A pairing that asks for the similarity of layers is given it, once it has been measured.

A similarity is a matrix: a row for each of the student's layers, a column for each of the teacher's, the embedding
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
    """Whether a match's pairing needs the similarity of the layers and has not been given it."""
    said = declare.facts_of(match.pair)
    return said is not None and "similarity" in said.needs and declare.option_of(match.pair, "similarity") is None


def with_similarity(stages: Sequence[Stage], of: Callable[[Stage, Match], Similarity]) -> tuple[Stage, ...]:
    """The stages with what was measured given to every pairing that asks for it."""
    return tuple(
        replace(
            stage,
            matches=tuple(_given(match, of(stage, match)) if asks(match) else match for match in stage.matches),
        )
        for stage in stages
    )


def unmeasured(match: Match, student_layers: int, teacher_layers: int) -> Match:
    """The match with layers that are all alike, where nothing is measured yet: good to be checked."""
    return _given(match, [[0.0] * (teacher_layers + 1)] * (student_layers + 1)) if asks(match) else match


def check_measured(stages: Sequence[Stage]) -> None:
    """Refuse to train on layers whose similarity nobody has measured."""
    for match in (match for stage in stages for match in stage.matches):
        if asks(match):
            raise UserError(
                f"match {match.name}: its pairing needs the similarity of the layers: give it as "
                "partial(pairing, similarity=...), or train by stillery.distill, which measures it"
            )


def _given(match: Match, similarity: Similarity) -> Match:
    plain: Callable[..., Pairs] = match.pair
    return replace(match, pair=partial(plain, similarity=similarity))
