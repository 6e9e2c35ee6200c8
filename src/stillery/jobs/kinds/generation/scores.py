"""Generated texts and their scores: BLEU and chrF, or task metrics where they name classes; loss, perplexity."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stillery.data.readers.formats import format_of
from stillery.data.readers.writer import write_rows
from stillery.data.schema.answer_texts import references_of
from stillery.data.schema.labels import Labels
from stillery.data.tasks.glue_as_text import MIDDLE, written_scores
from stillery.data.tokens.encode import Tokens
from stillery.data.tokens.encode_generation import GenerationTokens
from stillery.errors import UserError
from stillery.evaluation.generate import Decoding, generate
from stillery.evaluation.report import evaluation
from stillery.evaluation.text_loss import token_loss
from stillery.evaluation.text_metrics import label_accuracy, perplexity, text_difference, text_scores
from stillery.jobs.config.settings import SearchSettings
from stillery.jobs.kinds.base import Scored
from stillery.jobs.kinds.generation.reading import Reading
from stillery.jobs.kinds.generation.teacher_texts import teacher_outputs
from stillery.models.load_model import Loaded
from stillery.progress import say

__all__ = [
    "Written",
    "decoding_of",
    "text_evaluation",
    "write_outputs",
    "written_by",
    "written_by_teacher",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """Generated texts of a model, texts per second, and its mean loss on the references, if there are any.

    `per_second` is None if all texts came from the cache. `decoding` holds the decoding settings.
    """

    outputs: list[str]
    per_second: float | None
    loss: float | None
    decoding: Decoding = field(default_factory=Decoding)


def decoding_of(settings: SearchSettings, reading: Reading, configs: Sequence[PreTrainedConfig]) -> Decoding:
    """Return the decoding settings, within the position limits of the models."""
    if settings.min_new_tokens > settings.max_new_tokens:
        raise UserError(
            f"--min-new-tokens {settings.min_new_tokens} is more than --max-new-tokens {settings.max_new_tokens}: "
            "lower it, or raise --max-new-tokens"
        )
    decoding = Decoding(**dataclasses.asdict(settings))
    # Relative positions (T5) have no limit, and no such entry.
    stated = [config.max_position_embeddings for config in configs if getattr(config, "max_position_embeddings", None)]
    room = min(stated, default=sys.maxsize) - (reading.max_source if reading.kind == "decoder" else 0)
    if room < 1:
        raise UserError(f"prompts of {reading.max_source} tokens leave no position to write in; lower --max-length")
    if decoding.max_new_tokens <= room:
        return decoding
    say(f"generated texts end after {room} tokens, not {decoding.max_new_tokens}: the model has no more positions")
    least = min(decoding.min_new_tokens, room)
    return dataclasses.replace(decoding, max_new_tokens=room, min_new_tokens=least)


def written_by(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Tokens,
    tokens: GenerationTokens | None,
    decoding: Decoding,
    *,
    batch_size: int,
    description: str,
) -> Written:
    """Generate texts with a model, and compute its loss on the references."""
    began = time.perf_counter()
    outputs = generate(
        model, tokenizer, prompts, decoding=decoding, batch_size=batch_size, description=f"{description}: write"
    )
    seconds = time.perf_counter() - began
    loss = _loss(model, tokenizer, tokens, batch_size, description)
    return Written(outputs=outputs, per_second=len(outputs) / max(seconds, 1e-9), loss=loss, decoding=decoding)


def written_by_teacher(
    teacher: Loaded, scored: Scored, tokens: GenerationTokens, reading: Reading, decoding: Decoding, *, batch_size: int
) -> Written:
    """Generate with a run's teacher and compute its loss; texts of earlier runs are read from the cache."""
    split = scored.split or ""
    began = time.perf_counter()
    outputs, new = teacher_outputs(teacher, scored.examples, reading, decoding, batch_size, split)
    seconds = time.perf_counter() - began
    loss = _loss(teacher.model, teacher.tokenizer, tokens, batch_size, f"{split} (teacher)")
    speed = new / max(seconds, 1e-9) if new else None
    return Written(outputs=outputs, per_second=speed, loss=loss, decoding=decoding)


def _loss(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokens: GenerationTokens | None,
    batch_size: int,
    description: str,
) -> float | None:
    if tokens is None:
        return None
    pad_id = int(tokenizer.pad_token_id)
    return token_loss(model, tokens, pad_id=pad_id, batch_size=batch_size, description=f"{description}: loss")


