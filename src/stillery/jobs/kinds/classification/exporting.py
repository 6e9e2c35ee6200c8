"""Export of classifiers: how an exported one is compared with its checkpoint, and used without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.deploy.gate import Agreement
from stillery.evaluation.metrics import agreement
from stillery.evaluation.ranking_metrics import Queries
from stillery.evaluation.ranking_report import rank_agreement
from stillery.jobs.export_usage import onnx_usage
from stillery.jobs.kinds.base import Exporting, Reader, Scored
from stillery.jobs.kinds.classification.scores import answers

__all__ = ["EXPORTING"]

Logits = NDArray[np.float32]

_RANKS = "Rank agreement: the share of a query's pairs of documents in the checkpoint's order; the mean over queries."


def _outputs(reader: Reader, scored: Scored, tokenised: Any) -> tuple[Logits, Logits]:
    logits = answers(reader, scored, tokenised)
    return logits, logits


def _agreement(scored: Scored, ours: Logits, theirs: Logits) -> Agreement:
    """Return the share of equal predictions; of scores the correlation, of documents the order."""
    labels, query = scored.labels, scored.examples.get("query")
    assert labels is not None
    if query is not None:
        value = rank_agreement(ours, theirs, labels, Queries.of(query), scored.task)
        return Agreement(value=value, name="rank agreement", about=_RANKS)
    value = agreement(ours, theirs, labels)
    return Agreement(value=value, name="correlation", share=False) if labels.regression else Agreement(value=value)


def _usage(file: str, inputs: Sequence[str], labels: Labels, pairs: bool) -> list[str]:
    texts = '[("some text", "its second text")]' if pairs else '["some text", "another text"]'
    if labels.regression:
        shown = "print(logits[:, 0])"
    elif labels.multi:
        shown = "print([[names[str(place)] for place in np.flatnonzero(row > 0)] for row in logits])"
    else:
        shown = "print([names[str(row.argmax())] for row in logits])"
    return onnx_usage(file, inputs, f"encode_batch({texts})", [shown], names=not labels.regression)


EXPORTING = Exporting(outputs=_outputs, agreement=_agreement, usage=_usage)
