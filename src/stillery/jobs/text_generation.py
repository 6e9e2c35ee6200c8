"""A run whose model writes text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from stillery.data.schema.text_examples import TextExamples, TextParts
from stillery.data.tokens.text_batches import collate_text
from stillery.data.tokens.text_encode import TextTokens
from stillery.evaluate.cost import cost
from stillery.evaluate.generate import Decoding, end_ids, left_aside
from stillery.evaluate.inference_mode import device_of
from stillery.evaluate.text_loss import token_loss
from stillery.evaluate.text_metrics import perplexity
from stillery.jobs.card import Facts, card, layer_counts
from stillery.jobs.card_usage import generation_notes, generation_tag, generation_usage
from stillery.jobs.finish import Result
from stillery.jobs.run import Prepared
from stillery.jobs.run_folder import write_json
from stillery.jobs.teacher_texts import TeacherTexts
from stillery.jobs.text_inputs import Reading, TextScored
from stillery.jobs.text_scores import Written, text_evaluation, write_outputs, written_by, written_by_teacher
from stillery.losses import Kind
from stillery.models.export import export
from stillery.train.checkpoint import discard
from stillery.train.data import TextData
from stillery.train.loop import Outcome

__all__ = ["Writing"]

_LATENCY_EXAMPLES = 20
# Texts that a GPU writes at a time, whatever a step trains on: one step of a search is mostly waiting.
_WRITTEN_AT_ONCE = 128


@dataclass(frozen=True, kw_only=True, eq=False)
class Writing:
    """Sources and the texts to write from them, how they are read, and what is scored.

    `supplementary` are texts for a stage of layers, read in a way of their own. `rewrite` gives the training part as
    tokens with other targets, those a teacher writes itself.
    """

    parts: TextParts
    scored: Mapping[str, TextScored]
    reading: Reading
    supplementary: TextExamples | None = None
    supplementary_reading: Reading | None = None
    decoding: Decoding
    rewrite: Callable[[TextExamples], TeacherTexts] | None = None

    @property
    def kind(self) -> Kind:
        """Text."""
        return "text"

    def summary(self) -> list[str]:
        """The data, in words."""
        parts = self.parts
        test = f", {len(parts.test)} test" if parts.test is not None else ""
        lines = [
            f"data: {parts.source}, {len(parts.train)} train, {len(parts.dev)} dev{test} examples, texts to write",
            *([f"data: {parts.note}"] if parts.note else []),
        ]
        if self.supplementary is not None:
            lines.append(f"data: {self.supplementary.origin}, {len(self.supplementary)} texts for the stage of layers")
        return lines

    def work(self, prepared: Prepared) -> WritingWork:
        """Tokenise every part."""
        reading, tokenizer = self.reading, prepared.tokenizer
        padding: dict[str, Any] = {"pad_id": int(tokenizer.pad_token_id), "drop_start": prepared.drop_start}
        own = None if self.rewrite is None else self.rewrite(self.parts.train)
        train = reading.tokens(self.parts.train, tokenizer, "train") if own is None else own.tokens
        other = None
        if self.supplementary is not None:
            read = self.supplementary_reading or reading
            other = TextData(tokens=read.tokens(self.supplementary, tokenizer, "supplementary"), **padding)
        return WritingWork(
            prepared=prepared,
            subject=self,
            data=TextData(tokens=train, **padding),
            dev=reading.tokens(self.parts.dev, tokenizer, "dev"),
            supplementary=other,
            own=own,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class WritingWork:
    """The parts as tokens; `own` are the teacher's own texts, where those are trained on."""

    prepared: Prepared
    subject: Writing
    data: TextData
    dev: TextTokens
    supplementary: TextData | None
    own: TeacherTexts | None = None

    def of(self, prepared: Prepared) -> WritingWork:
        """The same data, of a run whose start is decided."""
        return replace(self, prepared=prepared)

    @cached_property
    def _pad_id(self) -> int:
        return int(self.prepared.tokenizer.pad_token_id)

    def score(self, model: PreTrainedModel) -> Mapping[str, float]:
        """How likely the dev part's texts are: the mean log likelihood of a token decides, the higher the better."""
        size = self.prepared.run.training.batch_size
        loss = token_loss(model, self.dev, pad_id=self._pad_id, batch_size=size, description="dev")
        return {"log_likelihood": -loss, "perplexity": perplexity(loss)}

    def finish(self, out: Path, model: PreTrainedModel, outcome: Outcome) -> Result:
        """Have the model and its teacher write the test part, score both, and write the run folder."""
        prepared, run, parts = self.prepared, self.prepared.run, self.subject.scored
        tokenizer, reading, teacher = prepared.tokenizer, self.subject.reading, prepared.teacher
        scored = parts.get("test", parts["dev"])
        tokens = self._tokens(scored)
        student, theirs = self._written(scored, tokens, model)
        metrics = text_evaluation(scored, student, theirs, self.subject.decoding)
        metrics |= {"part": scored.part, "writes": reading.kind}
        more = {name: one for name, one in parts.items() if name not in ("dev", "test")}
        if more:
            metrics["also"] = {
                name: text_evaluation(one, *self._written(one, self._tokens(one), model), self.subject.decoding)
                for name, one in more.items()
            }
        source, note = self.subject.parts.source, self.subject.parts.note
        origin = f"{source} ({note})" if note else source
        facts = Facts(
            run=run, data=origin, origin=prepared.origin, paper=prepared.paper,
            start=prepared.start.record() if prepared.start else None, tag=generation_tag(reading.kind, run.data.task),
            layers=layer_counts(model.config), notes=generation_notes,
            usage=generation_usage(
                reading.kind, decoding=metrics["decoding"], max_source=reading.max_source, prompt=reading.prompt or "",
                prefix=reading.prefix or "", left_aside=left_aside(model),
            ),
        )  # fmt: skip
        model.cpu()
        export(model, tokenizer, out / "student", card(facts, metrics), end_ids(model, tokenizer))
        if teacher is not None:
            teacher.model.cpu()
        metrics["cost"] = cost(
            model,
            out / "student",
            self._single(tokens),
            length=reading.max_source,
            train_seconds=outcome.seconds,
            teacher=teacher.model if teacher else None,
        )
        metrics["training"] = {
            "steps": outcome.steps, "kept_step": outcome.kept_step, "stopped_early": outcome.stopped_early,
            "dev_best": outcome.best, "dev_last": outcome.last,
        }  # fmt: skip
        if outcome.warnings is not None:
            metrics["warnings"] = outcome.warnings
        if facts.start is not None:
            metrics["start"] = facts.start
        if self.own is not None:
            metrics["teacher_texts"] = self.own.record()
        write_outputs(out / "predictions.parquet", scored, student, theirs)
        write_json(out / "metrics.json", metrics)
        discard(out)
        return Result(out=out, student=out / "student", metrics=metrics)

    def _tokens(self, scored: TextScored) -> TextTokens:
        assert scored.part is not None
        if scored.part == "dev":
            return self.dev
        return self.subject.reading.tokens(scored.examples, self.prepared.tokenizer, scored.part)

    def _written(
        self, scored: TextScored, tokens: TextTokens, model: PreTrainedModel
    ) -> tuple[Written, Written | None]:
        """What the model writes for a part, and its teacher."""
        prepared, tokenizer = self.prepared, self.prepared.tokenizer
        prompts = self.subject.reading.prompts(scored.examples, tokenizer, scored.part or "")
        size = prepared.run.training.batch_size
        if device_of(model).type == "cuda":
            size = max(size, _WRITTEN_AT_ONCE)
        reading, decoding = self.subject.reading, self.subject.decoding
        student = written_by(
            model, tokenizer, prompts, tokens, decoding, batch_size=size, description=scored.part or ""
        )
        if prepared.teacher is None:
            return student, None
        return student, written_by_teacher(prepared.teacher, scored, tokens, reading, decoding, batch_size=size)

    def _single(self, tokens: TextTokens) -> list[dict[str, Any]]:
        """A few examples one by one, without padding, to measure latency on."""
        count = min(_LATENCY_EXAMPLES, len(tokens))
        return [collate_text(tokens, np.array([row]), self._pad_id, pad_to=1).inputs for row in range(count)]
