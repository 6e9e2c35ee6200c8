"""The Python names have the keywords of the settings, for `help`, notebooks and type checkers."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stillery
from stillery.api import calls
from stillery.api.stub import STUB, stub
from stillery.errors import UserError
from stillery.jobs.analyses.settings import ANALYSES
from stillery.jobs.config.settings import (
    DataSettings,
    GenerationSettings,
    MethodSettings,
    SearchSettings,
    StudentSettings,
    setting_names,
)
from stillery.setting import Panel
from stillery.train.settings import Storing, Training

NAMES = ("finetune", "distill", "shrink", "evaluate", "export", "compare", "diagnose", "report", "predict", "analysis")
FUNCTIONS = {name: getattr(calls, name) for name in NAMES}
POSITIONAL = ("model", "models", "name", "places", "run", "runs")
GROUPS = {
    "finetune": (DataSettings, Training, SearchSettings),
    "distill": (DataSettings, StudentSettings, MethodSettings, Training, Storing, SearchSettings),
    "shrink": (Training, Storing),
    "evaluate": (SearchSettings,),
    "compare": (),
    "diagnose": (),
    "report": (),
    "predict": (SearchSettings,),
    "export": (),
    "analysis": (DataSettings, GenerationSettings, *(one.settings for one in ANALYSES.values())),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_have_every_setting_with_type_and_default(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert {each for group in GROUPS[name] for each in setting_names(group)} <= parameters.keys()
    for parameter in parameters.values():
        assert isinstance(parameter.annotation, str) and parameter.annotation
        assert parameter.kind is parameter.KEYWORD_ONLY or parameter.name in POSITIONAL
    if "epochs" in parameters:
        assert (parameters["epochs"].default, parameters["epochs"].annotation) == (5, "int")
        assert (parameters["patience"].default, parameters["patience"].annotation) == (None, "int | None")
    # What a run decides before all else has no default of its own.
    assert name in ("compare", "diagnose", "report") or parameters["max_length"].default is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_list_every_option_under_the_headings_of_the_help(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name])
    assert text is not None and len(text.split("\n\n")[0].splitlines()) == 1
    headings = [line.removesuffix(":") for line in text.splitlines() if re.fullmatch(r"[A-Z][\w ]+:", line)]
    assert headings == [str(panel) for panel in Panel if str(panel) in headings] and headings[0] == str(Panel.FIRST)
    listed = re.findall(r"^    (\w+): \S", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(inspect.signature(FUNCTIONS[name]).parameters)
    # Options are named as in Python; what stands in backquotes is a command.
    assert "--" not in re.sub(r"`[^`]*`", "", text)


@pytest.mark.parametrize("name", ["finetune", "distill"])
def test_every_keyword_is_known_with_its_default(name: str, tmp_path: Path) -> None:
    given = {key: each.default for key, each in inspect.signature(FUNCTIONS[name]).parameters.items()}
    with pytest.raises(UserError) as raised:
        FUNCTIONS[name](**given | {"out": tmp_path / "x"})
    subject = "teacher" if name == "distill" else "model"
    assert raised.value.lines == (
        "neither data (a file or folder) nor task (a name) is given: give one",
        f"{subject} is not given: name a model folder",
    )


def test_the_stub_is_current_and_says_the_same() -> None:
    text = STUB.read_text(encoding="utf-8")
    assert text == stub(), "run `make stub`"
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    found = {node.name: node for node in functions}
    # Of several models there is a comparison, of one a dictionary.
    returned = [ast.unparse(node.returns) for node in functions if node.name == "evaluate" and node.returns]
    assert returned == ["Comparison", "dict[str, Any]"]
    assert found.keys() == {*FUNCTIONS, "score"}
    for name, function in FUNCTIONS.items():
        own = inspect.signature(function).parameters
        arguments = found[name].args
        assert [each.arg for each in (*arguments.args, *arguments.kwonlyargs)] == list(own)
        assert len(arguments.kw_defaults) == len(arguments.kwonlyargs)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            expected = own[each.arg].default
            assert default is None if expected is inspect.Parameter.empty else ast.literal_eval(default) == expected


def test_score_is_the_old_name_of_evaluate(tiny_teacher: Path, reviews: Path) -> None:
    assert stillery.score(tiny_teacher, data=reviews) == stillery.evaluate(tiny_teacher, data=reviews)
    # No module of that name takes the function's place.
    assert inspect.isfunction(stillery.evaluate) and stillery.evaluate is calls.evaluate
    assert "old name of `stillery.evaluate`" in (inspect.getdoc(stillery.score) or "")
    assert inspect.signature(stillery.score) == inspect.signature(FUNCTIONS["evaluate"])


def test_importing_loads_nothing_heavy() -> None:
    code = "import inspect, sys, stillery; inspect.signature(stillery.distill); stillery.STOP\n"
    code += "print([name for name in ('torch', 'transformers', 'pyarrow', 'pandas', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[]"], done.stderr
