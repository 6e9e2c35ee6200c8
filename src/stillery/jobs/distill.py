"""Distil a fine-tuned teacher into a smaller student."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stillery import methods
from stillery.data.examples import Parts
from stillery.data.labels import Labels
from stillery.faults import Gathered
from stillery.jobs.finish import Result
from stillery.jobs.folder import check_place
from stillery.jobs.inputs import parts_of
from stillery.jobs.run import Prepared, carry_out, check_fingerprints, check_training, data_fingerprint
from stillery.jobs.settings import EXAMPLES, Asked, Distill, MethodSettings, StudentSettings
from stillery.jobs.student import make_student
from stillery.models.family import sizes
from stillery.models.load import Loaded, fingerprint, load_classifier
from stillery.models.student import Student
from stillery.recipe import Clock, Recipe, Stage
from stillery.train.check import check_stages
from stillery.train.objective import pairs_of

__all__ = ["prepare_distill", "run_distill"]


def prepare_distill(asked: Asked[Distill], out: Path | None = None) -> Prepared:
    """Load and check everything; all faults are reported together."""
    run, faults = asked.run, asked.gathered()
    recipe: Recipe | None = None
    teacher: Loaded | None = None
    parts: Parts | None = None
    student: Student | None = None
    if out is not None:
        with faults.catch():
            check_place(out)
    check_training(run.training, faults)
    if asked.clear("method"):
        with faults.catch():
            recipe = methods.build(run.method.method, run.method.method_options())
            _check_learns(recipe.stages, faults)
    if asked.clear("teacher"):
        with faults.catch():
            teacher = load_classifier(run.teacher)
    if asked.clear(*EXAMPLES):
        with faults.catch():
            parts = parts_of(run.data, Labels.of_model(teacher.model.config) if teacher else None)
    settings = _resolved_student(run.student, recipe)
    depth_clear = asked.clear("layers", "copy_layers")
    if teacher is not None:
        if not depth_clear:
            # The depth has been found fault with; any that fits lets the rest be looked at.
            settings = dataclasses.replace(settings, layers=1, copy_layers=None)
        with faults.catch():
            student = make_student(settings, teacher, run.training.seed)
    clock = Clock(seed=run.training.seed)
    if student is not None and teacher is not None and recipe is not None and depth_clear:
        with faults.catch():
            check_stages(recipe.stages, sizes(student.model.config), sizes(teacher.model.config), clock)
    faults.raise_any()
    assert recipe is not None and teacher is not None and parts is not None and student is not None
    prints = {"data": data_fingerprint(parts), "teacher": fingerprint(teacher)}
    check_fingerprints(run.fingerprints, prints)
    depths = sizes(student.model.config).layers, sizes(teacher.model.config).layers
    resolved = dataclasses.replace(
        run,
        student=dataclasses.replace(settings, layers=depths[0]),
        method=_resolved_method(run.method),
        fingerprints=prints,
    )
    return Prepared(
        run=resolved,
        model=student.model,
        tokenizer=teacher.tokenizer,
        teacher=teacher,
        parts=parts,
        stages=recipe.stages,
        origin=student.origin,
        paper=methods.find(run.method.method).paper,
        pairs={match.name: pairs_of(match, *depths, clock) for stage in recipe.stages for match in stage.matches},
    )


def _check_learns(stages: tuple[Stage, ...], faults: Gathered) -> None:
    """Note every stage whose losses all weigh nothing."""
    for stage in stages:
        soft = stage.prediction.weight if stage.prediction else 0.0
        if not any((stage.hard_weight, soft, *(match.weight for match in stage.matches))):
            faults.add(f"stage {stage.name}: every loss has weight 0, so nothing is learnt; raise --hard-weight")


def _resolved_student(settings: StudentSettings, recipe: Recipe | None) -> StudentSettings:
    """The student with the method's choices where none were made."""
    return dataclasses.replace(
        settings,
        init=settings.init or (recipe.init if recipe else "even"),
        head=settings.head or (recipe.head if recipe else "fresh"),
    )


def _resolved_method(method: MethodSettings) -> MethodSettings:
    """The method with every option written out, so that a later change of defaults does not change the run."""
    options = methods.find(method.method).options | method.method_options()
    options = {name: value for name, value in options.items() if value is not None}
    return MethodSettings(
        method=method.method,
        hard_weight=options.pop("hard_weight", None),
        temperature=options.pop("temperature", None),
        options=options,
    )


def run_distill(asked: Asked[Distill], out: Path, *, resume: bool = False) -> Result:
    """Distil and write the run folder."""
    return carry_out(prepare_distill(asked, out), out, resume=resume)
