"""Fingerprints of what a run is made from, by which a run file tells that nothing of it has changed."""

from __future__ import annotations

from stillery.data.schema.examples import Examples, Splits
from stillery.jobs.config.settings import Distill, StudentSettings
from stillery.jobs.recipe import recipe_fingerprint
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.load import Loaded, fingerprint
from stillery.models.option_words import STARTS
from stillery.models.student import Student
from stillery.recipe import Recipe

__all__ = ["data_fingerprint", "distill_prints"]


def data_fingerprint(parts: Splits) -> str:
    """A hash of all parts."""
    return "-".join(part.fingerprint[:16] for part in (parts.train, parts.dev, parts.test) if part is not None)


def distill_prints(
    run: Distill,
    settings: StudentSettings,
    *,
    parts: Splits,
    teacher: Loaded,
    ild_teacher: Loaded | None,
    texts: Examples | None,
    recipe: Recipe,
    student: Student,
) -> dict[str, str]:
    """Those of a distillation: its data and teachers, and where it has them a recipe and weights of its own.

    `settings` are the student's with `init` decided; `texts` are those of a stage of layers.
    """
    prints = {"data": data_fingerprint(parts), "teacher": fingerprint(teacher)}
    if ild_teacher is not None:
        prints["ild_teacher"] = fingerprint(ild_teacher)
    if texts is not None:
        prints["ild_data"] = texts.fingerprint[:16]
    if run.method.recipe is not None:
        prints["recipe"] = recipe_fingerprint(recipe, run.method.recipe)
    if settings.init_from is not None or settings.init not in STARTS:
        prints["init"] = weights_fingerprint(student.model)
    return prints
