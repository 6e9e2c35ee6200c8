"""A part or a method is the file that defines it and its test: nothing else in the source knows of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stillery import declare, methods, overrides
from stillery.parts import load
from stillery.words import method_words, part_words, words

SOURCE = Path(__file__).parent.parent / "src" / "stillery"
HELPERS = {"mean", "real", "logit_mse"}
"""Plain helpers that others use, and what a score is compared by."""

load()
PARTS = [
    *((one.part.__name__, one) for one in declare.declared() if hasattr(one.part, "__name__")),
    *((one.part.name, one) for one in declare.declared("representation")),
]


def others() -> list[Path]:
    """Every file but those in which parts are defined, and methods, which compose them."""
    return [file for file in SOURCE.rglob("*.py") if file.parent.name not in ("parts", "methods")]


def imported(file: Path) -> set[str]:
    """What a file takes from the rooms of parts: functions by name, or attributes of their modules."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    modules, found = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "stillery.parts":
            modules |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stillery.parts."):
            found |= {one.name for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            found.add(node.attr)
    return found


def test_no_other_file_names_a_part() -> None:
    names = {name for name, _ in PARTS} - HELPERS
    assert {"mse", "forward", "attention", "Transport", "to_teacher", "kl"} <= names
    for file in others():
        assert not imported(file) & names, file


@pytest.mark.parametrize("room", ["parts", "methods"])
def test_no_file_lists_the_words_of_several(room: str) -> None:
    """Tables of words grow with every part; only where a part is defined may its word stand."""
    known = {one.word for one in part_words()} if room == "parts" else set(method_words())
    # Words that mean something else too, such as the ways a student starts.
    known -= {"mean", "sum", "last", "random", "none", "first", "transport", "tokens", "attention", "kl", "mse", "js"}
    # Averages over tasks are named after the papers that report them.
    known -= {"cr-ild", "ild-rtc", "rail-kd"}
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        lists = [node.value for node in tree.body if isinstance(node, ast.Assign) and "__all__" in ast.dump(node)]
        for node in (node for node in ast.walk(tree) if node not in lists):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            words = {item.value for item in items if isinstance(item, ast.Constant)}
            assert len(words & known) < 3, f"{file}:{node.lineno}"


def test_every_word_the_command_line_shows_is_a_part_and_the_other_way_round() -> None:
    # Tests of parts of one's own may have run in this process.
    assert overrides.__all__
    own = [one for one in declare.declared() if one.module.startswith("stillery.")]

    def declared(kind: str) -> list[declare.Declared]:
        return [one for one in own if one.kind == kind]

    for kind in ("pairing", "representation", "distance", "divergence"):
        assert set(words(kind)) <= {one.word for one in part_words() if one.kind == kind}
        assert set(words(kind)) == {one.word for one in declared(kind)}
    assert set(words("reduction")) == {one.word for one in declared("reduction") if not one.together}
    assert set(words("schedule")) == {one.word for one in declared("schedule")} == {"joint", "sequential"}
    assert set(method_words()) == set(methods.names())
    helps = {(one.kind, one.word): one.help for one in part_words()}
    assert all(helps[kind, one.word] == one.help for kind in ("pairing", "distance") for one in declared(kind))
