"""Everything about a recipe that could fail in the first batch, found before it."""

from __future__ import annotations

from collections.abc import Sequence

from stillery.faults import Gathered
from stillery.models.family import FAMILIES, Sizes
from stillery.parts.distance import mse
from stillery.recipe import Clock, Match, Pairs, Stage
from stillery.terms import flat_layers, takes_keys
from stillery.train.objective import pairs_of

__all__ = ["check_stages"]


def check_stages(
    stages: Sequence[Stage], student: Sizes, teacher: Sizes | None, clock: Clock, types: tuple[str, ...] = ()
) -> None:
    """Refuse a recipe these models cannot follow; `types` are their model types. All faults are reported."""
    faults = Gathered()
    for stage in stages:
        if teacher is None:
            if stage.needs_teacher:
                faults.add(f"stage {stage.name} matches a teacher, and none is given")
            continue
        if len({match.name for match in stage.matches}) != len(stage.matches):
            faults.add(f"stage {stage.name}: two matches have the same name, their logs would mix")
        for match in stage.matches:
            with faults.catch():
                pairs = pairs_of(match, student.layers, teacher.layers, clock)
                with faults.catch():
                    _check_pairs(match, pairs, student, teacher)
                _check_parts(match, pairs, student, teacher, types)
    faults.raise_any()


def _check_pairs(match: Match, pairs: Pairs, student: Sizes, teacher: Sizes) -> None:
    faults = Gathered()
    if not pairs:
        faults.add(
            f"match {match.name}: no layer pairs between a student of {student.layers} and a teacher of "
            f"{teacher.layers} layers; use more --layers or another --method"
        )
    for ours, theirs in pairs:
        if () in (ours, theirs):
            faults.add(f"match {match.name}: a pair ({ours}, {theirs}) names no layer on one side")
        inside = all(0 <= layer <= student.layers for layer in flat_layers(ours))
        if not (inside and all(0 <= layer <= teacher.layers for layer in flat_layers(theirs))):
            faults.add(
                f"match {match.name}: pair ({ours}, {theirs}) is outside the student's 0..{student.layers} and the "
                f"teacher's 0..{teacher.layers}"
            )
        if "hidden" not in match.represent.needs and 0 in (*flat_layers(ours), *flat_layers(theirs)):
            faults.add(
                f"match {match.name}: pair ({ours}, {theirs}) names the embedding, which has no {match.represent.name}"
            )
    faults.raise_any()


def _check_parts(match: Match, pairs: Pairs, student: Sizes, teacher: Sizes, types: tuple[str, ...]) -> None:
    represent, faults = match.represent, Gathered()
    if match.judge is not None:
        if not represent.sized or represent.rows != "examples":
            faults.add(f"match {match.name}: it needs one state per example (cls or pool), not {represent.name}")
        faults.raise_any()
        return
    groups = any(isinstance(layers, tuple) for pair in pairs for layers in pair)
    if pairs and represent.joint != groups and (represent.joint or not represent.sized):
        kind = "several layers at once" if represent.joint else "one layer at a time"
        faults.add(f"match {match.name}: {represent.name} looks at {kind}, its pairing does not give that")
    with_teacher = match.against == "teacher"
    if with_teacher and represent.sized and student.width != teacher.width and match.project is None:
        faults.add(
            f"match {match.name}: the widths {student.width} and {teacher.width} differ, and it has no projection"
        )
    if with_teacher and represent.heads == "own" and student.heads != teacher.heads:
        faults.add(
            f"match {match.name}: {represent.name} are compared head by head, the student has {student.heads} heads, "
            f"the teacher {teacher.heads}; use --heads {teacher.heads}, or relations with relation heads (minilm-v2)"
        )
    if "query" in represent.needs and "key" in represent.needs:
        for model_type in dict.fromkeys(types):
            if not FAMILIES[model_type].plain_scores:
                faults.add(
                    f"match {match.name}: the attention scores of a {model_type} model hold more than queries and keys "
                    "and cannot be had; use another method"
                )
    if (
        not represent.sized
        and represent.rows == "tokens"
        and not takes_keys(match.distance)
        and represent.name != "attention_maps"
    ):
        faults.add(f"match {match.name}: {represent.name} have padded keys to leave out; use the distance mse or kl")
    words = not represent.sized and represent.rows == "tokens" and not represent.joint and represent.heads is None
    if words and match.distance is mse and match.reduction == "mean":
        faults.add(
            f"match {match.name}: {represent.name} of long texts have more elements than of short ones; use "
            "--reduction rowmean or batchmean"
        )
    if represent.heads not in (None, "own"):
        heads = teacher.heads if represent.heads == "teacher" else int(represent.heads)
        for side, width in (("student", student.width), ("teacher", teacher.width)):
            if width % heads:
                faults.add(
                    f"match {match.name}: {heads} relation heads do not divide the {side}'s width {width}; choose "
                    "others with --option relation_heads=N"
                )
    if match.flow is not None and len(pairs) != student.layers * teacher.layers:
        faults.add(f"match {match.name}: a flow needs every student layer paired with every teacher layer")
    if match.combine is not None and pairs and not groups:
        faults.add(f"match {match.name}: there is nothing to combine, its pairing gives one teacher layer a pair")
    faults.raise_any()
