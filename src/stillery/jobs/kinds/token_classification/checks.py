"""Distillation checks specific to token classifiers."""

from __future__ import annotations

from stillery.jobs.chosen_recipe import criterion_of
from stillery.jobs.kinds.classification.checks import learns_without_labels, projector_is_trained
from stillery.jobs.prepare import Context, needs
from stillery.recipe import Match

__all__ = ["CHECKS"]


@needs("recipe")
def compares_words(context: Context) -> None:
    """Check that no loss is on the whole text: its class, its pooled feature, or its first token's hidden state."""
    assert context.recipe is not None
    method = context.run.method
    name, matches = (
        method.recipe or method.method,
        [match for stage in context.recipe.stages for match in stage.matches],
    )
    for why in dict.fromkeys(why for why in map(_of_the_text, matches) if why is not None):
        context.errors.add(f"{name} {why}")


def _of_the_text(match: Match) -> str | None:
    """Return what a match needs that a token classifier lacks, and what to do; None if nothing."""
    criterion = criterion_of(match)
    if getattr(criterion, "one_class", False) or getattr(criterion, "needs_labels", False):
        return (
            "compares texts by their classes, and here each word has a tag; choose a method that matches predictions "
            "or layers, such as kd or layer-forward"
        )
    if "feature" in match.represent.needs:
        return (
            "matches the pooled feature of a text, which a model that tags words does not have; choose a method that "
            "matches predictions or layers, such as kd or layer-forward"
        )
    if match.represent.reads == "first":
        return (
            "compares the first token's state, which a model that tags words does not read; add --represent tokens or "
            "--represent pool"
        )
    return None


CHECKS = (learns_without_labels, compares_words, projector_is_trained)
