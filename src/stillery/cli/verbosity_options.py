"""The options `--quiet` and `--verbose` of commands that run a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from stillery.errors import UserError
from stillery.setting import Panel
from stillery.verbosity import Verbosity, verbosity_as

__all__ = ["saying"]

_HELP = {
    "quiet": "Say nothing but errors, warnings and the numbers that are asked for.",
    "verbose": "Say details too: splits, starts, pairs of layers, caches, number formats.",
}


def saying(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command both options, which set the verbosity while it runs."""
    own = inspect.signature(command, eval_str=True).parameters
    # A command without panels keeps all its options under one heading.
    panel = Panel.OUTPUT if any(_has_panel(each.annotation) for each in own.values()) else None
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, typer.Option(f"--{name}", help=text, rich_help_panel=panel)],
        )
        for name, text in _HELP.items()
    ]

    def run(*, quiet: bool, verbose: bool, **given: Any) -> None:
        if quiet and verbose:
            raise UserError("both --quiet and --verbose are given: give one")
        with verbosity_as(Verbosity.of(quiet=quiet, verbose=verbose)):
            command(**given)

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values()]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*keywords, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*keywords, *added)}
    return run


def _has_panel(annotation: Any) -> bool:
    return any(getattr(one, "rich_help_panel", None) for one in getattr(annotation, "__metadata__", ()))
