"""A run that sorts texts into classes, gives them scores, or any of several labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from stillery.data.schema.examples import Examples, Parts
from stillery.data.schema.labels import Labels
from stillery.evaluate.metrics import agreement, majority_collapse, predicted, score
from stillery.evaluate.predictions import named_sets, predict_logits
from stillery.jobs.card import Facts, layer_counts
from stillery.jobs.card_usage import classification_usage
from stillery.jobs.config.settings import Distill
from stillery.jobs.finish import Result, Scored, finish
from stillery.jobs.inputs import token_limit, tokens_of
from stillery.jobs.run import Prepared
from stillery.losses import Kind
from stillery.train.loop import Outcome, TrainingData
from stillery.train.validation import OneAnswer, Scores

__all__ = ["Classification"]

_HARDLY = 0.01
"""Scores that differ less than this part of what the labels do are one score."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Classification:
    """Labelled texts and, for a stage of layers, texts alone."""

    parts: Parts
    supplementary: Examples | None = None

    @property
    def kind(self) -> Kind:
        """Classes, a set of labels, or a score."""
        return self.parts.labels.kind

    def summary(self) -> list[str]:
        """The data, in words."""
        parts, labels = self.parts, self.parts.labels
        test = f", {len(parts.test)} test" if parts.test is not None else ""
        several = "any of the " if labels.multi else ""
        lines = [
            f"data: {parts.source}, {len(parts.train)} train, {len(parts.dev)} dev{test} examples, "
            f"{'regression' if labels.regression else several + 'labels ' + ', '.join(labels.names[:10])}",
            *([f"data: {parts.note}"] if parts.note else []),
        ]
        if self.supplementary is not None:
            lines.append(f"data: {self.supplementary.source}, {len(self.supplementary)} texts for the stage of layers")
        return lines

    def work(self, prepared: Prepared) -> ClassificationWork:
        """Tokenise every part."""
        parts = self.parts
        limit = token_limit(prepared.run.data.max_length, *prepared.configs)
        named = {"train": parts.train, "dev": parts.dev, "test": parts.test, **parts.more}
        scored = {
            name: Scored(
                task=parts.source,
                part=name,
                examples=examples,
                tokens=tokens_of(examples, prepared.tokenizer, limit, name),
                labels=parts.labels,
                metrics=parts.metrics,
            )
            for name, examples in named.items()
            if examples is not None
        }
        return ClassificationWork(
            prepared=prepared, parts=parts, scored=scored, limit=limit, supplementary=self._texts(prepared)
        )

    def _texts(self, prepared: Prepared) -> TrainingData | None:
        """The texts of the stage of layers, tokenised to a length of their own."""
        run = prepared.run
        if self.supplementary is None or not isinstance(run, Distill):
            return None
        limit = token_limit(run.method.ild_max_length or run.data.max_length, *prepared.configs)
        tokens = tokens_of(self.supplementary, prepared.tokenizer, limit, "supplementary")
        return TrainingData(examples=self.supplementary, tokens=tokens, pad_id=_pad(prepared))


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationWork:
    """Every part with its tokens."""

    prepared: Prepared
    parts: Parts
    scored: Mapping[str, Scored]
    limit: int
    supplementary: TrainingData | None

    def of(self, prepared: Prepared) -> ClassificationWork:
        """The same data, of a run whose start is decided."""
        return replace(self, prepared=prepared)

    @cached_property
    def data(self) -> TrainingData:
        """The training part."""
        train = self.scored["train"]
        return TrainingData(examples=train.examples, tokens=train.tokens, pad_id=_pad(self.prepared))

    def score(self, model: PreTrainedModel) -> Mapping[str, float]:
        """Against the dev part's labels or, where it has none, against the teacher's answers."""
        dev = self.scored["dev"]
        logits = self._logits(model, "dev")
        if dev.examples.labels is not None:
            gold = dev.examples.labels
            return Scores(score(gold, logits, dev.labels, dev.metrics), _one_answer(logits, gold, dev.labels))
        theirs = predicted(self._answers, dev.labels)
        metrics = {"agreement": agreement(logits, self._answers, dev.labels)}
        return Scores(metrics, _one_answer(logits, theirs, dev.labels))

    @cached_property
    def _answers(self) -> NDArray[np.float32]:
        """The teacher's, asked for when the student is first scored, on its device; training may have put it away."""
        assert self.prepared.teacher is not None
        teacher = self.prepared.teacher.model
        before = teacher.device
        teacher.to(self.prepared.model.device)  # type: ignore[arg-type]
        answers = self._logits(teacher, "dev (teacher)")
        teacher.to(before)  # type: ignore[arg-type]
        return answers

    def _logits(self, model: PreTrainedModel, description: str, progress: bool = True) -> NDArray[np.float32]:
        dev, pad_id = self.scored["dev"], _pad(self.prepared)
        return predict_logits(
            model, dev.tokens, dev.examples, pad_id=pad_id, description=description, progress=progress
        )

    def finish(self, out: Path, model: PreTrainedModel, outcome: Outcome) -> Result:
        """Score, on test where it has labels, and write the run folder."""
        prepared, parts, scored = self.prepared, self.parts, self.scored
        origin = f"{parts.source} ({parts.note})" if parts.note else parts.source
        return finish(
            out,
            model=model,
            tokenizer=prepared.tokenizer,
            teacher=prepared.teacher.model if prepared.teacher else None,
            scored=scored.get("test", scored["dev"]),
            more=[scored[name] for name in parts.more],
            collapsed=majority_collapse(self._logits(model, "dev", progress=False), parts.labels),
            outcome=outcome,
            length=self.limit,
            facts=Facts(
                run=prepared.run, data=origin, origin=prepared.origin, paper=prepared.paper,
                start=prepared.start.record() if prepared.start else None, tag="text-classification",
                title="Fine-tuned classifier", layers=layer_counts(model.config),
                usage=classification_usage(several_labels=parts.labels.multi),
            ),
        )  # fmt: skip


def _one_answer(logits: NDArray[Any], expected: NDArray[Any], labels: Labels) -> OneAnswer | None:
    """The answer that all examples are given, if it is one; of scores one that hardly differs where labels do."""
    found = predicted(logits, labels)
    if labels.regression:
        if found.std() >= _HARDLY * expected.std():
            return None
        return OneAnswer(answer=f"the score {found.mean():.3g}", examples=len(found))
    if not majority_collapse(logits, labels):
        return None
    if labels.multi:
        names = named_sets(found[:1], labels)[0]
        answer = f"the labels {', '.join(names)}" if names else "no label"
        return OneAnswer(answer=answer, examples=len(found), expected=float((expected == found).all(axis=1).mean()))
    share = float((expected == found).mean())
    return OneAnswer(answer=f"the class {labels.names[found[0]]}", examples=len(found), expected=share)


def _pad(prepared: Prepared) -> int:
    return int(prepared.tokenizer.pad_token_id)
