"""`stillery predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["predict"]


def predict(
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, or a name on the hub.")],
    data: Annotated[Path, typer.Option(help="A CSV, TSV, JSON Lines, Parquet or text file with texts.")],
    out: Annotated[Path, typer.Option(help="File to write; its suffix decides the format.")],
    text: Annotated[str | None, typer.Option(help="Column with the text.  [default: found by name]")] = None,
    text_pair: Annotated[
        str | None, typer.Option(help="Column with the second text.  [default: found by name]")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens per text; longer ones are cut.  [default: as the model was trained, else 128]", min=4
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts at a time.", min=1)] = 64,
) -> None:
    """Label new text: every row of a file with its prediction and probabilities."""
    from stillery.jobs.predict import run_predict

    rows = run_predict(model, data, out, text=text, text_pair=text_pair, max_length=max_length, batch_size=batch_size)
    print(f"{rows} rows written to {out}")
