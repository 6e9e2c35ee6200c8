"""Fine-tune a pretrained model on labelled examples, such as the teacher of a distillation."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

from stillery.jobs.config.settings import Asked, Finetune
from stillery.jobs.fingerprints import data_fingerprint, model_fingerprints
from stillery.jobs.finish import Result
from stillery.jobs.first_checks import check_first
from stillery.jobs.from_python import FromPython
from stillery.jobs.kinds.find import kind_to_train
from stillery.jobs.prepare import (
    Context,
    check_fingerprints,
    checked,
    fits_the_kind,
    has_a_place,
    needs,
    reads_its_data,
    tracks,
)
from stillery.jobs.prepared import Prepared
from stillery.jobs.restarts import until_it_learns
from stillery.jobs.run import carry_out
from stillery.lines import listed
from stillery.recipe import Stage

__all__ = ["prepare_finetune", "run_finetune"]


@needs(settings=("model",))
def is_of_a_kind(context: Context) -> None:
    """Read the model's configuration to find the kind of model."""
    context.kind = kind_to_train(context.run.model, context.run.data)


@needs()
def has_labels(context: Context) -> None:
    """Check that the data has labels, which fine-tuning needs."""
    if context.run.data.unlabelled:
        context.errors.add("--unlabelled is for stillery distill: fine-tuning learns from labels")


@needs("kind", settings=("model",))
def loads_its_model(context: Context) -> None:
    """Load the model and its tokenizer, and inherit the input settings of the run that trained it."""
    assert context.kind is not None
    context.model = context.kind.load_base(context.run.model, context.read, context.run.training.seed)
    context.run, context.notes = context.kind.inherit(context.asked, context.errors)


@needs("kind", "model")
def has_room_for_its_inputs(context: Context) -> None:
    """Check that examples fit into the model's positions."""
    assert context.kind is not None and context.model is not None
    model = context.model
    context.encoding = context.kind.encoding(context.run.inputs, [model.model.config], model.tokenizer)


_CHECKS = (
    is_of_a_kind,
    has_a_place,
    tracks,
    fits_the_kind,
    has_labels,
    reads_its_data,
    loads_its_model,
    has_room_for_its_inputs,
)


def prepare_finetune(
    asked: Asked[Finetune], out: Path | None = None, given: FromPython | None = None, *, resume: bool = False
) -> Prepared:
    """Load and check everything for fine-tuning; all errors are reported together.

    `given` holds the objects passed from Python; with `resume` the run in `out` continues.
    """
    given = given or FromPython()
    found = checked(asked, _CHECKS, out)
    run, kind, read, model = found.run, found.kind, found.read, found.model
    assert kind is not None and read is not None and model is not None
    prints = {"data": data_fingerprint(read.splits), **model_fingerprints("model", model)}
    check_fingerprints(run.fingerprints, prints, out if resume else None)
    new = sorted(model.missing)
    return Prepared(
        run=given.named(kind.written_out(dataclasses.replace(run, fingerprints=prints), found.encoding)),
        kind=kind,
        read=read,
        encoding=found.encoding,
        model=model.model,
        tokenizer=model.tokenizer,
        conditions=found.conditions,
        stages=(Stage(),),
        origin=(f"weights of {run.model}", *([f"new (random): {listed(new)}"] if new else [])),
        notes=found.notes,
        from_python=given,
    )


def run_finetune(
    asked: Asked[Finetune],
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    given: FromPython | None = None,
) -> Result:
    """Fine-tune and write the run folder, replacing an earlier run with `overwrite`.

    `given` holds the objects passed from Python.
    """
    check_first(asked, out, resume=resume, overwrite=overwrite)
    prepare = partial(prepare_finetune, given=given, resume=resume)
    prepared = prepare(asked, out)
    if not asked.run.restart.restarts:
        return carry_out(prepared, out, resume=resume, overwrite=overwrite)
    return until_it_learns(asked, prepared, out, prepare, resume=resume, overwrite=overwrite)
