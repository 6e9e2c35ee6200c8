"""The help is in panels: the options that matter first come first, each option stands in one panel only."""

from __future__ import annotations

import dataclasses
import re

import pytest
import typer

from stillery.cli.main import app
from stillery.cli.panels import Commands
from stillery.jobs.config.settings import GROUPS
from stillery.setting import Panel, panel_of

EVERY = (
    "distill", "finetune", "evaluate", "predict", "pairs", "methods", "demo", "cache", "layers", "check", "study",
    "shrink",
)  # fmt: skip
SORTED = {
    "distill": [*Panel],
    "finetune": [panel for panel in Panel if panel not in (Panel.STUDENT, Panel.METHOD)],
    "evaluate": [Panel.FIRST, Panel.DATA, Panel.GENERATION, Panel.SPEED, Panel.OUTPUT],
    "predict": [Panel.FIRST, Panel.DATA, Panel.GENERATION, Panel.SPEED, Panel.OUTPUT],
}
TEN = ["teacher", "data", "task", "layers", "init", "method", "epochs", "lr", "preset", "out"]


def panels(said: str) -> list[tuple[str, str]]:
    """The headings of a help page, and what stands under each."""
    found = re.split(r"^(\w[^\n]*):\n", said.partition("\n")[2], flags=re.MULTILINE)[1:]
    return list(zip(found[::2], found[1::2], strict=True))


def options(panel: str) -> list[str]:
    return re.findall(r"^  --([a-z-]+)", panel, flags=re.MULTILINE)


@pytest.mark.parametrize("name", SORTED)
def test_the_panels_are_in_their_order(command, name):
    headings = [heading for heading, _ in panels(command(name, "--help").out) if heading != "Arguments"]
    assert headings == [str(panel) for panel in SORTED[name]]


def test_ten_options_come_first(command):
    (heading, first), *_ = panels(command("distill", "--help").out)
    assert heading == "What matters first" and options(first) == TEN


@pytest.mark.parametrize("name", SORTED)
def test_every_option_stands_in_one_panel_that_it_names(command, name):
    shown = [option for _, panel in panels(command(name, "--help").out) for option in options(panel)]
    assert len(shown) == len(set(shown))
    declared = [
        each
        for each in typer.main.get_command(app).commands[name].params
        if each.name != "help" and not getattr(each, "hidden", False)
    ]
    known = [each for each in declared if each.param_type_name == "option"]
    assert set(shown) == {each.opts[0].removeprefix("--") for each in known} | {"help"}
    assert [each.name for each in known if not isinstance(each.rich_help_panel, Panel)] == []


@pytest.mark.parametrize("group", GROUPS.values())
def test_an_option_stands_where_its_setting_says(command, group):
    found = {
        option: heading for heading, panel in panels(command("distill", "--help").out) for option in options(panel)
    }
    found |= {
        option: heading for heading, panel in panels(command("finetune", "--help").out) for option in options(panel)
    }
    for item in dataclasses.fields(group):
        name = "option" if item.name == "options" else item.name.replace("_", "-")
        assert found[name] == panel_of(group, item), name


def test_the_commands_are_grouped(command):
    found = panels(command("--help").out)
    assert [heading for heading, _ in found] == [*map(str, Commands), "Options"]
    names = {heading: re.findall(r"^  (\w+) ", panel, flags=re.MULTILINE) for heading, panel in found}
    assert names["Train"] == ["demo", "finetune", "distill", "shrink", "study", "check"]
    known = typer.main.get_command(app).commands
    assert sorted(name for heading in map(str, Commands) for name in names[heading]) == sorted(known)
    assert [name for name, each in known.items() if not isinstance(each.rich_help_panel, Commands)] == []


@pytest.mark.parametrize("name", [None, "tasks", *EVERY])
def test_the_help_fits_80_columns_and_cuts_no_sentence(command, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = command(*filter(None, [name]), "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert not re.search(r"\w\.\.\.$", said.partition("\n")[2], flags=re.MULTILINE)


def test_words_to_choose_from_are_whole(command):
    said = command("distill", "--help").out
    assert "layer-all-to-one," in said and "random-together," in said and "--method WORD" in said
    assert "--cache auto|on|off" in said
