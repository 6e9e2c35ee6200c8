"""The examples on which an exported model is compared with its checkpoint, and the checkpoint's answers for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.split_folders import scored_split
from stillery.deploy.onnx_export import INPUTS
from stillery.errors import UserError
from stillery.jobs.config.inherited import as_trained
from stillery.jobs.config.settings import InputSettings
from stillery.jobs.data_of_run import data_of_run
from stillery.jobs.evaluate import check_batch_size
from stillery.jobs.kinds.base import Answers, Exporting, Kind, Reader, Scored
from stillery.jobs.kinds.find import all_kinds, kind_of_model
from stillery.lines import listed
from stillery.models.family import FAMILIES
from stillery.models.model_inputs import accepted_inputs
from stillery.progress import say
from stillery.setting import Named

__all__ = ["Subject", "exporting_of", "subject_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """A checkpoint to export, the examples to compare on, and its logits and answers for them."""

    kind: Kind
    exporting: Exporting
    reader: Reader
    scored: Scored
    tokenised: Any
    logits: NDArray[Any]
    answers: Answers

    @property
    def where(self) -> str:
        """The examples, in words."""
        split = f" {self.scored.split}" if self.scored.split else ""
        return f"{len(self.scored.examples)}{split} examples of {self.scored.task}"

    @property
    def pairs(self) -> bool:
        """Whether an example has two texts."""
        return self.scored.examples.get("text_pair") is not None

    @property
    def inputs(self) -> list[str]:
        """The inputs of the exported model: token types where the model has them and its tokenizer gives them."""
        given = self.tokenised.batch(np.arange(1), pad_to=1).inputs
        accepted = accepted_inputs(self.reader.loaded.model, given)
        return [name for name in INPUTS if name in accepted]

    def score(self, answers: Answers) -> tuple[str, float, tuple[float, float] | None]:
        """Return the name and value of the first metric, and its interval."""
        found = self.kind.evaluation(self.scored, answers, self.answers if self.scored.gold is None else None)
        name, value = next(iter(found["metrics"].items()))
        between = found["intervals"].get(name)
        return name, float(value), None if between is None else (float(between[0]), float(between[1]))


def subject_of(model: str, settings: Mapping[str, Any], split: str | None, batch_size: int, named: Named) -> Subject:
    """Load a checkpoint and the examples to compare on; refuse models of a kind that is not exported."""
    check_batch_size(batch_size)
    kind, exporting = exporting_of(model)
    inputs, split = _inputs(model, settings, split, named)
    loaded = kind.as_set(kind.load(model), inputs.data)
    scoring = kind.read_to_score(inputs, loaded, split)
    (encoding,) = kind.readers(scoring, [(loaded, inputs)])
    for note in dict.fromkeys([*scoring.notes, *encoding.notes]):
        say(note)
    scored = scoring.scored
    reader = Reader(loaded=loaded, encoding=encoding, batch_size=batch_size, description="checkpoint")
    tokenised = encoding.data(scored.examples, loaded.tokenizer, scored.split or scored.task)
    logits, answers = exporting.outputs(reader, scored, tokenised)
    return Subject(
        kind=kind, exporting=exporting, reader=reader, scored=scored, tokenised=tokenised, logits=logits,
        answers=answers,
    )  # fmt: skip


def exporting_of(model: str) -> tuple[Kind, Exporting]:
    """Return the kind of a model and how it is exported; raise UserError for a kind that is not."""
    kind = kind_of_model(model)
    if kind.exporting is None:
        *others, last = (one.name for one in all_kinds() if one.exporting is not None)
        raise UserError(
            f"{model}: a model for {kind.name}, which stillery export does not write; it writes encoders for "
            f"{', '.join(others)} and {last} ({listed(FAMILIES, 20)})"
        )
    return kind, kind.exporting


def _inputs(
    model: str, settings: Mapping[str, Any], split: str | None, named: Named
) -> tuple[InputSettings, str | None]:
    """Return the inputs and the split of the examples: the given ones, else the dev split of the model's run."""
    given = {name: value for name, value in settings.items() if value is not None}
    if given.get("data") is None and given.get("task") is None:
        return as_trained(model, data_of_run(model) | given, named), split or "dev"
    if split is None and (given.get("task") is not None or scored_split(Path(given["data"])) is not None):
        split = "dev"
    return as_trained(model, given, named), split
