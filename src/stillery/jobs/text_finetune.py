"""Fine-tune a pretrained model that writes text."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from stillery.data.schema.examples import Splits
from stillery.jobs.config.inherited import as_taught
from stillery.jobs.config.settings import EXAMPLES, Asked, Finetune
from stillery.jobs.fingerprints import data_fingerprint
from stillery.jobs.model_kind import check_no_classes
from stillery.jobs.run import Prepared, check_fingerprints, check_training
from stillery.jobs.run_folder import check_place
from stillery.jobs.text_conditions import drawn
from stillery.jobs.text_generation import Writing
from stillery.jobs.text_inputs import Reading, TextScored, text_parts_of, written_out
from stillery.jobs.text_scores import decoding_of, need_scorer
from stillery.models.load import Loaded, fingerprint, load_generator
from stillery.recipe import Stage

__all__ = ["prepare_text_finetune"]


def prepare_text_finetune(asked: Asked[Finetune], out: Path | None = None) -> Prepared:
    """Load and check everything; all errors are reported together."""
    run, errors = asked.run, asked.gathered()
    parts: Splits | None = None
    scored: dict[str, TextScored] = {}
    model: Loaded | None = None
    reading: Reading | None = None
    conditions: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if out is not None:
        with errors.catch():
            check_place(out)
    check_training(run.training, errors)
    check_no_classes(run.data, errors)
    if run.data.unlabelled:
        errors.add("--unlabelled is for stillery distill: fine-tuning learns from the right texts")
    if run.restart.restarts:
        errors.add("--restarts is for classifiers: a model that writes text does not fall to one class")
    if asked.clear(*EXAMPLES):
        with errors.catch():
            parts, scored = text_parts_of(run.data, run.generation)
            parts, conditions = drawn(run.condition, parts)
            need_scorer(scored.values())
    if asked.clear("model"):
        with errors.catch():
            model = load_generator(run.model)
            run, notes = as_taught(asked, errors)
            reading = Reading.of(run.data, run.generation, [model.model.config])
            reading.check(model.tokenizer)
            decoding = decoding_of(run.search, reading, [model.model.config])
    errors.raise_any()
    assert parts is not None and model is not None and reading is not None
    prints = {"data": data_fingerprint(parts), "model": fingerprint(model)}
    check_fingerprints(run.fingerprints, prints)
    return Prepared(
        run=dataclasses.replace(run, generation=written_out(run.generation, reading), fingerprints=prints),
        subject=Writing(parts=parts, scored=scored, reading=reading, decoding=decoding),
        model=model.model,
        tokenizer=model.tokenizer,
        teacher=None,
        notes=notes,
        conditions=conditions,
        stages=(Stage(),),
        origin=(f"weights of {run.model}",),
        pairs={},
    )
