"""The command `stillery export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.options import as_trained_else, with_settings
from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings
from stillery.jobs.push import check_push, push
from stillery.lines import plain, show
from stillery.setting import Panel, option_name
from stillery.verbosity import Verbosity, verbosity

__all__ = ["export"]


@with_settings(DataSettings, defaults=as_trained_else("model"), hidden=["unlabelled"])
def export(
    *,
    model: Annotated[str, typer.Argument(help="A run folder, a model folder, or a name on the hub.")],
    out: Annotated[Path, typer.Option(help="Folder to write.", rich_help_panel=Panel.FIRST)],
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="Write ONNX; so far the only format.", rich_help_panel=Panel.FIRST),
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Write an int8 file too.", rich_help_panel=Panel.FIRST)] = False,
    settings: dict[str, Any],
    split: Annotated[
        str | None,
        typer.Option(help="Split to compare on.  [default: dev; of a whole file all]", rich_help_panel=Panel.DATA),
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option(
            help="Least agreement with the checkpoint, in percent.  [default: 99.9]",
            min=0,
            max=100,
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    min_agreement_int8: Annotated[
        float | None,
        typer.Option(help="The same for the int8 file.  [default: 98]", min=0, max=100, rich_help_panel=Panel.OUTPUT),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write files that agree less.", rich_help_panel=Panel.OUTPUT)
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an earlier export in --out.", rich_help_panel=Panel.OUTPUT),
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Texts at a time.", min=1, rich_help_panel=Panel.SPEED)] = 64,
    latency: Annotated[
        bool,
        typer.Option("--latency/--no-latency", help="Measure latency too.", rich_help_panel=Panel.SPEED),
    ] = True,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            help="Upload the model and its card to the hub at the end, as NAME or ACCOUNT/NAME; a new one is private.",
            metavar="NAME",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Panel.OUTPUT)] = False,
) -> None:
    """Write a trained encoder as ONNX and int8, if it still predicts what its checkpoint predicts.

    It is compared on real examples, those of its run's dev split or of --data or --task. Where int8 fails, other
    settings of the quantiser are tried. The folder runs with onnxruntime, tokenizers and numpy alone.
    """
    from stillery.jobs.first_checks import check_scoring

    if not onnx:
        raise UserError("--onnx is missing: name the format; so far it is the only one")
    check_scoring((model,), settings.get("data"), settings.get("data_dir"))
    check_push(push_to_hub)
    from stillery.cli.show import print_json
    from stillery.jobs.export import LEAST, LEAST_INT8, Request, run_export

    found = run_export(
        Request(
            model=model,
            out=out,
            int8=int8,
            settings=settings,
            split=split,
            least=LEAST if min_agreement is None else min_agreement,
            least_int8=LEAST_INT8 if min_agreement_int8 is None else min_agreement_int8,
            force=force,
            overwrite=overwrite,
            batch_size=batch_size,
            latency=latency,
            named=option_name,
        )
    )
    if json:
        print_json(found.record)
    elif verbosity() is not Verbosity.QUIET:
        print(plain(found.text()))
        show(f"export: {found.out}")
        show(f"cd {found.out} && python example.py")
    push(found.out, push_to_hub)
