"""Fine-tune a pretrained model on labelled examples: the teacher of everything that follows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from stillery.data.schema.examples import Splits
from stillery.jobs.classification import Classification
from stillery.jobs.conditions import under
from stillery.jobs.config.settings import EXAMPLES, Asked, Finetune
from stillery.jobs.fingerprints import data_fingerprint
from stillery.jobs.finish import Result
from stillery.jobs.inputs import parts_of
from stillery.jobs.model_kind import check_no_text, writes_text
from stillery.jobs.restarts import until_it_learns
from stillery.jobs.run import Prepared, carry_out, check_fingerprints, check_training
from stillery.jobs.run_folder import check_place
from stillery.jobs.text_finetune import prepare_text_finetune
from stillery.models.load import Loaded, fingerprint, load_classifier
from stillery.recipe import Stage

__all__ = ["prepare_finetune", "run_finetune"]


def prepare_finetune(asked: Asked[Finetune], out: Path | None = None) -> Prepared:
    """Load and check everything; all errors are reported together."""
    writes = writes_text(asked.run.model) if asked.clear("model") else None
    if writes:
        return prepare_text_finetune(asked, out)
    run, errors = asked.run, asked.gathered()
    if writes is not None:
        check_no_text(asked, errors)
    parts: Splits | None = None
    conditions: dict[str, Any] = {}
    model: Loaded | None = None
    if out is not None:
        with errors.catch():
            check_place(out)
    check_training(run.training, errors)
    if run.data.unlabelled:
        errors.add("--unlabelled is for stillery distill: fine-tuning learns from labels")
    elif writes is not None and asked.clear(*EXAMPLES):
        with errors.catch():
            parts, conditions = under(run.condition, parts_of(run.data, None))
    if asked.clear("model"):
        with errors.catch(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.training.seed)
            model = load_classifier(run.model, labels=parts.label_space.count if parts else 2)
    errors.raise_any()
    assert parts is not None and model is not None
    config = model.model.config
    config.id2label, config.label2id = parts.label_space.id2label, parts.label_space.label2id
    config.problem_type = parts.label_space.problem_type
    prints = {"data": data_fingerprint(parts), "model": fingerprint(model)}
    check_fingerprints(run.fingerprints, prints)
    new = sorted(model.missing)
    return Prepared(
        run=dataclasses.replace(run, fingerprints=prints),
        model=model.model,
        tokenizer=model.tokenizer,
        teacher=None,
        subject=Classification(parts=parts),
        conditions=conditions,
        stages=(Stage(),),
        origin=(f"weights of {run.model}", *([f"new (random): {', '.join(new)}"] if new else [])),
        pairs={},
    )


def run_finetune(asked: Asked[Finetune], out: Path, *, resume: bool = False) -> Result:
    """Fine-tune and write the run folder."""
    prepared = prepare_finetune(asked, out)
    if not asked.run.restart.restarts:
        return carry_out(prepared, out, resume=resume)
    return until_it_learns(asked, prepared, out, prepare_finetune, resume=resume)
