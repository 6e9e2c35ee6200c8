"""What the shapes of models say of a cell before it runs: students too deep, layers that do not meet, wrong options."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedConfig

from stillery.errors import ErrorList, UserError
from stillery.jobs.chosen_recipe import (
    check_learns,
    check_supplementary,
    chosen_recipe,
    on_supplementary,
    with_another_teacher,
)
from stillery.jobs.config.resolved import resolved_student
from stillery.jobs.config.settings import Asked, Distill
from stillery.jobs.kinds.base import Kind
from stillery.jobs.kinds.find import kind_of_model, kind_of_stacks
from stillery.jobs.kinds.refuse import refuse_asked
from stillery.models.family import kind_of, stack_sizes
from stillery.models.option_words import AUTO, LAYER_CHOICES
from stillery.recipe import Clock, Recipe
from stillery.stacks import on_stacks
from stillery.study.at_hand import config_of
from stillery.study.plan import Given
from stillery.train.recipe_checks import check_stages

__all__ = ["Shapes", "check_shape", "settings_in"]

_OPTION = re.compile(r"--([a-z][a-z-]+)")


class Shapes:
    """Looks at the shapes of runs, at those that are alike once, and notes what is wrong where the plan says it.

    `where` gives the place of a setting in the plan, as an error begins with it.
    """

    def __init__(self, where: Callable[[Given, str], str], errors: ErrorList) -> None:
        self._where, self._errors = where, errors
        self._looked_at: set[str] = set()

    def look(self, asked: Asked[Any], given: Given, model: str, *, trained: bool = False) -> None:
        """Note what the shape of a model rules out: that of the teacher; `trained` as for `check_shape`."""
        run = asked.run
        parts = [getattr(run, name, None) for name in ("method", "student")]
        alike = repr((model, trained, parts, run.data.task, sorted(asked.given)))
        if alike in self._looked_at:
            return
        self._looked_at.add(alike)
        try:
            check_shape(asked, model, trained=trained)
        except UserError as error:
            for line in error.lines:
                names, said = settings_in(line)
                place = next((name for name in (*names, "method") if name in given), "model")
                self._errors.add(f"{self._where(given, place)}: {said}")


def check_shape(asked: Asked[Any], model: str, *, trained: bool) -> None:
    """Raise UserError, with all errors, for a run that the shape of a model rules out: that of the teacher.

    With `trained` it is a finished one, else the pretrained model that becomes it. Models that are not at hand and of
    no known shape are left to the run itself.
    """
    run, config = asked.run, config_of(model)
    if config is None:
        return
    errors = ErrorList()
    with errors.catch():
        kind = kind_of_model(model, run.data) if trained else kind_of_stacks(kind_of(config, model), run.data)
        refuse_asked(kind, asked, errors)
        if isinstance(run, Distill):
            _check_student(run, kind, model, config, errors)
    errors.raise_any()


def _check_student(run: Distill, kind: Kind, model: str, teacher: PreTrainedConfig, errors: ErrorList) -> None:
    recipe: Recipe | None = None
    with errors.catch():
        recipe = _recipe(run, teacher, errors)
    settings = resolved_student(run.student, recipe, start=kind.start)
    init = kind.start if settings.init in (None, AUTO) else settings.init
    layers = init in LAYER_CHOICES or init == "random"
    name = settings.init_from or model if layers else init
    source = config_of(name)
    if source is None:
        return
    wanted = None
    with errors.catch():
        if kind_of(source, name) != kind_of(teacher, model):
            raise UserError(f"--init: {name} is of the kind {kind_of(source)}, the teacher {kind_of(teacher)}")
        wanted = kind.student_sizes(settings, init, teacher, source, name)
    if recipe is not None and wanted is not None:
        clock = Clock(seed=run.training.seed)
        with errors.catch():
            check_stages(recipe.stages, wanted, stack_sizes(teacher), clock, (source, teacher))


def _recipe(run: Distill, teacher: PreTrainedConfig, errors: ErrorList) -> Recipe:
    method = run.method
    recipe = chosen_recipe(method, None)
    check_learns(recipe.stages, errors)
    with errors.catch():
        check_supplementary(method)
    if method.ild_teacher is not None:
        recipe = with_another_teacher(recipe)
    if method.ild_task is not None or method.ild_data is not None:
        recipe = on_supplementary(recipe, True)
    which: Any = method.stacks
    return on_stacks(recipe, kind_of(teacher), which=which, cross_attention=method.cross_attention)


def settings_in(line: str) -> tuple[list[str], str]:
    """Return the settings that an error may be about, and the line with options called as plans call them.

    >>> settings_in("width 500 is not divisible by 7 heads: choose --heads so that it divides --width")
    (['width', 'heads', 'width'], 'width 500 is not divisible by 7 heads: choose heads so that it divides width')
    """
    named = [option.replace("-", "_") for option in _OPTION.findall(line)]
    return [line.split(" ", 1)[0], *named], _OPTION.sub(lambda option: option[1].replace("-", "_"), line)
