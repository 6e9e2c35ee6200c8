"""The recipe of a run, and the checks on it before training."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stillery import methods
from stillery.errors import ErrorList, UserError
from stillery.jobs.config.settings import Distill, MethodSettings
from stillery.jobs.recipe_file import load_recipe
from stillery.overrides import Switches, switched
from stillery.recipe import Match, Recipe, Stage
from stillery.train.learning_rate import run_steps
from stillery.train.settings import Training

if TYPE_CHECKING:
    from stillery.models.load_model import Loaded

__all__ = [
    "check_learns",
    "check_one_class",
    "check_steps",
    "check_supplementary",
    "check_tokenizers",
    "check_unlabelled",
    "chosen_recipe",
    "criterion_of",
    "method_without_labels",
    "on_supplementary",
    "recipe_fingerprint",
    "with_another_teacher",
    "without_labels",
]


def chosen_recipe(method: MethodSettings, own: Recipe | None) -> Recipe:
    """Return the recipe of a method with its options and switches, or the user's own."""
    if own is None and method.recipe is None:
        recipe = methods.build(method.method, method.method_options())
    else:
        given = [f"--{name.replace('_', '-')}" for name in method.method_options()]
        if given:
            raise UserError(f"{', '.join(given)} cannot go with a recipe of your own: set it in the recipe")
        recipe = own if own is not None else load_recipe(method.recipe or "")
    return switched(recipe, Switches(**method.switches()), method.recipe or method.method)


def recipe_fingerprint(recipe: Recipe, where: str) -> str:
    """Return a hash of a user's own recipe: of its parts and, where it comes from a file, of the file."""
    digest = hashlib.sha256(json.dumps(methods.describe_stages(recipe), sort_keys=True).encode())
    file = Path(where.rpartition(":")[0])
    if file.is_file():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def check_supplementary(method: MethodSettings) -> None:
    """Raise UserError for conflicting options about the texts of a hidden-state stage."""
    given = [name for name in (method.ild_data, method.ild_task) if name is not None]
    if len(given) > 1:
        raise UserError("both --ild-data and --ild-task are given: give one")
    if method.ild_max_length is not None and not given:
        raise UserError("--ild-max-length is for the texts of --ild-data or --ild-task, and neither is given")


def on_supplementary(recipe: Recipe, texts: bool) -> Recipe:
    """Assign the supplementary texts, where there are any, to the recipe's hidden-state stages."""
    for stage in recipe.stages:
        if stage.data == "supplementary" and (stage.hard_weight or any(match.criterion for match in stage.matches)):
            raise UserError(f"stage {stage.name} is on supplementary texts and needs labels, which those do not have")
        if stage.data == "supplementary" and not texts:
            raise UserError(f"stage {stage.name} is on supplementary texts: name them with --ild-data or --ild-task")
    if not texts or any(stage.data == "supplementary" for stage in recipe.stages):
        return recipe
    fits = [not stage.hard_weight and stage.prediction is None for stage in recipe.stages]
    if not any(fits):
        raise UserError("--ild-data: the method has no hidden-state stage; add --schedule sequential")
    stages = []
    for stage, fit in zip(recipe.stages, fits, strict=True):
        if fit and any(match.criterion for match in stage.matches):
            raise UserError(f"--ild-data: stage {stage.name} needs the task's own examples and labels")
        stages.append(dataclasses.replace(stage, data="supplementary") if fit else stage)
    return dataclasses.replace(recipe, stages=tuple(stages))


def with_another_teacher(recipe: Recipe) -> Recipe:
    """Assign the supplementary teacher to the recipe's hidden-state stages."""
    fits = [bool(stage.matches) and not stage.hard_weight and stage.prediction is None for stage in recipe.stages]
    if not any(fits):
        raise UserError("--ild-teacher: the method has no hidden-state stage; add --schedule sequential")
    stages = [
        dataclasses.replace(stage, teacher="supplementary") if fit else stage
        for stage, fit in zip(recipe.stages, fits, strict=True)
    ]
    return dataclasses.replace(recipe, stages=tuple(stages))


