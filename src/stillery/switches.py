"""Switches that cut across methods: one argument each changes a part of any recipe that matches layers.

What does not fit together (a distance that cannot leave keys out, a pairing that names the embedding for attention) is
found by the check before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stillery.faults import Fault
from stillery.parts import combine, distance, divergence, pair, project, represent, transport
from stillery.recipe import LEAST_STEPS, Clock, Match, Pair, Recipe, Representation, Stage, part_name
from stillery.terms import flat_layers

__all__ = ["Switches", "switched"]

_PAIRS: dict[str, Any] = {
    "forward": pair.forward,
    "reverse": pair.reverse,
    "all-to-one": pair.all_to_one,
    "random": pair.fixed_random,
    "random-each-epoch": pair.random_each_epoch,
    "random-together": pair.random_together,
    "uniform": pair.uniform,
    "skip": pair.skip,
    "last": pair.last,
    "last-layer": pair.last_layer,
    "attend": pair.every_layer,
    "combine": pair.block,
    "transport": pair.all_to_all,
}
_WITH_EMBEDDING = ("forward", "reverse", "all-to-one", "random", "uniform")

_REPRESENTATIONS: dict[str, Representation] = {
    "cls": represent.cls,
    "pool": represent.pool,
    "tokens": represent.tokens,
    "attention": represent.attention,
    "query-relations": represent.with_relation_heads(represent.query_relations),
    "key-relations": represent.with_relation_heads(represent.key_relations),
    "value-relations": represent.with_relation_heads(represent.value_relations),
    "samples": represent.samples,
    "word-relations": represent.word_relations,
}
_DISTANCES: dict[str, Any] = {
    "mse": distance.mse,
    "normalised-mse": distance.normalised_mse,
    "cosine": distance.cosine,
    "kl": distance.kl,
    "contrastive": distance.contrastive,
}


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What to change of a recipe, by the words of `parts.choices`; None leaves it as the method has it."""

    pair: str | None = None
    represent: str | None = None
    distance: str | None = None
    reduction: str | None = None
    divergence: str | None = None
    square: bool | None = None
    schedule: str | None = None


def switched(recipe: Recipe, switches: Switches, method: str) -> Recipe:
    """The recipe with the switches applied; a switch that has nothing to act on is refused."""
    asked = {name for name in ("pair", "represent", "distance", "reduction", "schedule") if getattr(switches, name)}
    if asked and not any(stage.matches for stage in recipe.stages):
        raise Fault(f"--{min(asked)}: method {method} matches no layers; choose another --method")
    if (switches.divergence or switches.square is not None) and not any(stage.prediction for stage in recipe.stages):
        raise Fault(f"--divergence and --square: method {method} matches no predictions; choose another --method")
    stages = tuple(_stage(stage, switches) for stage in recipe.stages)
    if switches.schedule is not None:
        stages = _scheduled(stages, switches.schedule)
    return replace(recipe, stages=stages)


def _stage(stage: Stage, switches: Switches) -> Stage:
    prediction = stage.prediction
    if prediction is not None and switches.divergence is not None:
        prediction = replace(prediction, divergence=divergence.DIVERGENCES[switches.divergence])
    if prediction is not None and switches.square is not None:
        prediction = replace(prediction, square=switches.square)
    matches = tuple(_match(match, switches) for match in stage.matches)
    if switches.represent is not None:
        matches = _distinct(matches, switches.represent)
    return replace(stage, matches=matches, prediction=prediction)


def _distinct(matches: tuple[Match, ...], name: str) -> tuple[Match, ...]:
    """One match of each kind: what told two of them apart may have been their representation."""
    kept: dict[Any, Match] = {}
    for match in matches:
        own = match.against == "student" or match.pair is pair.embedding
        same = (part_name(match.represent), part_name(match.pair), part_name(match.distance), bool(match.flow))
        if own:
            kept[match.name] = match
        elif same not in kept:
            taken = sum(not isinstance(key, str) for key in kept)
            kept[same] = replace(match, name=name if not taken else f"{name}-{taken + 1}")
    return tuple(kept.values())


def _match(match: Match, switches: Switches) -> Match:
    # What is compared with the student itself, or between embeddings only, is not a choice of layers.
    if match.against == "student" or match.pair is pair.embedding:
        return match
    fixed = [name for name in ("pair", "distance", "reduction") if getattr(switches, name)]
    if match.judge is not None and fixed:
        raise Fault(f"--{fixed[0]}: match {match.name} measures its layers in its own way, which cannot be switched")
    changes: dict[str, Any] = {}
    if switches.represent is not None:
        changes["represent"] = _REPRESENTATIONS[switches.represent]
    if switches.distance is not None:
        changes["distance"] = _DISTANCES[switches.distance]
        if switches.reduction is None and (switches.distance == "kl") != (match.distance is distance.kl):
            # The divergence of a row is one number; a distance over a row's elements is averaged over them.
            changes["reduction"] = "batchmean" if switches.distance == "kl" else "mean"
    if switches.reduction is not None:
        changes["reduction"] = switches.reduction
    measured = changes.get("distance", match.distance)
    if switches.represent == "word-relations" and switches.reduction is None and measured is distance.mse:
        changes["reduction"] = "rowmean"
    if switches.pair is not None:
        changes |= _pairing(match, switches.pair)
    if changes and match.project is None:
        # A representation that had no width may now have one.
        changes.setdefault("project", project.to_teacher)
    return replace(match, **changes)


def _pairing(match: Match, name: str) -> dict[str, Any]:
    if match.represent.joint:
        raise Fault(f"--pair {name}: match {match.name} looks at all layers at once; it has no other pairing")
    which: Pair = _PAIRS[name]
    if name in _WITH_EMBEDDING:
        # The embedding meets the embedding where the method has that pair.
        own = match.pair(2, 4, Clock())
        embedding = any(0 in flat_layers(ours) for ours, _ in own)
        which = partial(_PAIRS[name], embedding=embedding)
    changes: dict[str, Any] = {"pair": which, "combine": None, "flow": None}
    if name == "attend":
        changes |= {"combine": combine.attend, "project": project.to_teacher}
    elif name == "combine":
        changes["project"] = project.to_student
    elif name == "transport":
        changes["flow"] = partial(transport.Transport, plan=pair.transport_plan)
    return changes


def _scheduled(stages: tuple[Stage, ...], schedule: str) -> tuple[Stage, ...]:
    """All losses in one stage, or the layers' before the predictions' (5 to 1 in steps)."""
    matches = tuple(match for stage in stages for match in stage.matches)
    mixing = next((stage.mixing for stage in stages if stage.mixing), None)
    last = stages[-1]
    if schedule == "joint":
        return (replace(last, name="train", matches=matches, mixing=mixing, share=1.0, least_steps=0),)
    if len(stages) > 1:
        return stages
    if last.prediction is None and not last.hard_weight:
        raise Fault("--schedule sequential: the method matches layers only, there is nothing to do after them")
    return (
        Stage(name="layers", matches=matches, hard_weight=0.0, share=5.0, mixing=mixing),
        replace(last, name="prediction", matches=(), mixing=None, share=1.0, least_steps=LEAST_STEPS),
    )
