"""The command `stillery predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.options import as_searched, with_settings
from stillery.jobs.config.settings import SearchSettings
from stillery.lines import show
from stillery.models.option_words import POOLINGS
from stillery.setting import Panel
from stillery.verbosity import Verbosity, verbosity

__all__ = ["predict"]


@with_settings(SearchSettings, defaults=as_searched())
def predict(
    *,
    model: Annotated[str, typer.Argument(help="A model folder, a run folder, or a name on the hub.")],
    data: Annotated[
        Path,
        typer.Option(help="A CSV, TSV, JSON, Parquet, Excel, CoNLL or text file.", rich_help_panel=Panel.FIRST),
    ],
    out: Annotated[
        Path, typer.Option(help="File to write; its suffix decides the format.", rich_help_panel=Panel.FIRST)
    ],
    text: Annotated[
        str | None,
        typer.Option(
            help="Column with the text, or with lists of words.  [default: found by name]", rich_help_panel=Panel.DATA
        ),
    ] = None,
    text_pair: Annotated[
        str | None,
        typer.Option(help="Column with the second text.  [default: found by name]", rich_help_panel=Panel.DATA),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens per text; longer ones are cut.  [default: as the model was trained, else 128]",
            min=4,
            rich_help_panel=Panel.DATA,
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            help="How a plain encoder embeds texts.  [default: as its folder says, else mean]",
            metavar="|".join(POOLINGS),
            rich_help_panel=Panel.DATA,
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of a text file, such as latin-1 or utf-16.  [default: UTF-8]", rich_help_panel=Panel.DATA
        ),
    ] = None,
    skip_empty: Annotated[
        bool | None,
        typer.Option(
            "--skip-empty/--no-skip-empty",
            help="Leave out rows with no text, which are errors otherwise.",
            rich_help_panel=Panel.DATA,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Texts at a time.", min=1, rich_help_panel=Panel.SPEED)] = 64,
    source: Annotated[
        str | None,
        typer.Option(
            help="Column to write from, for a model that generates text.  [default: found by name]",
            rich_help_panel=Panel.GENERATION,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Prompt of a decoder, with {source} in it.  [default: as the model was trained]",
            rich_help_panel=Panel.GENERATION,
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="Text put before each source.  [default: as the model was trained]",
            rich_help_panel=Panel.GENERATION,
        ),
    ] = None,
    settings: dict[str, Any],
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace the file in --out, once all rows are written.", rich_help_panel=Panel.OUTPUT
        ),
    ] = False,
) -> None:
    """Write every row of a file with what a model predicts for it.

    A classifier adds its prediction and probabilities, a token classifier its prediction for each word, a model that
    generates text its output, an embedding model the embedding of the text.
    """
    from stillery.jobs.first_checks import check_scoring

    check_scoring((model,), data, file=("--out", out), overwrite=overwrite)
    from stillery.jobs.predict import run_predict

    rows = run_predict(
        model, data, out, batch_size=batch_size, overwrite=overwrite, text=text, text_pair=text_pair,
        max_length=max_length, pooling=pooling, source=source, prompt=prompt, prefix=prefix, encoding=encoding,
        skip_empty=skip_empty, **settings,
    )  # fmt: skip
    if verbosity() is not Verbosity.QUIET:
        show(f"{rows} rows written to {out}")
