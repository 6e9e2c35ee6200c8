"""The command `stillery tasks synth`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stillery.lines import show
from stillery.verbosity import Verbosity, verbosity

__all__ = ["synth"]


def synth(
    corpus: Annotated[Path, typer.Option("--from", help="A text, CSV, TSV, JSON Lines or Parquet file with texts.")],
    size: Annotated[int, typer.Option(help="How many pairs.")],
    length: Annotated[
        int | None, typer.Option(help="Tokens of a pair, special ones counted.  [default: any number]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; its suffix decides the format.  [default: synth-SIZE-LENGTH.parquet]"),
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="The model whose tokens are counted.")] = "minilm-l6",
    tolerance: Annotated[float, typer.Option(help="How far the length may be off, as a share of it.")] = 0.1,
    min_words: Annotated[int, typer.Option(help="Fewest words of a sentence.")] = 11,
    text: Annotated[str | None, typer.Option(help="Column with the text.  [default: found by name]")] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other pairs.")] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file in --out, once the pairs are drawn.")
    ] = False,
) -> None:
    """Make sentence pairs by size and length from any corpus, for --ild-data."""
    from stillery.jobs.synthetic_pairs import run_synth

    if out is None:
        out = Path(f"synth-{size}-{length}.parquet" if length is not None else f"synth-{size}.parquet")
    made = run_synth(
        corpus, out, size=size, length=length, tolerance=tolerance, min_words=min_words, text=text,
        tokenizer=tokenizer, seed=seed, overwrite=overwrite,
    )  # fmt: skip
    if verbosity() is Verbosity.QUIET:
        return
    show(
        f"{made.pairs:,} pairs out of {made.sentences:,} sentences written to {out}; effective length "
        f"{made.mean_length:.1f} tokens in the mean, {made.shortest} to {made.longest}"
    )
