"""The recipe of a training loop of one's own, and its checks against the models before the first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from stillery.errors import ErrorList, UserError
from stillery.jobs.chosen_recipe import check_learns, check_one_class, chosen_recipe
from stillery.jobs.config.settings import MethodSettings
from stillery.jobs.kinds.generation.method import on_chosen_stacks, suited
from stillery.losses import Kind
from stillery.models.family import kind_of, stack_sizes
from stillery.models.head_type import EMBEDDING, head_in
from stillery.models.model_inputs import starts_with_padding
from stillery.models.projected_head import final_linear
from stillery.recipe import Clock, Recipe
from stillery.similarity_pairing import check_measured
from stillery.train.recipe_checks import check_stages

__all__ = ["Chosen", "choose", "kind_of_answers"]

_SWITCHES = (
    "hard_weight", "temperature", "pair", "represent", "distance", "reduction", "divergence", "square", "schedule",
    "stacks", "cross_attention", "drop_start",
)  # fmt: skip
"""Settings of a method that a loop of one's own can have; the others need data or teachers that it does not know."""

_EMBEDDINGS = "models that embed texts are trained by stillery.distill"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """A recipe that fits its models, its name in messages, and whether a decoder's start token is left out."""

    recipe: Recipe
    name: str
    drop_start: bool


def choose(
    recipe: str | Recipe | None,
    method: str | None,
    options: Mapping[str, Any] | None,
    *,
    teacher: PreTrainedModel | None,
    student: PreTrainedModel | None,
    seed: int = 0,
) -> Chosen:
    """Return the recipe for these models; raise UserError, with all errors, where they cannot be trained by it."""
    if recipe is not None and method is not None:
        raise UserError("both recipe and method are given: give one")
    _check_models(teacher, student)
    assert student is not None
    named = method or (recipe if isinstance(recipe, str) else None)
    settings, own = _settings(named, recipe, dict(options or {}))
    settings = suited(settings, student.config)
    found = on_chosen_stacks(chosen_recipe(settings, own), settings, student.config)
    name = "the recipe" if own is not None else settings.recipe or settings.method
    errors = ErrorList()
    check_learns(found.stages, errors)
    with errors.catch():
        _check_stages(found, name, teacher, student, Clock(seed=seed))
    if settings.drop_start and not starts_with_padding(student):
        errors.add(f"drop_start: a {student.config.model_type} model starts with no padding token; leave it out")
    errors.raise_any()
    return Chosen(recipe=found, name=name, drop_start=settings.drop_start)


def kind_of_answers(student: PreTrainedModel) -> Kind:
    """Return what a model predicts, from its head and its configuration, as transformers decides it."""
    if kind_of(student.config) != "encoder":
        return "text"
    head = head_in([type(student).__name__])
    if head is not None and head.by_token:
        return "tags"
    if student.config.problem_type == "multi_label_classification":
        return "labels"
    one = student.config.num_labels == 1
    return "score" if one or student.config.problem_type == "regression" else "classes"


def _settings(
    named: str | None, recipe: str | Recipe | None, options: dict[str, Any]
) -> tuple[MethodSettings, Recipe | None]:
    """Return the settings of a method from its options, and a recipe made in Python."""
    shared = {name: options.pop(name) for name in _SWITCHES if name in options}
    known = {field.name for field in dataclasses.fields(MethodSettings)} - {*_SWITCHES, "options"}
    refused = sorted(known & options.keys())
    if refused:
        raise UserError(
            f"{', '.join(refused)}: only stillery.distill has it, which knows data and teachers; leave it out"
        )
    own = recipe if isinstance(recipe, Recipe) else None
    if named is None and own is None and recipe is not None:
        raise UserError(f"recipe is a {type(recipe).__qualname__}: give a method's name, or a stillery.recipe.Recipe")
    if own is not None:
        return MethodSettings(recipe="given in Python", options=options, **shared), own
    if named is not None and ".py:" in named:
        return MethodSettings(recipe=named, options=options, **shared), None
    return MethodSettings(method=named or "layer-forward", options=options, **shared), None


