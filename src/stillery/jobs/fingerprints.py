"""Fingerprints of a run's data and models, kept in its run file to detect changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stillery.jobs.chosen_recipe import recipe_fingerprint
from stillery.jobs.config.settings import StudentSettings
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.load_model import fingerprint
from stillery.models.option_words import STARTS

if TYPE_CHECKING:
    from stillery.jobs.prepare import Context

__all__ = ["data_fingerprint", "distill_fingerprints"]


def data_fingerprint(splits: Any) -> str:
    """Return a fingerprint of all splits."""
    return "-".join(one.fingerprint[:16] for one in (splits.train, splits.dev, splits.test) if one is not None)


def distill_fingerprints(context: Context, settings: StudentSettings) -> dict[str, str]:
    """Return a distillation's fingerprints: data, teachers and, where given, the user's recipe and initial weights.

    `settings` are the student's with `init` resolved.
    """
    assert context.read is not None and context.model is not None and context.student is not None
    method = context.run.method
    prints = {"data": data_fingerprint(context.read.splits), "teacher": fingerprint(context.model)}
    if context.layers_teacher is not None:
        prints["ild_teacher"] = fingerprint(context.layers_teacher)
    if context.texts is not None:
        prints["ild_data"] = context.texts.fingerprint[:16]
    if method.recipe is not None:
        assert context.recipe is not None
        prints["recipe"] = recipe_fingerprint(context.recipe, method.recipe)
    if settings.init_from is not None or settings.init not in STARTS:
        prints["init"] = weights_fingerprint(context.student.model)
    return prints
