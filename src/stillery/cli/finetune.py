"""The command `stillery finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.interrupted import interruptible
from stillery.cli.options import OWN_TASK, as_trained_else, with_settings
from stillery.jobs.config.run_file import ask, file_to_resume
from stillery.jobs.config.settings import (
    ConditionSettings,
    DataSettings,
    Finetune,
    GenerationSettings,
    RestartSettings,
    SearchSettings,
)
from stillery.jobs.first_checks import check_first
from stillery.jobs.push import check_push, push_result
from stillery.setting import Panel, option_name
from stillery.train.settings import Training

__all__ = ["finetune"]


@with_settings(
    DataSettings, GenerationSettings, SearchSettings, ConditionSettings, RestartSettings, Training,
    defaults=as_trained_else("model", prefix=OWN_TASK), hidden=["unlabelled"],
)  # fmt: skip
def finetune(
    *,
    model: Annotated[
        str | None,
        typer.Option(help="Pretrained model: a folder, minilm-l6, or a name on the hub.", rich_help_panel=Panel.FIRST),
    ] = None,
    settings: dict[str, Any],
    preset: Annotated[
        str | None,
        typer.Option(help="A paper's settings; see `stillery methods --presets`.", rich_help_panel=Panel.FIRST),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write the run to.", rich_help_panel=Panel.FIRST)],
    config: Annotated[
        Path | None, typer.Option(help="A run file; options given beside it win.", rich_help_panel=Panel.OUTPUT)
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the unfinished run in --out.", rich_help_panel=Panel.OUTPUT),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace an earlier run in --out, as soon as this one begins.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = False,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            help="Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is private.",
            metavar="NAME",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
) -> None:
    """Fine-tune a pretrained model on texts with labels, or on sources and targets."""
    given = {"model": model, "preset": preset} | settings
    asked = ask(Finetune, given, config or file_to_resume(out, resume, given), option_name)
    check_first(asked, out, resume=resume, overwrite=overwrite)
    check_push(push_to_hub)
    with interruptible(out, overwrite=overwrite):
        from stillery.cli.show import show_result
        from stillery.jobs.finetune import run_finetune

        result = run_finetune(asked, out, resume=resume, overwrite=overwrite)
        show_result(result, asked.run)
        push_result(result, push_to_hub)
