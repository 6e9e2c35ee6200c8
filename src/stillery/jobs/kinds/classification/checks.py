"""Distillation checks specific to classifiers."""

from __future__ import annotations

from stillery.errors import ErrorList
from stillery.jobs.chosen_recipe import check_one_class, check_tokenizers, check_unlabelled
from stillery.jobs.prepare import Context, needs
from stillery.models.family import sizes
from stillery.models.load_model import Loaded
from stillery.models.projected_head import head_of
from stillery.models.student import Student
from stillery.recipe import Stage

__all__ = ["CHECKS"]


def _name(context: Context) -> str:
    method = context.run.method
    return str(method.recipe or method.method)


@needs("recipe")
def learns_without_labels(context: Context) -> None:
    """Check that without labels no loss needs them."""
    assert context.recipe is not None
    if context.run.data.unlabelled:
        check_unlabelled(context.recipe.stages, _name(context), context.errors)


@needs("recipe", "read")
def one_class_per_text(context: Context) -> None:
    """Check that a method that contrasts classes has one class per text."""
    assert context.recipe is not None and context.read is not None
    if context.read.splits.labels.multi:
        check_one_class(context.recipe.stages, _name(context), context.errors)


@needs("recipe", settings=("class_weights",))
def weighs_its_labels(context: Context) -> None:
    """Check that class weights come with a label loss, which they apply to."""
    assert context.recipe is not None
    given = context.run.training.class_weights
    if given is not None and not any(stage.hard_weight for stage in context.recipe.stages):
        context.errors.add(
            f"--class-weights {given}: {_name(context)} does not learn from labels here; leave it out, or use "
            "--hard-weight"
        )


@needs("recipe", "read", "model")
def scores_are_on_the_labels_scale(context: Context) -> None:
    """Check that a student does not learn from a cross-encoder's logits and from labels of 0 to 1 at once.

    A cross-encoder of sentence-transformers has one logit, whose sigmoid is compared with such labels in its training;
    here scores are compared with labels as they are. The config of a model that was trained so says regression.
    """
    assert context.recipe is not None and context.read is not None and context.model is not None
    config, labels = context.model.model.config, context.read.splits.train.labels
    if config.num_labels != 1 or config.problem_type is not None or labels is None:
        return
    if labels.min() >= 0 and labels.max() <= 1 and any(stage.hard_weight for stage in context.recipe.stages):
        context.errors.add(
            f"{context.model.name} gives a logit, which its own training took the sigmoid of, and the labels are "
            f"{labels.min():g} to {labels.max():g}: use --hard-weight 0, so that the student learns from the teacher's "
            "scores alone"
        )


@needs("recipe", "student")
def compares_what_both_read(context: Context) -> None:
    """Check that with two tokenizers only predictions are matched, as they are aligned per example, not per token."""
    assert context.recipe is not None and context.student is not None
    difference = context.student.difference
    if difference is not None:
        check_tokenizers(context.recipe.stages, _name(context), difference, context.errors)


@needs("recipe", "model", "student")
def projector_is_trained(context: Context) -> None:
    """Check that some loss trains the projector in the head."""
    assert context.recipe is not None and context.model is not None and context.student is not None
    _check_projector(context.student, context.model, context.recipe.stages, _name(context), context.errors)


def _check_projector(
    student: Student, teacher: Loaded, stages: tuple[Stage, ...], method: str, errors: ErrorList
) -> None:
    reached = any(stage.hard_weight or (stage.prediction and stage.prediction.weight) for stage in stages)
    feature = any("feature" in match.represent.needs for stage in stages for match in stage.matches)
    if head_of(student.model) is not None and not reached and not feature:
        errors.add(
            f"{method}: no loss of it reaches the head's projector, which would stay random; use a student of the "
            "teacher's width, --option feature=pooled with simkd, or another method such as ild-rtc"
        )
    narrower = sizes(student.model.config).width != sizes(teacher.model.config).width
    if feature and narrower and head_of(student.model) is None:
        errors.add(
            f"{method}: the features differ in width; use --head reuse-frozen, whose projector brings them together"
        )


CHECKS = (
    learns_without_labels,
    one_class_per_text,
    weighs_its_labels,
    scores_are_on_the_labels_scale,
    compares_what_both_read,
    projector_is_trained,
)
