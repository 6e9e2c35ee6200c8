"""The trained projections of a run, read from its folder, and the space of the teacher that they take states to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from stillery.errors import UserError
from stillery.jobs.analyses.subjects import Subject
from stillery.jobs.chosen_recipe import chosen_recipe
from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill
from stillery.jobs.kinds.find import kind_of_model
from stillery.models.family import sizes, stack_sizes
from stillery.models.load_model import Loaded, read_config
from stillery.models.model_folder import run_in
from stillery.pair_distances import flat_layers
from stillery.recipe import Clock, Pairs
from stillery.similarity_pairing import asks
from stillery.train.checkpoint import PROJECTIONS
from stillery.train.step_plan import pairs_of, sizes_in

__all__ = ["ToTeacher", "TrainedMap", "to_student_width", "to_teacher_width", "trained_maps"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedMap:
    """One trained linear map of a run: of the `student`'s or the `teacher`'s states, of one pair of layers or shared.

    `student_layers` and `teacher_layers` are those of its pair as the run began (of all pairs of a shared map); a
    pairing may draw others in later epochs.
    """

    match: str
    side: str
    slot: int
    shared: bool
    stack: str | None
    student_layers: tuple[int, ...]
    teacher_layers: tuple[int, ...]
    weight: Tensor
    bias: Tensor | None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose states it maps."""
        return self.student_layers if self.side == "student" else self.teacher_layers


@dataclass(frozen=True, kw_only=True, eq=False)
class ToTeacher:
    """The student's layers that a run's projections take to the teacher's width, each with its map."""

    maps: Mapping[int, TrainedMap]
    width: int

    @property
    def layers(self) -> list[int]:
        """The layers that have a map."""
        return sorted(self.maps)

    def mapped(self, states: Tensor) -> Tensor:
        """Project the states of the layers that have a map, [layers, ..., width], in their order."""
        return torch.stack([_apply(self.maps[layer], one) for layer, one in zip(self.layers, states, strict=True)])

    def all_layers(self, states: Tensor) -> Tensor:
        """Project the states of all layers, embedding first; those without a map become NaN."""
        rows = []
        for layer, one in enumerate(states):
            found = self.maps.get(layer)
            missing = one.new_full((*one.shape[:-1], self.width), torch.nan)
            rows.append(missing if found is None else _apply(found, one))
        return torch.stack(rows)


def _apply(found: TrainedMap, states: Tensor) -> Tensor:
    mapped = states @ found.weight.to(states).T
    return mapped if found.bias is None else mapped + found.bias.to(states)


def to_teacher_width(student: Subject, teacher: Subject, stack: str, *, needed: bool = True) -> ToTeacher | None:
    """Return the maps of the student's states to the teacher's width; None where the widths agree.

    Without such maps it raises UserError if they are `needed`, else returns None.
    """
    widths = [sizes(one.model.config, stack).width for one in (student, teacher)]
    if widths[0] == widths[1]:
        return None
    maps = {
        layer: found
        for found in trained_maps(student.name, teacher.loaded, needed=False)
        if found.side == "student" and found.stack in (None, stack) and found.weight.shape[0] == widths[1]
        for layer in found.student_layers
        if len(found.student_layers) == 1 or found.shared
    }
    if maps:
        return ToTeacher(maps=maps, width=widths[1])
    if not needed:
        return None
    raise UserError(
        f"{student.name} is {widths[0]} wide and {teacher.name} {widths[1]}: angles and products exist only between "
        "vectors of one space, and the run has no trained projections to the teacher's width; give a student of the "
        "teacher's width, or a run of a method with such projections (layer-forward, tinybert)"
    )


def to_student_width(student: Subject, teacher: Subject, stack: str) -> Callable[[Tensor], Tensor] | None:
    """Return the run's map of all teacher states to the student's width; None where the widths agree."""
    widths = [sizes(one.model.config, stack).width for one in (student, teacher)]
    if widths[0] == widths[1]:
        return None
    for found in trained_maps(student.name, teacher.loaded, needed=False):
        if found.side == "teacher" and found.stack in (None, stack) and tuple(found.weight.shape) == tuple(widths):
            return partial(_apply, found)
    raise UserError(
        f"{student.name} is {widths[0]} wide, {teacher.name} {widths[1]}: a dot product needs both in one space, and "
        "the run has no trained map of the teacher's states to the student's width; give a student of the "
        "teacher's width, or a run of alp-kd"
    )


def trained_maps(run: str, teacher: Loaded | None = None, *, needed: bool = True) -> list[TrainedMap]:
    """Return the trained maps of a run; with none, raise UserError if they are `needed`."""
    folder = run_in(run)
    file = None if folder is None else folder / PROJECTIONS
    if folder is None or file is None or not file.is_file():
        if not needed:
            return []
        why = "is no run of stillery distill" if folder is None else "has none: its method trains no projections"
        raise UserError(f"{run}: no trained projections to look at, for it {why}; try rail-kd, tinybert, ckd-combine")
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: cannot be read ({error}); copy the run again") from None
    pairs = _pairs(folder, teacher)
    found = []
    for name in sorted(name for name in tensors if name.endswith(".weight")):
        stage, _, rest = name.removesuffix(".weight").partition(".")
        match, side, slot = rest.rsplit(".", 2)
        met, stack, shared = pairs[int(stage), match]
        chosen = met if shared else met[int(slot) : int(slot) + 1]
        ours, theirs = (
            tuple(dict.fromkeys(layer for pair in chosen for layer in flat_layers(pair[place]))) for place in (0, 1)
        )
        found.append(
            TrainedMap(
                match=match,
                side=side,
                slot=int(slot),
                shared=shared,
                stack=stack,
                student_layers=ours,
                teacher_layers=theirs,
                weight=tensors[name],
                bias=tensors.get(f"{name.removesuffix('.weight')}.bias"),
            )
        )
    return found


def _pairs(folder: Path, teacher: Loaded | None) -> dict[tuple[int, str], tuple[Pairs, str | None, bool]]:
    """Return by stage and match: its layer pairs as the run began, its stack, and whether its map is shared."""
    asked = ask(Distill, {}, folder / "run.toml")
    asked.gathered().raise_any()
    run = asked.run
    loaded = teacher or kind_of_model(run.teacher).load(run.teacher)
    kind = kind_of_model(run.teacher, run.data)
    run = kind.method(run, loaded)
    recipe = kind.recipe(chosen_recipe(run.method, None), run, loaded)
    ours, theirs = stack_sizes(read_config(str(folder))), stack_sizes(loaded.model.config)
    measured = folder / "similarity.json"
    kept = json.loads(measured.read_text(encoding="utf-8"))["pairs"] if measured.is_file() else {}
    found = {}
    for number, stage in enumerate(recipe.stages):
        for match in (match for match in stage.matches if match.project is not None):
            depths = [sizes_in(each, match.stack).layers for each in (ours, theirs)]
            met = (
                _as_pairs(kept[match.name])
                if asks(match)
                else pairs_of(match, depths[0], depths[1], Clock(seed=run.training.seed))
            )
            found[number, match.name] = (met, match.stack, _is_shared(match.project, len(met)))
    return found


def _as_pairs(rows: Sequence[Sequence[int]]) -> Pairs:
    return tuple((student, teacher) for student, teacher in rows)


def _is_shared(project: object, pairs: int) -> bool:
    return pairs > 1 and bool(getattr(project, "keywords", {}).get("shared"))
