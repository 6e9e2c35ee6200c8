"""The command `stillery evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.options import OWN_TASK, as_searched, as_trained_else, with_settings
from stillery.jobs.config.settings import DataSettings, GenerationSettings, SearchSettings
from stillery.setting import Panel, option_name

__all__ = ["evaluate"]


@with_settings(
    DataSettings, GenerationSettings, SearchSettings,
    defaults=as_trained_else("model", prefix=OWN_TASK) | as_searched(), hidden=["unlabelled"],
)  # fmt: skip
def evaluate(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="A model folder, a run folder, or a name on the hub; several are compared."
        ),
    ],
    settings: dict[str, Any],
    against: Annotated[str | None, typer.Option(help="A teacher to compare with.", rich_help_panel=Panel.FIRST)] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="train, dev or test, of MNLI also dev_mismatched.  [default: a whole file; else test, or dev]",
            rich_help_panel=Panel.DATA,
        ),
    ] = None,
    submission: Annotated[
        Path | None,
        typer.Option(
            help="Folder for predictions on a GLUE task's test split, in the leaderboard's format.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="File for every example and what the model made of it.", rich_help_panel=Panel.OUTPUT),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace files of --predictions and --submission.", rich_help_panel=Panel.OUTPUT
        ),
    ] = False,
    part: Annotated[str | None, typer.Option(hidden=True, help="What --split was called before.")] = None,
    batch_size: Annotated[int, typer.Option(help="Texts at a time.", min=1, rich_help_panel=Panel.SPEED)] = 64,
    per_class: Annotated[
        bool,
        typer.Option(
            "--per-class", help="Show precision, recall and F1 of each class too.", rich_help_panel=Panel.OUTPUT
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Panel.OUTPUT)] = False,
) -> None:
    """Score a model on texts with labels or targets, with 95% intervals, and beside its teacher.

    Several models are scored on the same texts and shown in one table, with paired differences from the first.
    """
    from stillery.jobs.first_checks import check_scoring

    check_scoring(
        (*models, against), settings.get("data"), settings.get("data_dir"), file=("--predictions", predictions),
        submission=submission, overwrite=overwrite,
    )  # fmt: skip
    from stillery.cli.show import print_json, show_comparison, show_evaluation
    from stillery.jobs.config.inherited import as_trained, reading_of
    from stillery.jobs.evaluate import Request, run_evaluate

    model, split = models[0], split if part is None else part
    if len(models) > 1:
        from stillery.jobs.comparison.scored import Several, compare_scored, refuse_for_several

        refuse_for_several(submission=submission, predictions=predictions, per_class=per_class or None)
        several = Several.of(models, against, settings, option_name, split=split, batch_size=batch_size)
        show_comparison(compare_scored(several), json=json)
        return
    found = run_evaluate(
        Request(
            model=model,
            inputs=as_trained(model, settings, option_name),
            against=against,
            theirs=None if against is None else reading_of(against, settings, option_name),
            split=split,
            batch_size=batch_size,
            submission=submission,
            predictions=predictions,
            overwrite=overwrite,
        )
    )
    if json:
        print_json(found)
    else:
        show_evaluation(found, per_class=per_class)
