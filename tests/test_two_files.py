"""A part or a method is the file that defines it and its test: nothing else in the source knows of it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stillery import declare, methods, overrides
from stillery import words as all_words
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
        # What run files of before meant is history: a new method is not added to it.
        names = ("__all__", "'_STAGED'")
        lists = [node.value for node in tree.body
                 if isinstance(node, ast.Assign) and any(name in ast.dump(node) for name in names)]  # fmt: skip
        for node in (node for node in ast.walk(tree) if node not in lists):
            items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            words = {item.value for item in items if isinstance(item, ast.Constant)}
            assert len(words & known) < 3, f"{file}:{node.lineno}"


def test_every_word_the_command_line_shows_is_a_part_and_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests of parts of one's own may have run in this process.
    assert overrides.__all__
    own = [one for one in declare.declared() if one.module.startswith("stillery.")]
    monkeypatch.setattr(all_words, "_READ_ALONG", [])

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


OWN_PARTS = '''
"""Parts of a test."""

from __future__ import annotations

from stillery import declare
from stillery.recipe import Representation, View

__all__ = ["closest", "ends", "states"]


@declare.distance("closest", "absolute error of the elements", over="elements")
def closest(student, teacher, mask=None, reduction="mean", key_mask=None):
    apart = (student - teacher).abs()
    return (apart if mask is None else apart[mask.bool()]).mean()


@declare.pairing("ends", "the first layers, and the last")
def ends(student_layers, teacher_layers, clock):
    return [(1, 1), (student_layers, teacher_layers)]


states = declare.representation(
    "states", "every real token's state, again",
    Representation(name="states", extract=lambda stack, layer: View(stack.hidden[layer], stack.mask), rows="tokens"),
)
'''

OWN_METHOD = '''
"""Nobody (2026), A Method of a Test."""

from __future__ import annotations

from stillery.declare import Group, Paper
from stillery.parts import divergence, own_parts
from stillery.recipe import Match, Prediction, Recipe, Stage

__all__ = ["own_method"]

GROUP = Group.ATTENTION


def own_method(*, hard_weight: Paper[float] = 0.5, layer_weight: Paper[float] = 2.0) -> Recipe:
    """The states at both ends."""
    match = Match(name="ends", represent=own_parts.states, pair=own_parts.ends, distance=own_parts.closest,
                  weight=layer_weight)
    return Recipe(stages=(Stage(matches=(match,), prediction=Prediction(divergence=divergence.kl),
                                hard_weight=hard_weight),))
'''


def files_of(folder: Path) -> dict[Path, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder): path.read_bytes() for path in found}


def test_parts_and_a_method_are_their_own_files_and_make_docs_writes_the_rest(
    tiny_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    """A distance, a pairing, a representation and a method, each written down once in a copy of the project."""
    copy = tmp_path / "copy"
    shutil.copytree(SOURCE, copy / "src" / "stillery", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(SOURCE.parent.parent / "docs", copy / "docs")

    def run(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stderr

    before = files_of(copy)
    (copy / "src/stillery/parts/own_parts.py").write_text(OWN_PARTS)
    (copy / "src/stillery/methods/own_paper.py").write_text(OWN_METHOD)
    # A second time there is nothing left to write.
    told = run("-c", "from stillery.cli import method_pages; method_pages.main(); method_pages.main()")
    assert told.count("\n") == 3
    assert {line.rpartition("/docs/")[2] for line in told.splitlines()} == {
        "methods.md: written", "methods/parts.md: written", "methods/own-paper.md: written"
    }  # fmt: skip
    after = files_of(copy)
    by_hand = {path for path in after if after[path] != before.get(path) and path.parts[0] == "src"}
    assert {path.name for path in by_hand} == {"own_parts.py", "own_paper.py"} and before.keys() <= after.keys()
    page = after[Path("docs/methods/own-paper.md")].decode()
    assert "- `ends`: states, ends, closest, mean within" in page and "| `layer_weight` | 2 | paper |" in page
    listed = after[Path("docs/methods/parts.md")].decode()
    assert all(f"\n  {word:<18} " in listed for word in ("closest", "ends", "states"))
    # They train, by name.
    asked = ["-m", "stillery", "distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--max-steps", 2]
    named = ["--method", "own-method", "--distance", "closest", "--pair", "ends", "--represent", "states"]
    run(*asked, *named, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "metrics.json").is_file()
