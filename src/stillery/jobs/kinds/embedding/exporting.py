"""Export of embedding models: how an exported one is compared with its checkpoint, and used without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillery.data.schema.labels import Labels
from stillery.deploy.gate import Agreement
from stillery.evaluation.embeddings import cosines
from stillery.jobs.export_usage import onnx_usage
from stillery.jobs.kinds.base import Exporting, Reader, Scored
from stillery.jobs.kinds.embedding.scores import answers

__all__ = ["EXPORTING"]

Vectors = NDArray[np.float32]


def _outputs(reader: Reader, scored: Scored, tokenised: Any) -> tuple[Vectors, Vectors]:
    vectors = answers(reader, scored, tokenised)
    return vectors, vectors


def _agreement(scored: Scored, ours: Vectors, theirs: Vectors) -> Agreement:
    """Return the mean cosine to the checkpoint's embeddings."""
    return Agreement(value=100 * float(cosines(ours, theirs).mean()), name="mean cosine", share=False)


def _usage(file: str, inputs: Sequence[str], labels: Labels, pairs: bool) -> list[str]:
    shown = [
        "vectors = logits / np.linalg.norm(logits, axis=1, keepdims=True)",
        "print(vectors @ vectors.T)",
    ]
    return onnx_usage(file, inputs, 'encode_batch(["some text", "another text"])', shown, names=False)


EXPORTING = Exporting(outputs=_outputs, agreement=_agreement, usage=_usage, tag="sentence-similarity", output="element")
