"""Adaptation of a method to text generation models: stacks, family defaults, and on-policy generation."""

from __future__ import annotations

import dataclasses
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from stillery import methods
from stillery.errors import UserError
from stillery.evaluation.generate import end_ids
from stillery.jobs.chosen_recipe import check_learns
from stillery.jobs.config.settings import Distill, MethodSettings
from stillery.jobs.kinds.generation.encoding import Encoding
from stillery.jobs.prepare import Context, needs
from stillery.models.family import kind_of
from stillery.models.load_model import Loaded
from stillery.models.model_inputs import starts_with_padding
from stillery.models.stack_layout import GENERATORS
from stillery.recipe import Recipe
from stillery.stacks import on_stacks
from stillery.train.on_policy import OnPolicy

__all__ = ["CHECKS", "for_family", "on_chosen_stacks", "on_stacks_of", "policy", "suited"]

_RESIDUAL = ("t5", "mt5", *(name for name, family in GENERATORS.items() if family.kind == "decoder"))
"""Families whose hidden states are a residual stream, which grows from layer to layer."""


def for_family(run: Distill, teacher: Loaded | None) -> Distill:
    """Return the run with method options suited to the teacher's family, where the user gives none."""
    if teacher is None:
        return run
    return dataclasses.replace(run, method=suited(run.method, teacher.model.config))


def suited(method: MethodSettings, config: PreTrainedConfig) -> MethodSettings:
    """Return the method with options suited to a model of this configuration, where the user gives none.

    Hidden states are normalised per token, so that neither padding nor the batch composition changes a loss.
    """
    if method.recipe is not None:
        return method
    known = methods.find(method.method).options
    suits: dict[str, Any] = {}
    if config.model_type in _RESIDUAL and known.get("normalise") == "none":
        suits["normalise"] = "token"
    if kind_of(config) == "decoder" and "embedding" in known:
        if method.options.get("embedding"):
            raise UserError(
                "embedding=true: embeddings of a model that is a decoder alone are not matched; leave it out"
            )
        suits["embedding"] = False
    return dataclasses.replace(method, options=suits | dict(method.options))


def on_stacks_of(recipe: Recipe, run: Distill, teacher: Loaded) -> Recipe:
    """Return the recipe with its matches on the teacher's stacks that `--stacks` selects."""
    return on_chosen_stacks(recipe, run.method, teacher.model.config)


def on_chosen_stacks(recipe: Recipe, method: MethodSettings, config: PreTrainedConfig) -> Recipe:
    """Return the recipe with its matches on the selected stacks of models of this configuration."""
    which: Any = method.stacks
    if which != "both" and not any(match.stack is None for stage in recipe.stages for match in stage.matches):
        raise UserError(
            f"--stacks {which}: the method matches no layers, or names their stack itself; leave it at both"
        )
    return on_stacks(recipe, kind_of(config), which=which, cross_attention=method.cross_attention)


def policy(run: Distill, student: PreTrainedModel, teacher: Loaded, encoding: Encoding) -> OnPolicy | None:
    """Return the on-policy settings by which the student generates its own targets; None if not enabled."""
    if not run.method.on_policy:
        return None
    return OnPolicy(
        rate=run.method.on_policy,
        max_new_tokens=encoding.reading.max_target,
        end_ids=tuple(end_ids(student, teacher.tokenizer)),
        pad_id=int(teacher.tokenizer.pad_token_id),
        drop_start=run.method.drop_start,
    )


@needs("recipe")
def teaches_own_texts(context: Context) -> None:
    """Check that on-policy texts have a loss to learn from: a stage uses the teacher, and none mixes examples."""
    recipe, errors = context.recipe, context.errors
    assert recipe is not None
    if not context.run.method.on_policy:
        return
    for stage in recipe.stages:
        if stage.mixing is not None:
            errors.add(f"--on-policy: stage {stage.name} mixes examples, which texts of the student's own cannot be")
    learning = [dataclasses.replace(stage, hard_weight=0.0) for stage in recipe.stages if stage.needs_teacher]
    check_learns(tuple(learning), errors)
    if not learning:
        errors.add("--on-policy: the method uses no teacher predictions; choose one that does, such as kd")


@needs("student")
def starts_with_a_padding_token(context: Context) -> None:
    """Check that with `--drop-start` the decoder starts with its padding token, the position that is dropped."""
    assert context.student is not None
    model = context.student.model
    if context.run.method.drop_start and not starts_with_padding(model):
        context.errors.add(
            f"--drop-start: a {model.config.model_type} model starts with no padding token; leave it out"
        )


CHECKS = (teaches_own_texts, starts_with_a_padding_token)