def text_evaluation(scored: Scored, student: Written, teacher: Written | None) -> dict[str, Any]:
    """Return the public JSON object of an evaluation of texts.

    It has the keys of `evaluation.report.evaluation`; for texts that do not name classes the metrics are bleu and chrf,
    with sacrebleu's signatures. Loss and perplexity, which have no interval here, come last.
    """
    found = _classes(scored, student, teacher) if scored.labels else _texts(scored, student, teacher)
    for key, written in (("metrics", student), ("teacher_metrics", teacher)):
        if written is not None and written.loss is not None:
            found[key] |= {"loss": round(written.loss, 4), "perplexity": round(perplexity(written.loss), 4)}
    found["decoding"] = dataclasses.asdict(student.decoding)
    if student.per_second is not None:
        found["texts_per_second"] = round(student.per_second, 2)
    if teacher is not None:
        found["agreement"] = round(100 * float(np.mean([a == b for a, b in _both(student, teacher)])), 4)
        if teacher.per_second is not None:
            found["teacher_texts_per_second"] = round(teacher.per_second, 2)
    return found


def _both(student: Written, teacher: Written) -> list[tuple[str, str]]:
    return list(zip(student.outputs, teacher.outputs, strict=True))


def _texts(scored: Scored, student: Written, teacher: Written | None) -> dict[str, Any]:
    references = references_of(scored.examples)
    scores = text_scores(student.outputs, references)
    found: dict[str, Any] = {
        "task": scored.task,
        "examples": len(student.outputs),
        "metrics": {"bleu": round(scores.bleu, 4), "chrf": round(scores.chrf, 4)},
        "intervals": {name: [round(bound, 4) for bound in pair] for name, pair in scores.intervals.items()},
        "signatures": dict(scores.signatures),
    }
    if teacher is not None:
        theirs = text_scores(teacher.outputs, references)
        apart = text_difference(student.outputs, teacher.outputs, references)
        found["teacher_metrics"] = {"bleu": round(theirs.bleu, 4), "chrf": round(theirs.chrf, 4)}
        between = [round(bound, 4) for bound in apart.intervals["bleu"]]
        found["difference"] = {"metric": "bleu", "value": round(apart.bleu, 4), "interval": between}
    return found


def _classes(scored: Scored, student: Written, teacher: Written | None) -> dict[str, Any]:
    assert scored.labels is not None and scored.gold is not None
    logits = [
        _chosen(written.outputs, scored.words, scored.gold, scored.labels) for written in (student, teacher) if written
    ]
    found = evaluation(
        scored.task, scored.gold, logits[0], scored.labels, logits[1] if teacher else None, scored.metrics
    )
    for key, written in (("no_label", student), ("teacher_no_label", teacher)):
        if written is not None:
            found[key] = _unknown(written.outputs, scored.words, scored.labels)
    return found


def _unknown(outputs: Sequence[str], words: Sequence[str], labels: Labels) -> int:
    """Count the texts that name no class, or that are no number in a regression task."""
    missing = np.isnan(written_scores(outputs)) if labels.regression else label_accuracy(outputs, words) < 0
    return int(missing.sum())


def _chosen(outputs: Sequence[str], words: Sequence[str], gold: NDArray[Any], labels: Labels) -> NDArray[np.float32]:
    """Return the class each text names, as logits, a wrong one where it names none; or for regression its score."""
    if labels.regression:
        return np.nan_to_num(written_scores(outputs), nan=MIDDLE)[:, None]
    named = label_accuracy(outputs, words)
    named = np.where(named < 0, (gold + 1) % labels.count, named)
    return np.eye(labels.count, dtype=np.float32)[named]


def write_outputs(path: Path, scored: Scored, student: Written, teacher: Written | None = None) -> None:
    """Write every example with its generated text: `id`, `source`, `references`, `output`, and the teacher's."""
    right: Mapping[str, Sequence[Any]] = {}
    if scored.examples.get("target") is not None:
        right = {"references": references_of(scored.examples)}
    columns: dict[str, Sequence[Any]] = {
        "id": list(scored.examples.ids),
        "source": scored.examples["source"].to_pylist(),
        **right,
        "output": student.outputs,
        **({"teacher_output": teacher.outputs} if teacher else {}),
    }
    if format_of(path) not in ("parquet", "jsonl") and "references" in columns:
        columns["references"] = [texts[0] if len(texts) == 1 else " ||| ".join(texts) for texts in right["references"]]
    with write_rows(path, list(columns)) as writer:
        writer.write({name: list(values) for name, values in columns.items()})
