"""How a model that generates text is scored: its loss during training, its texts at the end and beside a teacher's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from stillery.data.schema.answer_texts import references_of
from stillery.evaluation.generate import end_ids, left_aside
from stillery.evaluation.generation_speed import EXAMPLES, generation_speed
from stillery.evaluation.inference_mode import device_of, to_device
from stillery.evaluation.text_loss import token_loss
from stillery.evaluation.text_metrics import perplexity
from stillery.jobs.card_usage import generation_notes, generation_tag, generation_usage
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.kinds.base import Finishing, Reader, Scored, Scoring
from stillery.jobs.kinds.generation.encoding import Encoding, encoding
from stillery.jobs.kinds.generation.reading import meant_for
from stillery.jobs.kinds.generation.scores import (
    Written,
    text_evaluation,
    write_outputs,
    written_by,
    written_by_teacher,
)
from stillery.jobs.prepared import Data, Prepared
from stillery.models.load_model import Loaded
from stillery.progress import quiet
from stillery.train.settings import Training
from stillery.train.trainable import TextData

__all__ = ["answers", "batch_size", "compared", "evaluation", "finishing", "readers", "scorer", "write_answers"]

# Texts that a GPU generates at a time, whatever a step trains on: one step of a search is mostly waiting.
_WRITTEN_AT_ONCE = 128


def scorer(prepared: Prepared, data: Data) -> Callable[[PreTrainedModel], Mapping[str, float]]:
    """How likely the right texts of the dev split are: the mean log likelihood of a token decides."""
    size = prepared.run.training.batch_size
    _, dev = data.splits["dev"]

    def scores(model: PreTrainedModel) -> Mapping[str, float]:
        loss = token_loss(model, dev.tokens, pad_id=dev.pad_id, batch_size=size, description="dev")
        return {"log_likelihood": -loss, "perplexity": perplexity(loss)}

    return scores


def batch_size(training: Training, device: torch.device) -> int:
    """As many as a micro-batch has, on a GPU more."""
    return max(training.batch_size, _WRITTEN_AT_ONCE) if device.type == "cuda" else training.batch_size


def readers(scoring: Scoring, models: Sequence[tuple[Loaded, InputSettings]]) -> list[Encoding]:
    """Each model reads in its own way; all of them search alike, within the positions of the shortest."""
    found = []
    for place, (model, inputs) in enumerate(models):
        # Settings of the first model may be given for another kind of stack.
        meant = inputs.generation if place == 0 else meant_for(model.model.config, inputs.generation)
        own = dataclasses.replace(inputs, generation=meant, search=models[0][1].search)
        found.append(encoding(own, [model.model.config], model.tokenizer))
    decoding = min((one.decoding for one in found), key=lambda one: one.max_new_tokens)
    return [dataclasses.replace(one, decoding=decoding) for one in found]


def answers(reader: Reader, scored: Scored, tokenised: TextData | None) -> Written:
    """The texts that a model generates for the sources, and how likely it finds the right ones."""
    loaded, encoding, split = reader.loaded, reader.encoding, reader.description
    if tokenised is None:
        tokenised = encoding.data(scored.examples, loaded.tokenizer, split)
    size, decoding = reader.batch_size, encoding.decoding
    if reader.cached:
        return written_by_teacher(loaded, scored, tokenised.tokens, encoding.reading, decoding, batch_size=size)
    prompts = encoding.reading.prompts(scored.examples, loaded.tokenizer, split)
    return written_by(
        loaded.model, loaded.tokenizer, prompts, tokenised.tokens, decoding, batch_size=size, description=split
    )


def evaluation(scored: Scored, student: Written, teacher: Written | None) -> dict[str, Any]:
    """BLEU, chrF, loss and perplexity, or a task's own metrics where the texts name classes."""
    return text_evaluation(scored, student, teacher)


def compared(scored: Scored, written: Written) -> tuple[list[list[str]], list[str]]:
    """The references of each example, a list each, and the text that was generated for it."""
    return references_of(scored.examples), written.outputs


def write_answers(path: Path, scored: Scored, student: Written, teacher: Written | None) -> None:
    """Write every example with the texts of the model and of its teacher."""
    write_outputs(path, scored, student, teacher)


def _speed(prepared: Prepared, data: Data, model: PreTrainedModel) -> dict[str, float | int]:
    """How many texts a second the model, and its teacher, generate from a few examples of the scored split."""
    encoding, teacher = prepared.encoding, prepared.teacher
    scored, _ = data.splits.get("test", data.splits["dev"])
    count = min(len(scored.examples), EXAMPLES)
    few = scored.examples.take([row * len(scored.examples) // count for row in range(count)])
    size = min(batch_size(prepared.run.training, device_of(model)), count)
    models = [(model, prepared.tokenizer)]
    if teacher is not None:
        # It may have been elsewhere, as where its texts came from the cache.
        to_device(teacher.model)
        models.append((teacher.model, teacher.tokenizer))
    with quiet():
        writers = [(one, tokenizer, encoding.reading.prompts(few, tokenizer, "")) for one, tokenizer in models]
        ours, *theirs = generation_speed(writers, encoding.decoding, size)
    found = {"texts_per_second": round(ours, 2), "generation_batch": size, "generation_beams": encoding.decoding.beams}
    if theirs:
        found |= {"teacher_texts_per_second": round(theirs[0], 2), "generation_speedup": ours / theirs[0]}
    return found


def finishing(prepared: Prepared, data: Data, model: PreTrainedModel) -> Finishing:
    """How the model reads, and the settings of its own that a search leaves aside."""
    reading, decoding = prepared.encoding.reading, prepared.encoding.decoding
    usage = generation_usage(
        reading.kind, decoding=dataclasses.asdict(decoding), max_source=reading.max_source, prompt=reading.prompt,
        prefix=reading.prefix, left_aside=left_aside(model),
    )  # fmt: skip
    tag = generation_tag(reading.kind, prepared.run.data.task)
    return Finishing(
        metrics={"writes": reading.kind},
        cost=_speed(prepared, data, model),
        card={"tag": tag, "usage": usage, "notes": generation_notes},
        ends=end_ids(model, prepared.tokenizer),
    )
