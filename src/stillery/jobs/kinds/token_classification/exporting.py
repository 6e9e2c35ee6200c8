"""Export of token classifiers: how an exported one is compared with its checkpoint, and used without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.deploy.gate import Agreement
from stillery.evaluation.word_predictions import NO_TAG, predict_words, predicted_tags
from stillery.jobs.export_usage import onnx_usage
from stillery.jobs.kinds.base import Exporting, Reader, Scored
from stillery.jobs.kinds.token_classification.scores import as_scored

__all__ = ["EXPORTING"]

Ints = NDArray[np.int64]


def _outputs(reader: Reader, scored: Scored, tokenised: Any) -> tuple[NDArray[np.float32], Ints]:
    """Return the logits of each word's first piece, and the tags they stand for."""
    model, words = reader.loaded.model, tokenised.words
    logits = predict_words(
        model, words, pad_id=tokenised.pad_id, batch_size=reader.batch_size, description=f"score {reader.description}"
    )
    return logits, as_scored(reader, scored, predicted_tags(logits, words, int(model.config.num_labels or 0)))


def _agreement(scored: Scored, ours: Ints, theirs: Ints) -> Agreement:
    """Return the percentage of words with equal tags, of those that were not truncated."""
    shown = theirs != NO_TAG
    return Agreement(value=100 * float((ours == theirs)[shown].mean()))


def _usage(file: str, inputs: Sequence[str], labels: Labels, pairs: bool) -> list[str]:
    # A word's tag is that of its first piece, as in training.
    shown = [
        "for word in range(len(words)):",
        "    print(words[word], names[str(logits[0][tokens[0].word_ids.index(word)].argmax())])",
    ]
    encode = "encode_batch([words], is_pretokenized=True)"
    return onnx_usage(file, inputs, encode, shown, names=True, first=['words = "some text in words".split()'])


EXPORTING = Exporting(outputs=_outputs, agreement=_agreement, usage=_usage, tag="token-classification")
