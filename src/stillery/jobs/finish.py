"""The end of a run: score the model, write student, predictions and metrics, and clear the checkpoints away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.schema.examples import Examples
from stillery.data.schema.labels import Labels
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens
from stillery.evaluate.agreement import agreement_evaluation
from stillery.evaluate.cost import cost
from stillery.evaluate.predictions import predict_logits, write_predictions
from stillery.evaluate.report import evaluation
from stillery.jobs.card import Facts, card
from stillery.jobs.run_folder import write_json
from stillery.models.custom_head import HOW_TO_LOAD
from stillery.models.export import export
from stillery.models.projected_head import folded, is_custom
from stillery.progress import say
from stillery.train.checkpoint import discard
from stillery.train.loop import Outcome

__all__ = ["Result", "Scored", "finish"]

_LATENCY_EXAMPLES = 50


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished run: its folder, the folder of the model it made, and its metrics."""

    out: Path
    student: Path
    metrics: dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """The part the finished model is scored on."""

    task: str
    part: str
    examples: Examples
    tokens: Tokens
    labels: Labels
    metrics: tuple[str, ...] | None = None


def _single_inputs(scored: Scored, pad_id: int) -> list[dict[str, Any]]:
    """A few examples one by one, without padding, to measure latency on."""
    count = min(_LATENCY_EXAMPLES, len(scored.examples))
    return [
        collate(scored.examples, scored.tokens, np.array([index]), pad_id, pad_to=1).inputs for index in range(count)
    ]


def _beside(model: PreTrainedModel, teacher: PreTrainedModel | None, part: Scored, pad_id: int) -> dict[str, Any]:
    """The evaluation on another part of the task, such as MNLI's mismatched one."""
    gold = part.examples.labels
    assert gold is not None
    logits = [
        predict_logits(one, part.tokens, part.examples, pad_id=pad_id, description=f"score {part.part}")
        for one in (model, teacher)
        if one is not None
    ]
    return evaluation(part.task, gold, logits[0], part.labels, logits[1] if teacher else None, part.metrics)


def finish(
    out: Path,
    *,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    teacher: PreTrainedModel | None,
    scored: Scored,
    more: Sequence[Scored] = (),
    collapsed: bool = False,
    outcome: Outcome,
    length: int,
    facts: Facts,
) -> Result:
    """Write everything a run folder holds; `metrics.json` comes last and marks the run as finished.

    What is scored, counted and written is the exported model: a projector in the head is folded first.
    """
    model = folded(model)
    pad_id = int(tokenizer.pad_token_id)
    gold = scored.examples.labels
    logits = predict_logits(model, scored.tokens, scored.examples, pad_id=pad_id, description=f"score {scored.part}")
    teacher_logits = None
    if teacher is not None:
        teacher_logits = predict_logits(
            teacher, scored.tokens, scored.examples, pad_id=pad_id, description=f"score {scored.part} (teacher)"
        )
    if gold is not None:
        metrics = evaluation(scored.task, gold, logits, scored.labels, teacher_logits, scored.metrics)
    else:
        assert teacher_logits is not None
        metrics = agreement_evaluation(scored.task, logits, teacher_logits, scored.labels)
    metrics["part"] = scored.part
    if more:
        metrics["also"] = {part.part: _beside(model, teacher, part, pad_id) for part in more}
    if collapsed:
        say("warning: the model gives every dev example the same answer; it has learnt nothing useful")
        metrics["collapsed"] = True
    student = out / "student"
    model.cpu()
    if is_custom(model):
        say(f"the student's head is custom: it does not load as a plain checkpoint, but with `{HOW_TO_LOAD}`")
        metrics["custom_head"] = True
    export(model, tokenizer, student, card(facts, metrics))
    if teacher is not None:
        teacher.cpu()
    metrics["cost"] = cost(
        model, student, _single_inputs(scored, pad_id), length=length, train_seconds=outcome.seconds, teacher=teacher
    )
    metrics["training"] = {
        "steps": outcome.steps, "kept_step": outcome.kept_step, "stopped_early": outcome.stopped_early,
        "dev_best": outcome.best, "dev_last": outcome.last,
    }  # fmt: skip
    if outcome.warnings is not None:
        metrics["warnings"] = outcome.warnings
    if outcome.store_choices:
        metrics["training"] |= {
            "teacher_store_seconds": outcome.store_seconds, "teacher_store": outcome.store_choices,
        }  # fmt: skip
    if facts.start is not None:
        metrics["start"] = facts.start
    write_predictions(out / "predictions.parquet", scored.examples, scored.labels, logits, teacher_logits)
    write_json(out / "metrics.json", metrics)
    discard(out)
    return Result(out=out, student=student, metrics=metrics)
