"""GLUE in text-to-text format: the input formats and label words of T5."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stillery.data.schema.examples import Examples, columns_of
from stillery.data.schema.labels import NUMBER
from stillery.data.tasks.specification import Task
from stillery.errors import UserError

__all__ = ["GLUE_FORMATS", "MIDDLE", "glue_as_text", "label_words", "written_scores"]

GLUE_FORMATS = {
    "cola": "cola sentence: {text}",
    "sst2": "sst2 sentence: {text}",
    "mrpc": "mrpc sentence1: {text} sentence2: {pair}",
    "stsb": "stsb sentence1: {text} sentence2: {pair}",
    "qqp": "qqp question1: {text} question2: {pair}",
    "mnli": "mnli hypothesis: {pair} premise: {text}",
    "qnli": "qnli question: {text} sentence: {pair}",
    "rte": "rte sentence1: {text} sentence2: {pair}",
}
"""The input format of T5 (Raffel et al. 2020, appendix D) for each task; in MNLI the hypothesis comes first."""

STEPS = 5
HIGHEST = 5
MIDDLE = HIGHEST / 2
"""The score of a generated text that is not a number: the neutral middle of the scale."""


def label_words(task: Task) -> tuple[str, ...]:
    """The text that T5 generates for each class, in the task's order; for STS-B the scores 0.0, 0.2, ..., 5.0."""
    _check(task)
    if task.labels.regression:
        return tuple(f"{step / STEPS:.1f}" for step in range(HIGHEST * STEPS + 1))
    return task.labels.names


def written_scores(outputs: Sequence[str]) -> NDArray[np.float32]:
    """Parse generated texts as scores `[n]` with any decimals, clipped to [0, 5]; NaN for a text that is not a number.

    >>> written_scores(["3.8", " 4", "-1", "7.25", "3.8 or so", ""])
    array([3.8, 4. , 0. , 5. , nan, nan], dtype=float32)
    """
    found = [float(text) if NUMBER.fullmatch(text.strip()) else np.nan for text in outputs]
    return np.array(np.clip(found, 0, HIGHEST), dtype=np.float32)


def glue_as_text(task: Task, examples: Examples) -> Examples:
    """Convert a GLUE task's examples, with labels in the task's order, to T5's format; targets need labels."""
    _check(task)
    return Examples(
        ids=examples.ids,
        columns=columns_of(source=_sources(GLUE_FORMATS[task.name], examples), target=_targets(task, examples)),
        source=examples.source,
    )


def _sources(form: str, examples: Examples) -> pa.Array:
    texts = {"{text}": examples["text"], "{pair}": examples.get("text_pair")}
    pieces = [texts[word] if word in texts else pa.scalar(word, pa.large_string()) for word in form.split(" ")]
    return pc.binary_join_element_wise(*pieces, pa.scalar(" ", pa.large_string()))


def _targets(task: Task, examples: Examples) -> pa.Array | None:
    if examples.labels is None:
        return None
    labels, words = examples.labels, pa.array(label_words(task), type=pa.large_string())
    if task.labels.regression:
        # In single precision and half to even, as in T5.
        labels = np.round(labels.astype(np.float32) * np.float32(STEPS)).astype(np.int64)
    return words.take(pa.array(np.asarray(labels, dtype=np.int64)))


def _check(task: Task) -> None:
    if task.name not in GLUE_FORMATS:
        raise UserError(f"{task.name} has no form as text to text; T5 has {', '.join(GLUE_FORMATS)}")
