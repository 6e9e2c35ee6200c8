"""Signatures and docstrings of the public functions, generated from the same settings as the command line."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from stillery.setting import Panel, panel_of

__all__ = ["Option", "described", "documentation", "of_group", "options_of", "signature"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Option:
    """A keyword of a public function; `type` is a type hint in source form. `positional` ones come first."""

    name: str
    type: str
    help: str
    panel: Panel
    default: Any = None
    required: bool = False
    positional: bool = False


def of_group(group: type) -> list[Option]:
    """Return the settings of a group as options."""
    hints = typing.get_type_hints(group)
    return [
        Option(
            name=item.name,
            type=_spelt(hints[item.name], optional=item.default_factory is not dataclasses.MISSING),
            help=_in_python(item.metadata["help"]),
            panel=panel_of(group, item),
            default=None if item.default is dataclasses.MISSING else item.default,
        )
        for item in dataclasses.fields(group)
    ]


def options_of(
    *parts: Option | type, leave_out: Sequence[str] = (), inherited: Mapping[str, str] = MappingProxyType({})
) -> list[Option]:
    """Return options and the settings of groups, in the order of their headings; the first of each name counts.

    `inherited` describes, by name, settings that are inherited from the run of a model if not given.
    """
    found: dict[str, Option] = {}
    for part in parts:
        for option in [part] if isinstance(part, Option) else of_group(part):
            if option.name not in leave_out:
                words = inherited.get(option.name)
                found.setdefault(option.name, option if words is None else _inherited(option, words))
    panels = list(Panel)
    return sorted(found.values(), key=lambda option: (not option.positional, panels.index(option.panel)))


def _inherited(option: Option, words: str) -> Option:
    """Return an option with a description of its inherited default."""
    own = "" if option.default is None else f", else {option.default}"
    text = f"{option.help.partition('  [default:')[0]}  [default: {words}{own}]"
    kind = option.type if option.type.endswith("| None") else f"{option.type} | None"
    return dataclasses.replace(option, type=kind, help=text, default=None)


def signature(options: Sequence[Option], returns: str) -> inspect.Signature:
    """Return the signature of a function with these options, which are keywords unless they are positional."""
    kinds = {True: inspect.Parameter.POSITIONAL_OR_KEYWORD, False: inspect.Parameter.KEYWORD_ONLY}
    parameters = [
        inspect.Parameter(
            option.name,
            kinds[option.positional],
            default=inspect.Parameter.empty if option.required else option.default,
            annotation=option.type,
        )
        for option in options
    ]
    return inspect.Signature(parameters, return_annotation=returns)


def documentation(summary: str, options: Sequence[Option]) -> str:
    """Return a docstring: the summary, and the options under the headings of the command line's help."""
    lines = [inspect.cleandoc(summary)]
    for panel in Panel:
        of_panel = [option for option in options if option.panel is panel]
        lines += ["", f"{panel}:"] if of_panel else []
        for option in of_panel:
            text = f"{option.name}: {option.help}"
            lines += textwrap.wrap(
                text, 110, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False,
                break_long_words=False,
            )  # fmt: skip
    return "\n".join(lines)


def described(options: Sequence[Option], returns: str) -> Callable[[Function], Function]:
    """Give a function with `**given` the signature and the docstring of these options."""

    def describe(function: Function) -> Function:
        function.__signature__ = signature(options, returns)  # type: ignore[attr-defined]
        function.__doc__ = documentation(function.__doc__ or "", options)
        function.__annotations__ = {option.name: option.type for option in options} | {"return": returns}
        return function

    return describe


def _spelt(hint: Any, *, optional: bool) -> str:
    """Return a type hint in source form; layer numbers may be any sequence."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    names = []
    for kind in kinds:
        origin = typing.get_origin(kind) or kind
        if origin is tuple:
            names.append("Sequence[int]")
        elif origin is dict:
            names.append("Mapping[str, Any]")
        else:
            names.append("None" if kind is type(None) else kind.__name__)
    return " | ".join([*names, *(["None"] if optional and "None" not in names else [])])


def _in_python(text: str) -> str:
    """Replace options in a help text by the names of keywords; commands in backquotes are unchanged."""
    pieces = text.split("`")
    # Text between backquotes is a shell command.
    plain = [re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), piece) for piece in pieces[::2]]
    pieces[::2] = plain
    return "`".join(pieces)
