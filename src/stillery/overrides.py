"""Overrides of a method's parts: each argument changes one part of any recipe that matches layers.

Incompatible combinations (a distance that cannot leave padded keys out, a pairing that names the embedding for
attention) are found by the check before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stillery import declare
from stillery.errors import UserError
from stillery.pair_distances import flat_layers
from stillery.parts import load
from stillery.recipe import LEAST_STEPS, Clock, Match, Recipe, Stage, part_name

__all__ = ["Switches", "switched"]


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The parts of a recipe to change, by declared name; None keeps the method's own."""

    pair: str | None = None
    represent: str | None = None
    distance: str | None = None
    reduction: str | None = None
    divergence: str | None = None
    square: bool | None = None
    schedule: str | None = None


def switched(recipe: Recipe, switches: Switches, method: str) -> Recipe:
    """Return the recipe with the overrides applied; raise UserError for one that nothing in the recipe uses."""
    load()
    asked = {name for name in ("pair", "represent", "distance", "reduction", "schedule") if getattr(switches, name)}
    if asked and not any(stage.matches for stage in recipe.stages):
        raise UserError(f"--{min(asked)}: method {method} matches no layers; choose another --method")
    if (switches.divergence or switches.square is not None) and not any(stage.prediction for stage in recipe.stages):
        raise UserError(f"--divergence and --square: method {method} matches no predictions; choose another --method")
    stages = tuple(_stage(stage, switches) for stage in recipe.stages)
    if switches.schedule is not None:
        stages = declare.find("schedule", switches.schedule).part(stages)
    return replace(recipe, stages=stages)


def _stage(stage: Stage, switches: Switches) -> Stage:
    prediction = stage.prediction
    if prediction is not None and switches.divergence is not None:
        prediction = replace(prediction, divergence=declare.find("divergence", switches.divergence).part)
    if prediction is not None and switches.square is not None:
        prediction = replace(prediction, square=switches.square)
    matches = tuple(_match(match, switches) for match in stage.matches)
    if switches.represent is not None:
        matches = _distinct(matches, switches.represent)
    return replace(stage, matches=matches, prediction=prediction)


def _distinct(matches: tuple[Match, ...], name: str) -> tuple[Match, ...]:
    """Return the matches without duplicates: two matches may have differed in their representation only."""
    kept: dict[Any, Match] = {}
    for match in matches:
        own = not _of_layers(match)
        same = (part_name(match.represent), part_name(match.pair), part_name(match.distance), bool(match.flow))
        if own:
            kept[match.name] = match
        elif same not in kept:
            taken = sum(not isinstance(key, str) for key in kept)
            kept[same] = replace(match, name=name if not taken else f"{name}-{taken + 1}")
    return tuple(kept.values())


def _of_layers(match: Match) -> bool:
    """Return whether a match chooses layers: false if it compares the student with itself, or embeddings only."""
    declared = declare.facts_of(match.pair)
    return match.against != "student" and (declared is None or declared.of_layers)


def _match(match: Match, switches: Switches) -> Match:
    if not _of_layers(match):
        return match
    fixed = [name for name in ("pair", "distance", "reduction") if getattr(switches, name)]
    if match.criterion is not None and fixed:
        raise UserError(
            f"--{fixed[0]}: match {match.name} measures its layers in its own way, which cannot be switched"
        )
    changes: dict[str, Any] = {}
    if switches.represent is not None:
        changes["represent"] = declare.find("representation", switches.represent).part
    if switches.distance is not None:
        changes["distance"] = declare.find("distance", switches.distance).part
        # A divergence has one value per row; a distance over a row's elements is averaged over them.
        if _own_reduction(changes["distance"]) != _own_reduction(match.distance):
            changes["reduction"] = _own_reduction(changes["distance"])
    if switches.represent is not None and _own_reduction(changes.get("distance", match.distance)) == "mean":
        uneven = changes["represent"].reduction
        changes |= {"reduction": uneven} if uneven is not None else {}
    if switches.reduction is not None:
        changes["reduction"] = declare.find("reduction", switches.reduction).part
    if switches.pair is not None:
        changes |= _pairing(match, switches.pair)
    if changes and match.project is None:
        # The new representation may need a projection where the method's own did not.
        changes.setdefault("project", declare.find("projection", "to-teacher").part)
    return replace(match, **changes)


def _own_reduction(distance: Any) -> str:
    """Return the default reduction of a distance."""
    return str(declare.option_of(distance, "reduction") or "mean")


_USED = {"combine": "combination", "project": "projection", "flow": "flow"}
"""The fields of a match that a pairing may set, and the kind of part of each."""


def _pairing(match: Match, name: str) -> dict[str, Any]:
    if match.represent.joint:
        raise UserError(f"--pair {name}: match {match.name} compares all layers at once; it has no other pairing")
    found = declare.find("pairing", name)
    which: Any = found.part
    if declare.option_of(which, "embedding") is not None:
        # The embeddings are paired if the method pairs them.
        own = match.pairs(2, 4, Clock())
        embedding = any(0 in flat_layers(ours) for ours, _ in own)
        which = partial(which, embedding=embedding)
    changes: dict[str, Any] = {"pair": which, "combine": None, "flow": None}
    for into, used in found.uses.items():
        word, options = (used, {}) if isinstance(used, str) else used
        part = declare.find(_USED[into], word).part
        changes[into] = partial(part, **options) if options else part
    return changes


@declare.schedule("joint", "all losses in one stage")
def _joint(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    matches = tuple(match for stage in stages for match in stage.matches)
    mixing = next((stage.mixing for stage in stages if stage.mixing), None)
    return (replace(stages[-1], name="train", matches=matches, mixing=mixing, share=1.0, least_steps=0),)


@declare.schedule("sequential", "the layers' losses before the predictions', 5 to 1 in steps")
def _sequential(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    last = stages[-1]
    if len(stages) > 1:
        return stages
    if last.prediction is None and not last.hard_weight:
        raise UserError("--schedule sequential: the method matches layers only, there is nothing to do after them")
    return (
        Stage(name="layers", matches=last.matches, hard_weight=0.0, share=5.0, mixing=last.mixing),
        replace(last, name="prediction", matches=(), mixing=None, share=1.0, least_steps=LEAST_STEPS),
    )
