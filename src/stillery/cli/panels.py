"""Format the help of a command: plain lines under headings, as wide as the terminal and at most 80 columns.

The heading of an option or command is declared with it, as its `rich_help_panel`. Rich's own boxes are not used: their
frames leave less room for text, and rich takes time to load.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Commands", "Group", "in_panels"]

_FIRST_COLUMN = 30

Row = tuple[str, str]


class Commands(StrEnum):
    """The headings of commands in the help, in this order."""

    TRAIN = "Train"
    USE = "Score and use a model"
    UNDERSTAND = "Understand methods and models"
    DATA = "Data and tasks"
    KEEPING = "Maintenance"


def in_panels(items: Iterable[Any], *, rest: str) -> dict[str, list[Any]]:
    """Group options or commands by their heading, in the order of the headings.

    Those without one, such as `--help`, come last in the last panel; if none has a heading, all are under `rest`.
    """
    named: dict[StrEnum, list[Any]] = {}
    others = []
    for item in items:
        panel = getattr(item, "rich_help_panel", None)
        if isinstance(panel, StrEnum):
            named.setdefault(panel, []).append(item)
        else:
            others.append(item)
    if not named:
        return {rest: others} if others else {}
    found = {str(panel): named[panel] for panel in sorted(named, key=_place)}
    found[list(found)[-1]].extend(others)
    return found


def _place(panel: StrEnum) -> int:
    """Return the index of a heading in its enumeration."""
    return list(type(panel).__members__.values()).index(panel)


def _row(option: Any, context: Any, room: int) -> Row | None:
    """Return an option and its help text; a long list of choices is moved into the text."""
    record = option.get_help_record(context)
    if record is None:
        return None
    first, text = record
    metavar = getattr(option, "metavar", None) or ""
    if len(first) > room and "|" in metavar:
        said, bracket, default = text.partition("  [default:")
        first = first.replace(metavar, "WORD")
        text = f"{said} One of {metavar.replace('|', ', ')}.{bracket}{default}"
    return first, text


def _write(formatter: Any, panels: Mapping[str, list[Row]]) -> None:
    """Write headings and rows, with one width of the first column for all."""
    rows = [row for panel in panels.values() for row in panel]
    column = min(max((len(first) for first, _ in rows), default=0), _FIRST_COLUMN) + 2
    for heading, panel in panels.items():
        if not panel:
            continue
        with formatter.section(heading):
            for first, text in panel:
                indent = " " * (column + formatter.current_indent)
                # A hyphen is part of an option's or a method's name, not a place to break a line.
                lines = textwrap.wrap(text, max(formatter.width - len(indent), 10), break_on_hyphens=False) or [""]
                start = " " * formatter.current_indent + first
                if len(first) > column - 2:
                    formatter.write(f"{start}\n")
                    start = ""
                formatter.write(f"{start:<{len(indent)}}{lines[0]}".rstrip() + "\n")
                for line in lines[1:]:
                    formatter.write(f"{indent}{line}\n")


def _options(command: Any, context: Any, formatter: Any) -> dict[str, list[Row]]:
    """Return the rows of a command's arguments and options."""
    parameters, room = command.get_params(context), formatter.width - 2
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    options = [each for each in parameters if each.param_type_name == "option"]
    panels = {"Arguments": arguments} | in_panels(options, rest="Options")
    return {name: [row for each in of if (row := _row(each, context, room))] for name, of in panels.items()}


class Command(TyperCommand):
    """A command whose help has its options in panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels."""
        _write(formatter, _options(self, ctx, formatter))


class Group(TyperGroup):
    """A command group whose help lists its commands in panels, each with its whole first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options of the group itself."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        named = {id(command): name for name, command in found}
        panels = in_panels([command for _, command in found if command and not command.hidden], rest="Commands")
        rows = {
            panel: [(named[id(each)], each.get_short_help_str(limit=1000)) for each in of]
            for panel, of in panels.items()
        }
        _write(formatter, rows | _options(self, ctx, formatter))
