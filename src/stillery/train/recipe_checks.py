"""Validation of a recipe against its models before the first batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from transformers import PreTrainedConfig

from stillery.errors import ErrorList
from stillery.models.family import Sizes, attends_in_windows, kind_of, scores_are_plain, stacks_of
from stillery.pair_distances import flat_layers
from stillery.recipe import Clock, Match, Need, Pairs, Representation, Stage
from stillery.similarity_pairing import unmeasured
from stillery.train.step_plan import ModelSizes, pairs_of, rows_of, sizes_in

__all__ = ["check_stages"]


def check_stages(
    stages: Sequence[Stage],
    student: ModelSizes,
    teacher: ModelSizes | None,
    clock: Clock,
    configs: Sequence[PreTrainedConfig] = (),
) -> None:
    """Raise UserError, with all errors, for a recipe that these models (of these `configs`) cannot run."""
    errors = ErrorList()
    first = next(iter(stacks_of(configs[0]) if configs else ("encoder",) if isinstance(student, Sizes) else student))
    for stage in stages:
        if teacher is None:
            if stage.needs_teacher:
                errors.add(f"stage {stage.name} matches a teacher, and none is given")
            continue
        if len({match.name for match in stage.matches}) != len(stage.matches):
            errors.add(f"stage {stage.name}: two matches have the same name, their logs would mix")
        with errors.catch():
            _check_last_states(stage)
        named = [sizes for sizes in (student, teacher) if not isinstance(sizes, Sizes)]
        for match in stage.matches:
            if match.stack is not None and not all(match.stack in has for has in (*named, *map(stacks_of, configs))):
                errors.add(f"match {match.name} compares the {match.stack}, which the models do not have")
                continue
            ours, theirs = sizes_in(student, match.stack), sizes_in(teacher, match.stack)
            with errors.catch():
                pairs = pairs_of(unmeasured(match, ours.layers, theirs.layers), ours.layers, theirs.layers, clock)
                with errors.catch():
                    _check_pairs(match, pairs, ours, theirs)
                _check_parts(match, pairs, ours, theirs, configs, first)
    errors.raise_any()


def _check_last_states(stage: Stage) -> None:
    """Check that all matches of a stack read its last hidden state on the same side of the final norm."""
    errors = ErrorList()
    for stack in dict.fromkeys(match.stack for match in stage.matches):
        raw = {match.represent.raw_last for match in stage.matches if _needs_states(match, stack)}
        if len(raw) > 1:
            errors.add(
                f"stage {stage.name}: some matches compare the last state before its norm, others after it; use "
                "raw_last for all of a stack or for none"
            )
    errors.raise_any()


def _needs_states(match: Match, stack: str | None) -> bool:
    return match.stack == stack and "hidden" in match.represent.needs


def _check_pairs(match: Match, pairs: Pairs, student: Sizes, teacher: Sizes) -> None:
    errors = ErrorList()
    if not pairs:
        errors.add(
            f"match {match.name}: no layer pairs between a student of {student.layers} and a teacher of "
            f"{teacher.layers} layers; use more --layers or another --method"
        )
    for ours, theirs in pairs:
        if () in (ours, theirs):
            errors.add(f"match {match.name}: a pair ({ours}, {theirs}) is empty on one side")
        inside = all(0 <= layer <= student.layers for layer in flat_layers(ours))
        if not (inside and all(0 <= layer <= teacher.layers for layer in flat_layers(theirs))):
            errors.add(
                f"match {match.name}: pair ({ours}, {theirs}) is outside the student's 0..{student.layers} and the "
                f"teacher's 0..{teacher.layers}"
            )
        if "hidden" not in match.represent.needs and 0 in (*flat_layers(ours), *flat_layers(theirs)):
            errors.add(
                f"match {match.name}: pair ({ours}, {theirs}) names the embedding, which has no {match.represent.name}"
            )
    errors.raise_any()


def _check_parts(
    match: Match, pairs: Pairs, student: Sizes, teacher: Sizes, configs: Sequence[PreTrainedConfig], first: str
) -> None:
    represent, errors = match.represent, ErrorList()
    if match.criterion is not None:
        if not represent.sized or represent.rows != "examples":
            errors.add(f"match {match.name}: it needs one state per example (cls or pool), not {represent.name}")
        errors.raise_any()
        return
    groups = any(isinstance(layers, tuple) for pair in pairs for layers in pair)
    if pairs and represent.joint != groups and (represent.joint or not represent.sized):
        kind = "several layers at once" if represent.joint else "one layer at a time"
        errors.add(f"match {match.name}: {represent.name} compares {kind}, its pairing does not give that")
    with_teacher = match.against == "teacher"
    if with_teacher and represent.sized and student.width != teacher.width and match.project is None:
        errors.add(
            f"match {match.name}: the widths {student.width} and {teacher.width} differ, and it has no projection"
        )
    ours, theirs = _own_heads(student, represent), _own_heads(teacher, represent)
    if with_teacher and represent.heads == "own" and ours != theirs:
        errors.add(
            f"match {match.name}: {represent.name} are compared head by head, the student has {ours} heads, "
            f"the teacher {theirs}; use --heads {theirs}, or relations with relation heads (minilm-v2, or --option "
            "relation_heads=N of the -ild methods)"
        )
    scores = "query" in represent.needs and "key" in represent.needs
    for config in configs if scores else ():
        if attends_in_windows(config):
            errors.add(
                f"match {match.name}: some layers of a {config.model_type} model attend within a window, so that "
                "attention scores cannot be compared; use another method, such as minilm-v2"
            )
        elif not scores_are_plain(config, match.stack):
            errors.add(
                f"match {match.name}: the attention scores of a {config.model_type} model hold more than queries and "
                "keys and cannot be had; use another method"
            )
    crossed = match.stack == "decoder" and all(kind_of(config) == "encoder-decoder" for config in configs)
    if "cross_key" in represent.needs and not crossed:
        errors.add(f"match {match.name}: only the decoder of an encoder-decoder has {represent.name}")
    if not errors.lines:
        with errors.catch():
            rows_of(match, first)
    if represent.heads not in (None, "own"):
        heads = (teacher.key_heads or teacher.heads) if represent.heads == "teacher" else int(represent.heads)
        sides = {"student": student, "teacher": teacher}
        widths = {side: {_width_of(has, need, represent) for need in represent.needs} for side, has in sides.items()}
        fits = math.gcd(*(width for each in widths.values() for width in each))
        for side, each in widths.items():
            for width in (width for width in sorted(each) if width % heads):
                errors.add(
                    f"match {match.name}: {heads} relation heads do not divide {width}, the width of the {side}'s "
                    f"{' and '.join(represent.needs)}; choose a divisor of {fits} with --option relation_heads=N"
                )
    if match.flow is not None and len(pairs) != student.layers * teacher.layers:
        errors.add(f"match {match.name}: a flow needs every student layer paired with every teacher layer")
    if match.combine is not None and pairs and not groups:
        errors.add(f"match {match.name}: there is nothing to combine, its pairing gives one teacher layer a pair")
    errors.raise_any()


def _own_heads(has: Sizes, represent: Representation) -> int:
    """The number of heads of a stack's own queries, keys or values: keys and values may have fewer than queries."""
    shared = has.key_heads is not None and represent.needs in (("key",), ("value",))
    return has.key_heads or has.heads if shared else has.heads


def _width_of(has: Sizes, need: Need, represent: Representation) -> int:
    """The width of all heads of queries, keys or values side by side."""
    size = has.head_size or has.width // has.heads
    return size * (_own_heads(has, represent) if need in ("key", "value") else has.heads)
