"""Command-line options made from settings, so that each is declared once."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

from stillery.faults import Fault
from stillery.setting import kind_of

__all__ = ["layer_list", "method_options", "with_settings"]

# The order in which --help shows the groups.
_PANELS = {
    "DataSettings": "Data",
    "StudentSettings": "Student",
    "MethodSettings": "Method",
    "Training": "Training",
}


def layer_list(text: str | None) -> list[int] | None:
    """Layer numbers from text such as 2,5,8."""
    if text is None:
        return None
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise Fault(f"--copy-layers {text}: give layer numbers with commas, such as 2,5,8") from None


def method_options(given: list[str] | None) -> dict[str, Any] | None:
    """A method's own options from NAME=VALUE texts."""
    if not given:
        return None
    options: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise Fault(f"--option {item}: give NAME=VALUE")
        options[name.strip().replace("-", "_")] = value.strip()
    return options


def _option(item: dataclasses.Field[Any], hint: Any, panel: str) -> tuple[Any, Any]:
    """The annotation and default of one setting's option; every default is None, which means not given."""
    kind, help_text = kind_of(hint), item.metadata["help"]
    flag = "--" + item.name.replace("_", "-")
    if item.default is not None and item.default is not dataclasses.MISSING:
        shown = str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
        help_text = f"{help_text}  [default: {shown}]"
    if item.name == "options":
        option = typer.Option("--option", help=help_text, metavar="NAME=VALUE", rich_help_panel=panel)
        return Annotated[list[str] | None, option], None
    if typing.get_origin(kind) is tuple:
        option = typer.Option(flag, help=help_text, metavar="LIST", rich_help_panel=panel)
        return Annotated[str | None, option], None
    if kind is bool:
        option = typer.Option(f"{flag}/--no-{flag[2:]}", help=help_text, rich_help_panel=panel)
        return Annotated[bool | None, option], None
    choices = item.metadata.get("choices")
    metavar = "|".join(choices) if choices else None
    option = typer.Option(flag, help=help_text, metavar=metavar, rich_help_panel=panel)
    return Annotated[kind | None, option], None


def with_settings(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting of the groups; it receives those as its `settings` dictionary."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        parameters = [parameter for parameter in own.parameters.values() if parameter.name != "settings"]
        names = []
        for group in groups:
            hints = typing.get_type_hints(group)
            for item in dataclasses.fields(group):
                annotation, default = _option(item, hints[item.name], _PANELS[group.__name__])
                names.append(item.name)
                parameters.append(
                    inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
                )

        def run(**given: Any) -> None:
            settings = {name: given.pop(name) for name in names}
            if "copy_layers" in settings:
                settings["copy_layers"] = layer_list(settings["copy_layers"])
            if "options" in settings:
                settings["options"] = method_options(settings["options"])
            command(**given, settings={name: value for name, value in settings.items() if value is not None})

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
        return run

    return decorate
