"""Batches of a training loop of one's own as micro-batches of a step, and the rows that the loss terms average over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import Batch
from stillery.errors import UserError
from stillery.ignored import IGNORED
from stillery.losses import BY_TOKEN, Kind, Mixed
from stillery.models.model_inputs import accepted_inputs, masks_of, targets_of
from stillery.parts.mix import draw
from stillery.recipe import Clock, Mixing, Rows, Stage
from stillery.train.microbatches import MicroBatch
from stillery.train.trainable import Drawn, rows_of_lengths

__all__ = ["Reader", "StepRows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepRows:
    """The rows of a whole optimiser step, over its batches in all processes, by which its loss terms are divided.

    `batches` is the number of them in this process, `counts` what distances count themselves.
    """

    rows: Mapping[Rows, int]
    batches: int
    processes: int = 1
    counts: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Reader:
    """Reads batches, as a tokenizer or a DataLoader gives them, for a student that predicts answers of a kind."""

    student: PreTrainedModel
    kind: Kind
    drop_start: bool
    name: str

    def micro_batch(
        self, batch: Mapping[str, Any], stage: Stage, clock: Clock, number: int, step: StepRows | None
    ) -> MicroBatch:
        """Return batch number `number` of the optimiser step, with its share of the step's rows."""
        inputs, labels = self._inputs(batch), None
        if self.kind not in BY_TOKEN:
            labels = inputs.pop("labels", None)
        if stage.hard_weight or (self.kind in BY_TOKEN and stage.prediction is not None):
            self._check_labels(labels if self.kind not in BY_TOKEN else inputs.get("labels"), stage)
        if labels is not None:
            labels = self._as_kind(labels)
        size = len(inputs["input_ids"])
        index = inputs.pop("index", None)
        index = torch.arange(size) if index is None else index
        drawn = _drawn(size, stage.mixing, clock, number)
        mixed = None
        if drawn is not None:
            mixed = Mixed(lam=drawn[0], partner=torch.tensor(drawn[1], device=self.student.device))
        share: dict[Rows, float] = {}
        if step is not None:
            share = {name: count / max(step.rows[name], 1) for name, count in self._rows(inputs, drawn).items()}
        read = Batch(
            index=np.asarray(index.cpu()), ids=tuple(map(str, index.tolist())), inputs=inputs, labels=labels,
        )  # fmt: skip
        return MicroBatch(batch=read, share=share, mixed=mixed, places=index.to(self.student.device))

    def rows(self, batches: Sequence[Mapping[str, Any]], stage: Stage, clock: Clock) -> Counter[Rows]:
        """Count the rows of the batches of one optimiser step in this process."""
        total: Counter[Rows] = Counter()
        for number, batch in enumerate(batches):
            inputs = self._inputs(batch)
            total.update(self._rows(inputs, _drawn(len(inputs["input_ids"]), stage.mixing, clock, number)))
        return total

    def _inputs(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of a batch on the student's device, with an attention mask."""
        if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
            raise UserError(
                "the batch is no dictionary of tensors with input_ids: give what a tokenizer (return_tensors='pt') or "
                "a DataLoader with a collator of transformers gives"
            )
        device = self.student.device
        inputs = {name: value.to(device) for name, value in batch.items() if isinstance(value, Tensor)}
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
        return inputs

    def _rows(self, inputs: Mapping[str, Tensor], drawn: Drawn | None) -> dict[Rows, int]:
        student = self.student
        masks = masks_of(student, inputs, accepted_inputs(student, inputs), self.drop_start)
        lengths = {stack: mask.sum(1).cpu().numpy() for stack, mask in masks.items()}
        rows: dict[Rows, int] = {"examples": len(inputs["input_ids"])}
        targets = targets_of(student, inputs)
        if targets is not None:
            rows["targets"] = int((targets != IGNORED).sum())
        return rows | rows_of_lengths(lengths.get("encoder"), lengths.get("decoder"), drawn)

    def _check_labels(self, labels: Tensor | None, stage: Stage) -> None:
        """Raise UserError where a stage learns from labels and the batch has none, or some of another shape."""
        if labels is None:
            raise UserError(
                f"the batch has no labels, and stage {stage.name} of {self.name} learns from them: name them 'labels', "
                "or give options={'hard_weight': 0}"
            )
        wanted = {"classes": 1, "score": 1}.get(self.kind, 2)
        if labels.ndim - (labels.ndim == 2 and wanted == 1 and labels.shape[1] == 1) != wanted:
            raise UserError(
                f"the labels have the shape {tuple(labels.shape)}, and a student that predicts {self.kind} learns from "
                f"{'one label per text' if wanted == 1 else 'a row of labels per text'}: see problem_type in its config"
            )

    def _as_kind(self, labels: Tensor) -> Tensor:
        if self.kind in ("classes", "score") and labels.ndim == 2:
            labels = labels.squeeze(1)
        return labels.long() if self.kind == "classes" else labels.float()


def _drawn(size: int, mixing: Mixing | None, clock: Clock, number: int) -> Drawn | None:
    """Draw lambda and the partners of MixUp within a batch; those of a step of one batch are as in a run."""
    if mixing is None:
        return None
    seed = (clock.seed, clock.step, number) if number else (clock.seed, clock.step)
    return draw(size, mixing.alpha, mixing.pairing, seed, larger=mixing.larger)
