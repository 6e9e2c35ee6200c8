"""Checks that dividing steps over processes and micro-batches does not change a recipe's losses."""

from __future__ import annotations

from collections.abc import Sequence

from stillery import declare
from stillery.errors import ErrorList
from stillery.recipe import Match, Stage, part_name
from stillery.train.settings import Training

__all__ = ["check_divided", "looks_at_batches"]


def check_divided(stages: Sequence[Stage], training: Training, processes: int) -> None:
    """Raise UserError for parts whose losses several processes or micro-batches per step would silently change."""
    errors = ErrorList()
    for match in (match for stage in stages for match in stage.matches):
        what = _batchwise_part(match)
        if processes > 1 and what is not None:
            errors.add(
                f"match {match.name}: {what} depends on which examples share a batch, and {processes} processes have "
                "one each; start one process"
            )
    divided = processes * training.accumulate > 1
    for stage in stages:
        part = _batchwise_prediction(stage)
        if divided and part is not None:
            errors.add(
                f"stage {stage.name}: {part} compares the examples of a batch with each other, and several processes "
                "or micro-batches have some of them each; start one process, with a larger --batch-size in place of "
                "--accumulate"
            )
    if divided and training.batch_size % 2 and any(stage.mixing is not None for stage in stages):
        errors.add(
            f"--batch-size {training.batch_size}: MixUp pairs need an even batch size where a "
            "step has several of them; give an even one"
        )
    errors.raise_any()


def looks_at_batches(stages: Sequence[Stage]) -> bool:
    """Return whether a step's losses depend on which of its examples share a micro-batch, over all processes."""
    matches = [match for stage in stages for match in stage.matches]
    alone = all(_batchwise_prediction(stage) is None for stage in stages)
    return not alone or any(match.flow is not None or _batchwise_part(match) is not None for match in matches)


def _batchwise_prediction(stage: Stage) -> str | None:
    """The divergence of a stage that compares the examples of a micro-batch with each other, if it has such a one."""
    if stage.prediction is None:
        return None
    declared = declare.facts_of(stage.prediction.divergence)
    return f"the divergence {part_name(stage.prediction.divergence)}" if declared and declared.together else None


def _batchwise_part(match: Match) -> str | None:
    """The part of a match that compares the examples of a micro-batch with each other, if any."""
    if match.represent.together:
        return f"the representation {match.represent.name}"
    if match.criterion is not None:
        return None
    distance, reduction = declare.facts_of(match.distance), declare.known("reduction", match.reduction)
    if distance is not None and distance.together:
        return f"the distance {part_name(match.distance)}"
    return f"the reduction {match.reduction}" if reduction is not None and reduction.together else None
