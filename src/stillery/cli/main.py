"""The command line: `stillery COMMAND`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from stillery.cli.analyse import analyse
from stillery.cli.cache import cache
from stillery.cli.check import check
from stillery.cli.compare import compare
from stillery.cli.demo import demo
from stillery.cli.diagnose import diagnose
from stillery.cli.distill import distill
from stillery.cli.evaluate import evaluate
from stillery.cli.export import export
from stillery.cli.finetune import finetune
from stillery.cli.layers import layers
from stillery.cli.methods import methods
from stillery.cli.pairs import pairs
from stillery.cli.panels import Command, Commands, Group
from stillery.cli.predict import predict
from stillery.cli.refused_in_several import refused_in_several, stopped_in_several
from stillery.cli.report import report
from stillery.cli.shrink import shrink
from stillery.cli.study import study
from stillery.cli.tasks import tasks
from stillery.cli.verbosity_options import saying
from stillery.errors import Interrupted, LostProcess, Stopped, UserError
from stillery.jobs.config.other_names import OTHER_NAMES, REASONS
from stillery.lines import plain, width_of, wrapped
from stillery.out_of_memory import lacking_memory
from stillery.setting import option_name
from stillery.stop_signals import Terminated, sigterm_raises

__all__ = ["app", "main"]

# The exception for a wrong command line; the module of its class depends on the version of typer.
_USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
_REFUSED, _INTERRUPTED, _READER_GONE, _TERMINATED = 2, 130, 141, 143

_SHORT = (methods, layers, cache)
"""Commands that only print their result, and so have neither `--quiet` nor `--verbose`."""

app = typer.Typer(
    name="stillery",
    cls=Group,
    help="Distil a large Transformer language model into a smaller one, layer by layer.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for panel, commands in (
    (Commands.TRAIN, (demo, finetune, distill, shrink, study, check)),
    (Commands.USE, (evaluate, compare, diagnose, report, predict, export)),
    (Commands.UNDERSTAND, (methods, pairs, layers)),
    (Commands.KEEPING, (cache,)),
):
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command if command in _SHORT else saying(command))
app.add_typer(analyse, rich_help_panel=Commands.UNDERSTAND)
app.add_typer(tasks, rich_help_panel=Commands.DATA)


@app.callback(invoke_without_command=True)
def _without_command(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Show the version and exit.")
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"stillery {installed('stillery')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def _fail(lines: Sequence[str], code: int) -> NoReturn:
    if code == _REFUSED:
        refused_in_several(lines)
    # In one write, so that the lines of several processes do not mix.
    width = width_of(sys.stderr)
    sys.stderr.write("".join(f"{wrapped(f'stillery: {plain(line)}', width)}\n" for line in lines))
    sys.stderr.flush()
    sys.exit(code)


def _usage(error: Any) -> str:
    """Return the error line of a wrong command line; for options of other libraries it names the one here."""
    option = getattr(error, "option_name", None) or ""
    name = option.lstrip("-").replace("-", "_")
    known = {each.name for each in error.ctx.command.params} if error.ctx is not None else set()
    if OTHER_NAMES.get(name) in known:
        return f"No such option: {option}: it is called {option_name(OTHER_NAMES[name])} here"
    if name in REASONS:
        return f"No such option: {option}: {REASONS[name]}"
    return " ".join(error.format_message().split())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; bad input ends with one line per error and exit code 2, never with a traceback."""
    # Bars and warnings of other libraries would break our progress bars.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with sigterm_raises():
            code = app(args=arguments, standalone_mode=False) or 0
            sys.stdout.flush()
    except UserError as error:
        _fail(error.lines, _REFUSED)
    except Stopped as stopped:
        printed = stopped_in_several(str(stopped), lost=isinstance(stopped, LostProcess))
        _fail([str(stopped)] if printed else [], 1)
    except Interrupted as stopped:
        _fail([str(stopped)], stopped.code)
    except _USAGE_ERROR as error:
        _fail([_usage(error)], _REFUSED)
    except Terminated as stopped:
        _fail([str(Interrupted("", stopped))], _TERMINATED)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `| head` does; buffered output has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _READER_GONE
    except OSError as error:
        # System errors that no job handles: a full disk, a file name that is too long.
        place = f"{str(error.filename)[:200]}: " if error.filename else ""
        _fail([f"{place}{error.strerror or error}"], 2)
    except (MemoryError, RuntimeError) as error:
        lacking = lacking_memory(error)
        if lacking is None:
            raise
        _fail([f"out of {lacking}: give a smaller --batch-size or --max-length, or take a smaller model"], 1)
    if code == _INTERRUPTED:
        _fail(["interrupted"], code)
    sys.exit(code)
