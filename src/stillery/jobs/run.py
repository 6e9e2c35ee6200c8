"""Carry out a prepared run: open its folder, tokenise, train, finish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.examples import Examples, Parts
from stillery.evaluate.metrics import score
from stillery.evaluate.predictions import predict_logits
from stillery.faults import Fault, Gathered
from stillery.jobs.card import Facts
from stillery.jobs.finish import Result, Scored, finish
from stillery.jobs.folder import begin, is_done, read_metrics
from stillery.jobs.inputs import token_limit, tokens_of
from stillery.jobs.settings import Distill, Finetune
from stillery.models.family import sizes
from stillery.models.load import Loaded
from stillery.models.projected import exported_parameters
from stillery.progress import console, say
from stillery.recipe import Pairs, Stage
from stillery.train.checkpoint import discard
from stillery.train.log import need_tensorboard
from stillery.train.loop import Score, TrainingData, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.precision import choose
from stillery.train.settings import Training
from stillery.train.teacher import LiveTeacher

__all__ = ["Prepared", "carry_out", "check_fingerprints", "check_training", "data_fingerprint"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A run with everything loaded and checked, ready to train."""

    run: Finetune | Distill
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    teacher: Loaded | None
    parts: Parts
    stages: tuple[Stage, ...]
    origin: tuple[str, ...]
    paper: str | None = None
    pairs: Mapping[str, Pairs]
    supplementary: Examples | None = None

    def summary(self) -> list[str]:
        """What is about to run, in words."""
        has = sizes(self.model.config)
        what = "student" if self.teacher else "model"
        parts = self.parts
        test = f", {len(parts.test)} test" if parts.test is not None else ""
        lines = [
            f"data: {parts.source}, {len(parts.train)} train, {len(parts.dev)} dev{test} examples, "
            f"{'regression' if parts.labels.regression else 'labels ' + ', '.join(parts.labels.names[:10])}",
            *([f"data: {parts.note}"] if parts.note else []),
            f"{what}: {self.model.config.model_type}, {has.layers} layers x {has.width}, "
            f"{exported_parameters(self.model):,} parameters",
            *(f"{what}: {line}" for line in self.origin),
        ]
        if self.supplementary is not None:
            lines.append(f"data: {self.supplementary.source}, {len(self.supplementary)} texts for the stage of layers")
        for name, pairs in self.pairs.items():
            lines.append(f"{name}: student-teacher layers {', '.join(f'{i}-{j}' for i, j in pairs)}")
        return lines


def check_training(training: Training, faults: Gathered) -> None:
    """Note what the training options need and this machine lacks."""
    if training.tensorboard:
        with faults.catch():
            need_tensorboard()


def data_fingerprint(parts: Parts) -> str:
    """A hash of all parts."""
    return "-".join(part.fingerprint[:16] for part in (parts.train, parts.dev, parts.test) if part is not None)


def check_fingerprints(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse to repeat a run on other data or another model than the run file was written for."""
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if changed:
        raise Fault(
            f"the {' and the '.join(changed)} changed since this run file was written; "
            "remove its [fingerprints] to run anyway"
        )


def _score_on(part: Scored, pad_id: int) -> Score:
    gold = part.examples.labels
    assert gold is not None
    return lambda model: score(
        gold, predict_logits(model, part.tokens, part.examples, pad_id=pad_id, description="dev"), part.labels
    )


def _tokenised(prepared: Prepared, limit: int) -> dict[str, Scored]:
    """Every part with its tokens, ready to be scored on."""
    parts = prepared.parts
    return {
        name: Scored(
            task=parts.source,
            part=name,
            examples=examples,
            tokens=tokens_of(examples, prepared.tokenizer, limit, name),
            labels=parts.labels,
        )
        for name, examples in (("train", parts.train), ("dev", parts.dev), ("test", parts.test))
        if examples is not None
    }


def _supplementary(prepared: Prepared, configs: Sequence[PreTrainedConfig], pad_id: int) -> TrainingData | None:
    """The texts of the stage of layers, tokenised to a length of their own."""
    examples, run = prepared.supplementary, prepared.run
    if examples is None or not isinstance(run, Distill):
        return None
    limit = token_limit(run.method.ild_max_length or run.data.max_length, *configs)
    tokens = tokens_of(examples, prepared.tokenizer, limit, "supplementary")
    return TrainingData(examples=examples, tokens=tokens, pad_id=pad_id)


def carry_out(prepared: Prepared, out: Path, *, resume: bool = False) -> Result:
    """Train and finish a run in its folder; a finished one is only read back."""
    run, parts, teacher = prepared.run, prepared.parts, prepared.teacher
    accelerator = accelerator_for("fp32")
    precision = choose(run.training.precision, accelerator.device.type)
    if precision != "fp32":
        accelerator = accelerator_for(precision)
    console.quiet = console.quiet or not accelerator.is_main_process
    if is_done(out, run, resume=resume):
        say(f"{out}: this run is finished already; nothing to do")
        if accelerator.is_main_process:
            # The process may have been killed after its last word and before it cleared away.
            discard(out)
        return Result(out=out, student=out / "student", metrics=read_metrics(out))
    for line in prepared.summary():
        say(line)

    configs = [prepared.model.config, *([teacher.model.config] if teacher else [])]
    limit = token_limit(run.data.max_length, *configs)
    scored = _tokenised(prepared, limit)
    pad_id = int(prepared.tokenizer.pad_token_id)
    objective = Objective(
        prepared.model,
        prepared.stages,
        teacher=sizes(teacher.model.config) if teacher else None,
        regression=parts.labels.regression,
        seed=run.training.seed,
        examples=len(parts.train),
    )
    # Nothing is written before everything is checked, and not before every process has looked at the folder.
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        begin(out, run)
    accelerator.wait_for_everyone()
    outcome = train(
        objective,
        TrainingData(examples=parts.train, tokens=scored["train"].tokens, pad_id=pad_id),
        run.training,
        accelerator=accelerator,
        teacher=LiveTeacher(teacher.model) if teacher else None,
        score=_score_on(scored["dev"], pad_id),
        folder=out,
        resume=resume,
        supplementary=_supplementary(prepared, configs, pad_id),
    )
    result = None
    if accelerator.is_main_process:
        result = finish(
            out,
            model=objective.student,
            tokenizer=prepared.tokenizer,
            teacher=teacher.model if teacher else None,
            scored=scored.get("test", scored["dev"]),
            outcome=outcome,
            length=limit,
            facts=Facts(run=run, data=f"{parts.source} ({parts.note})" if parts.note else parts.source,
                        origin=prepared.origin, paper=prepared.paper),
        )  # fmt: skip
    accelerator.wait_for_everyone()
    return result or Result(out=out, student=out / "student", metrics=read_metrics(out))