def without_labels(method: MethodSettings) -> MethodSettings:
    """Set the weight of the labels' loss to 0, if it is an option of the method and other losses remain."""
    if method.recipe is not None or method.hard_weight is not None:
        return method
    bare, errors = dataclasses.replace(method, hard_weight=0.0), ErrorList()
    if "hard_weight" not in methods.find(method.method).options:
        return method
    check_learns(methods.build(bare.method, bare.method_options()).stages, errors)
    return method if errors.lines else bare


def method_without_labels(run: Distill, teacher: Loaded | None) -> Distill:
    """Set the weight of the labels' loss to 0 in a run on unlabelled data, if its method works without labels."""
    return dataclasses.replace(run, method=without_labels(run.method)) if run.data.unlabelled else run


def check_unlabelled(stages: tuple[Stage, ...], name: str, errors: ErrorList) -> None:
    """Add an error for every stage that needs labels."""
    for stage in stages:
        judged = any(getattr(judge, "needs_labels", False) for judge in map(criterion_of, stage.matches))
        if stage.hard_weight or judged:
            errors.add(
                f"--unlabelled: stage {stage.name} of {name} learns from labels; choose a method that matches "
                "predictions or layers, such as kd or layer-forward, and leave --hard-weight out"
            )


def check_one_class(stages: tuple[Stage, ...], name: str, errors: ErrorList) -> None:
    """Add an error if a criterion needs one class per text, for data with several labels per text."""
    matches = [match for stage in stages for match in stage.matches]
    if any(getattr(criterion_of(match), "one_class", False) for match in matches):
        errors.add(
            f"{name} needs one class per text, and here a text may have several labels; choose a method that matches "
            "predictions or layers, such as kd or layer-forward"
        )


def check_tokenizers(stages: tuple[Stage, ...], name: str, difference: str, errors: ErrorList) -> None:
    """Add an error if a recipe needs both models to share a tokenizer; `difference` describes how theirs differ.

    A text's prediction, and the feature that a classifier computes it from, do not depend on how the text is split
    into tokens. Hidden states and attention are per token, and MixUp mixes token by token.
    """
    matches = [match for stage in stages for match in stage.matches]
    needed = {_NEEDED.get(need, "attention") for match in matches for need in match.represent.needs} - {None}
    reasons = [f"compares {' and '.join(sorted(map(str, needed), reverse=True))} of layers"] if needed else []
    reasons += ["mixes examples token by token"] if any(stage.mixing is not None for stage in stages) else []
    if any("supplementary" in (stage.data, stage.teacher) for stage in stages):
        reasons.append("has a stage of its own texts or teacher")
    if reasons:
        errors.add(
            f"{name} {' and '.join(reasons)}, which is only done where both models read the same tokens, and "
            f"{difference}; match predictions alone (--method kd), or use models with one tokenizer"
        )


_NEEDED = {"hidden": "hidden states", "feature": None}
"""Outputs that a representation needs, in words; all others are attention. None does not depend on tokens."""


def criterion_of(match: Match) -> object:
    """Return the criterion of a match without the arguments bound to it."""
    return match.criterion.func if isinstance(match.criterion, partial) else match.criterion


def check_steps(
    stages: tuple[Stage, ...], training: Training, examples: int, errors: ErrorList, *, processes: int = 1
) -> None:
    """Add an error for a run too short for every stage to have a step."""
    window = training.batch_size * training.accumulate * processes
    steps = run_steps(training.epochs, examples, window, training.max_steps)
    if steps < len(stages):
        errors.add(f"{steps} steps in all are too few for {len(stages)} stages; raise --max-steps or --epochs")


def check_learns(stages: tuple[Stage, ...], errors: ErrorList) -> None:
    """Add an error for every stage whose losses all have weight 0."""
    for stage in stages:
        soft = stage.prediction.weight if stage.prediction else 0.0
        if not any((stage.hard_weight, soft, *(match.weight for match in stage.matches))):
            errors.add(f"stage {stage.name}: every loss has weight 0, so nothing is learnt; raise --hard-weight")