def _check_models(teacher: PreTrainedModel | None, student: PreTrainedModel | None) -> None:
    """Raise UserError for models of the wrong type, without a head, or of different kinds."""
    errors = ErrorList()
    models: dict[str, PreTrainedModel] = {}
    for name, model in (("student", student), ("teacher", teacher)):
        if model is None and name == "teacher":
            continue
        if not isinstance(model, PreTrainedModel):
            what = "not given" if model is None else f"a {type(model).__qualname__}"
            why = "before it is wrapped for several processes"
            if type(model).__name__ == "SentenceTransformer":
                why = f"that predicts; {_EMBEDDINGS}"
            errors.add(f"{name} is {what}: give a model of transformers, {why}")
            continue
        models[name] = model
        with errors.catch():
            _check_head(name, model)
    errors.raise_any()
    if teacher is None or student is None:
        return
    if teacher is student:
        raise UserError("teacher and student are the same model: give two, since the teacher is frozen")
    kinds = {name: kind_of(model.config, name) for name, model in models.items()}
    if len(set(kinds.values())) > 1:
        raise UserError(
            f"the student is of the kind {kinds['student']}, the teacher {kinds['teacher']}: give two alike"
        )
    answers = {name: kind_of_answers(model) for name, model in models.items()}
    if answers["student"] != answers["teacher"]:
        raise UserError(f"the student predicts {answers['student']}, the teacher {answers['teacher']}: give two alike")
    ours, theirs = (_outputs(model) for model in (student, teacher))
    if ours != theirs:
        what = "tokens" if answers["student"] == "text" else "labels"
        raise UserError(f"the student has {ours} {what}, the teacher {theirs}: predictions are matched one by one")


def _check_head(name: str, model: PreTrainedModel) -> None:
    if kind_of(model.config, name) == "encoder":
        head = head_in([type(model).__name__])
        if head is EMBEDDING:
            raise UserError(f"{name} embeds texts, and there is no loss for that here: {_EMBEDDINGS}")
        if head is None:
            raise UserError(
                f"{name} is a {type(model).__name__}: give one that classifies texts or tokens, such as "
                f"AutoModelForSequenceClassification loads; {_EMBEDDINGS}"
            )
    elif model.get_output_embeddings() is None:
        raise UserError(
            f"{name} is a {type(model).__name__}: give one that generates text, such as AutoModelForCausalLM or "
            "AutoModelForSeq2SeqLM loads"
        )


def _outputs(model: PreTrainedModel) -> int:
    """The number of classes of a classifier, or of tokens that a generator chooses from."""
    by_token = kind_of(model.config) != "encoder"
    return int((model.config.vocab_size if by_token else model.config.num_labels) or 0)


def _check_stages(
    found: Recipe, name: str, teacher: PreTrainedModel | None, student: PreTrainedModel, clock: Clock
) -> None:
    """Raise UserError for stages that these models, or a loop of one's own, cannot run."""
    errors = ErrorList()
    ours = stack_sizes(student.config)
    theirs = None if teacher is None else stack_sizes(teacher.config)
    for stage in found.stages:
        if "supplementary" in (stage.data, stage.teacher):
            errors.add(f"stage {stage.name} has texts or a teacher of its own: train it by stillery.distill")
    configs = [model.config for model in (student, teacher) if model is not None]
    with errors.catch():
        check_stages(found.stages, ours, theirs, clock, configs)
    with errors.catch():
        check_measured(found.stages)
    if kind_of_answers(student) == "labels":
        check_one_class(found.stages, name, errors)
    if found.head == "reuse-frozen" and teacher is not None and not _has_head_of(student, teacher):
        errors.add(
            f"{name} trains no classifier and uses the teacher's, which the student does not have: load its classifier "
            "into the student first (with from_pretrained(TEACHER, num_hidden_layers=N) it has it)"
        )
    errors.raise_any()


def _has_head_of(student: PreTrainedModel, teacher: PreTrainedModel) -> bool:
    ours, theirs = final_linear(student).weight, final_linear(teacher).weight
    return ours.shape == theirs.shape and bool(torch.equal(ours.detach().cpu(), theirs.detach().cpu()))
