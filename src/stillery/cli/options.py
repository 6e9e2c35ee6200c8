"""Command-line options generated from settings, so that each is declared once."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

import typer

from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings, GenerationSettings, SearchSettings
from stillery.setting import Panel, choices_of, kind_of, option_name, panel_of

__all__ = ["OWN_TASK", "as_searched", "as_trained_else", "method_options", "with_settings"]

OWN_TASK = "; of a task new to it the task's"


def as_trained_else(model: str, *, prefix: str = ", else the task's") -> dict[str, str]:
    """Describe the defaults of tokenisation settings that are inherited from a model's run."""
    first = f"as the {model} was trained"
    return {
        "max_length": f"{first}, else {DataSettings.max_length}",
        "max_target_length": f"{first}, else {GenerationSettings.max_target_length}",
        "prompt": f"{first}, else the source and a line break",
        "prefix": f"{first}{prefix}",
    }


def as_searched() -> dict[str, str]:
    """Describe the defaults of decoding settings that are inherited from a model's run."""
    return {item.name: f"as in the model's run, else {_shown(item)}" for item in dataclasses.fields(SearchSettings)}


def _layer_list(text: str, option: str) -> list[int]:
    """Parse layer numbers from text such as 2,5,8."""
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text}: give layer numbers with commas, such as 2,5,8") from None


def method_options(given: Sequence[str]) -> dict[str, Any]:
    """Parse a method's own options from NAME=VALUE texts; numbers and truth values are converted.

    >>> method_options(["layers=last", "layer-weight=10"])
    {'layers': 'last', 'layer_weight': 10}
    """
    options: dict[str, Any] = {}
    for item in given:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise UserError(f"--option {item}: give NAME=VALUE")
        options[name.replace("-", "_")] = _scalar(value)
    return options


def _scalar(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, (int, float)) else text


def _shown(item: dataclasses.Field[Any]) -> str:
    return str(item.default).lower() if isinstance(item.default, bool) else str(item.default)


def _annotation(item: dataclasses.Field[Any], hint: Any, default: str | None, panel: Panel, *, hidden: bool) -> Any:
    """Return the typer annotation of a setting; every option defaults to None, which means not given."""
    kind, flag, help_text = kind_of(hint), option_name(item.name), item.metadata["help"]
    if default is not None:
        help_text = f"{help_text.partition('  [default:')[0]}  [default: {default}]"
    elif item.default is not None and item.default is not dataclasses.MISSING:
        help_text = f"{help_text}  [default: {_shown(item)}]"
    option: Any = partial(typer.Option, rich_help_panel=panel, hidden=hidden)
    if kind is dict:
        return Annotated[list[str] | None, option("--option", help=help_text, metavar="NAME=VALUE")]
    if kind is tuple:
        return Annotated[str | None, option(flag, help=help_text, metavar="LIST")]
    if kind is bool:
        return Annotated[bool | None, option(f"{flag}/--no-{flag[2:]}", help=help_text)]
    choices = choices_of(item)
    return Annotated[kind | None, option(flag, help=help_text, metavar="|".join(choices) if choices else None)]


def with_settings(
    *groups: type, defaults: Mapping[str, str] = MappingProxyType({}), hidden: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting of the groups; it receives those as its `settings` dictionary.

    The options are inserted at the position of `settings` among the command's own. `defaults` describes the defaults of
    settings that are not decided by their group; `hidden` settings are not in the help, because the command refuses
    them with an explanation.
    """
    hints = {group: typing.get_type_hints(group) for group in groups}
    annotations = {
        item.name: _annotation(
            item, hints[group][item.name], defaults.get(item.name), panel_of(group, item), hidden=item.name in hidden
        )
        for group in groups
        for item in dataclasses.fields(group)
    }
    lists = [name for group in groups for name, hint in hints[group].items() if kind_of(hint) is tuple]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        options = [
            each
            for name, parameter in own.items()
            for each in (added if name == "settings" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)])
        ]

        def run(**given: Any) -> None:
            # A repeatable option that is not given is an empty list.
            said = {name: value for name in annotations if (value := given.pop(name)) not in (None, [])}
            said |= {name: _layer_list(said[name], option_name(name)) for name in lists if name in said}
            if "options" in said:
                said["options"] = method_options(said["options"])
            command(**given, settings=said)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in options}
        return run

    return decorate
