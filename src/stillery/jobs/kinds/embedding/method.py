"""Methods for embedding models: hidden-state terms as they are, embeddings matched in place of predictions."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from stillery import declare
from stillery.errors import UserError
from stillery.jobs.chosen_recipe import check_tokenizers, criterion_of
from stillery.jobs.config.settings import Distill, MethodSettings
from stillery.jobs.prepare import Context, needs
from stillery.models.load_model import Loaded
from stillery.parts.embedding import USUAL, with_similarity
from stillery.recipe import Match, Prediction, Recipe, Stage

__all__ = ["CHECKS", "for_embeddings", "written_out"]


def for_embeddings(recipe: Recipe, run: Distill, teacher: Loaded) -> Recipe:
    """Return the recipe with embeddings matched where it matches predictions or learns from labels."""
    method = run.method
    if not any(stage.needs_teacher for stage in recipe.stages):
        raise UserError(
            f"{_name(method)} learns from labels alone, which embeddings have none of; choose a method with a teacher, "
            "such as kd or layer-forward"
        )
    prediction = _prediction(method)
    # A start that was measured to be best was measured on classifiers.
    init = None if recipe.init_measured else recipe.init
    stages = tuple(_stage(stage, prediction) for stage in recipe.stages)
    return dataclasses.replace(recipe, stages=stages, init=init, init_measured=False)


def _stage(stage: Stage, prediction: Prediction) -> Stage:
    predicts = stage.prediction is not None or bool(stage.hard_weight)
    return dataclasses.replace(stage, hard_weight=0.0, prediction=prediction if predicts else None)


def _prediction(method: MethodSettings) -> Prediction:
    chosen, weight = declare.find("divergence", method.divergence or USUAL), method.similarity_weight
    if not chosen.raw:
        known = [one.word for one in declare.declared("divergence") if one.raw]
        raise UserError(f"--divergence {chosen.word}: embeddings are compared by {', '.join(map(str, known))}")
    if weight and chosen.together:
        raise UserError(
            f"--similarity-weight: with --divergence {chosen.word} there is nothing beside it; leave it out"
        )
    divergence = partial(with_similarity, divergence=chosen.part, weight=weight) if weight else chosen.part
    return Prediction(divergence=divergence)


def written_out(run: Distill, encoding: Any) -> Distill:
    """Leave out of a run's settings what its method has for predictions of classes."""
    method = dataclasses.replace(run.method, hard_weight=None, temperature=None)
    return dataclasses.replace(run, method=method)


@needs("recipe", "student")
def suits_embeddings(context: Context) -> None:
    """Check that no loss is on classes, labels or a classifier's feature, and that both models read the same tokens."""
    recipe, name = context.recipe, _name(context.run.method)
    assert recipe is not None and context.student is not None
    matches = [match for stage in recipe.stages for match in stage.matches]
    for why in dict.fromkeys(why for why in map(_of_classes, matches) if why is not None):
        context.errors.add(f"{name} {why}; choose a method that matches layers, such as layer-forward or rail-kd")
    if context.student.difference is not None:
        check_tokenizers(recipe.stages, name, context.student.difference, context.errors)


def _of_classes(match: Match) -> str | None:
    """Return what a match needs that an embedding model lacks; None if nothing."""
    criterion = criterion_of(match)
    if getattr(criterion, "one_class", False) or getattr(criterion, "needs_labels", False):
        return "compares texts by their classes, which embeddings have none of"
    if "feature" in match.represent.needs:
        return "matches the feature that a classifier reads, which an embedding model does not have"
    return None


def _name(method: MethodSettings) -> str:
    return str(method.recipe or method.method)


CHECKS = (suits_embeddings,)
