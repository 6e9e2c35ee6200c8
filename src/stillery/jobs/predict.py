"""Label new text with a model, streaming from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillery.data.labels import Labels
from stillery.data.stream import TextBatch, stream_texts
from stillery.data.tokens import tokenise
from stillery.data.writing import write_rows
from stillery.evaluate.metrics import predicted
from stillery.evaluate.predictions import predict_logits, probabilities
from stillery.faults import Fault
from stillery.jobs.inputs import token_limit
from stillery.models.load import load_classifier
from stillery.progress import bar, quiet

__all__ = ["run_predict"]


def run_predict(
    model: str,
    data: Path,
    out: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    max_length: int = 128,
    batch_size: int = 64,
) -> int:
    """Write every row of a file with its `prediction` and, for classes, a `probability_NAME` each; return the rows."""
    if out.resolve() == data.resolve():
        raise Fault(f"--out {out} is the input file: give another name")
    loaded = load_classifier(model)
    labels = Labels.of_model(loaded.model.config)
    limit = token_limit(max_length, loaded.model.config)
    added = ["prediction"] + ([] if labels.regression else [f"probability_{name}" for name in labels.names])
    batches = stream_texts(data, text=text, text_pair=text_pair)
    first = next(batches, None)
    if first is None:
        raise Fault(f"{data}: the file has no rows")
    columns = first.batch.schema.names
    clash = [name for name in added if name in columns]
    if clash:
        raise Fault(f"{data} already has the column {clash[0]!r}: rename it")
    rows = 0
    with write_rows(out, [*columns, *added]) as writer, bar("predict", None) as shown:
        current: TextBatch | None = first
        while current is not None:
            with quiet():
                tokens = tokenise(current.examples, loaded.tokenizer, limit)
            logits = predict_logits(
                loaded.model,
                tokens,
                current.examples,
                pad_id=int(loaded.tokenizer.pad_token_id),
                batch_size=batch_size,
                progress=False,
            )
            values: dict[str, list[Any]] = {name: current.batch.column(name).to_pylist() for name in columns}
            guess = predicted(logits, labels).tolist()
            values["prediction"] = guess if labels.regression else [labels.names[index] for index in guess]
            if not labels.regression:
                for name, column in zip(added[1:], probabilities(logits, labels).T, strict=True):
                    values[name] = [round(float(value), 6) for value in column]
            writer.write(values)
            rows += len(guess)
            shown.advance(len(guess))
            current = next(batches, None)
    return rows
