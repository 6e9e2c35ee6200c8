"""The command line: `stillery COMMAND`."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import typer

from stillery.cli.check import check
from stillery.cli.demo import demo
from stillery.cli.distill import distill
from stillery.cli.evaluate import evaluate
from stillery.cli.finetune import finetune
from stillery.cli.layers import layers
from stillery.cli.methods import methods
from stillery.cli.pairs import pairs
from stillery.cli.predict import predict
from stillery.faults import Fault, Stopped

__all__ = ["app", "main"]

app = typer.Typer(
    name="stillery",
    help="Distil a large Transformer language model into a smaller one, layer by layer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (demo, finetune, distill, evaluate, predict, methods, pairs, layers, check):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"stillery {installed('stillery')}")
        raise typer.Exit


def _fail(lines: tuple[str, ...], code: int) -> None:
    for line in lines:
        print(f"stillery: {line}", file=sys.stderr)
    sys.exit(code)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; bad input ends with one line per fault and exit code 2, never with a traceback."""
    # Progress bars of other libraries would break ours.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        code = app(args=arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except Fault as fault:
        _fail(fault.lines, 2)
    except Stopped as stopped:
        _fail((str(stopped),), 1)
    except click.exceptions.Abort:
        _fail(("interrupted",), 130)
    except click.ClickException as error:
        _fail((" ".join(error.format_message().split()),), 2)
    except KeyboardInterrupt:
        _fail(("interrupted; go on later with --resume where the command has it",), 130)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
