"""The command `stillery analyse`: a sub-command for each analysis, made from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from stillery.cli.options import with_settings
from stillery.cli.panels import Command, Group
from stillery.cli.verbosity_options import saying
from stillery.errors import UserError
from stillery.jobs.analyses.settings import ANALYSES, Analysis
from stillery.jobs.config.settings import DataSettings, GenerationSettings
from stillery.setting import Panel, option_name

__all__ = ["analyse"]

analyse = typer.Typer(
    name="analyse",
    cls=Group,
    help="See why it works: the papers' figures for models of your own, as data, picture and one sentence.",
    rich_markup_mode=None,
)

_RUNS_DATA = {"max_length": f"as the model was trained, else {DataSettings.max_length}"}


def _command(analysis: Analysis) -> Callable[..., None]:
    """Return the command of an analysis."""

    def command(*, subjects: list[str], settings: dict[str, Any], out: Path, overwrite: bool) -> None:
        from stillery.jobs.analyses.write import analysed
        from stillery.lines import plain, show

        found = analysed(analysis.name, subjects, settings, out, overwrite=overwrite, named=option_name)
        show(found.sentence)
        for line in found.text().splitlines()[1:]:
            print(plain(line))
        print()
        show(f"written: {', '.join(str(file) for file in analysis.files(out))}")

    argument = Annotated[list[str], typer.Argument(metavar=analysis.metavar, help=analysis.takes)]
    folder = Annotated[
        Path, typer.Option(help=f"Folder for {analysis.name}.json, .svg and .png.", rich_help_panel=Panel.FIRST)
    ]
    replaces = Annotated[bool, typer.Option("--overwrite", help="Replace earlier files.", rich_help_panel=Panel.OUTPUT)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("subjects", keyword, annotation=argument),
            inspect.Parameter("settings", keyword, annotation=dict),
            inspect.Parameter("out", keyword, annotation=folder),
            inspect.Parameter("overwrite", keyword, default=False, annotation=replaces),
        ]
    )
    command.__annotations__ = {}
    command.__name__, command.__doc__ = analysis.name.replace("-", "_"), analysis.about
    groups = [analysis.settings, *([DataSettings, GenerationSettings] if analysis.reads else [])]
    return saying(with_settings(*groups, defaults=_RUNS_DATA)(command))


for _analysis in ANALYSES.values():
    analyse.command(_analysis.name, cls=Command)(_command(_analysis))


@analyse.callback(invoke_without_command=True)
def _unnamed(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise UserError(f"name an analysis: {', '.join(ANALYSES)}")
