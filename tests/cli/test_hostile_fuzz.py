"""Files with values that nobody expects, drawn at random: lines and exit code 2, never a traceback, nothing written.

Every test takes a few seconds of examples; `HYPOTHESIS_EXAMPLES` in the environment draws more.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillery.cli.main import main
from stillery.errors import ErrorList
from stillery.models.load_model import load_tokenizer, read_config

FEW = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "25")),
    deadline=None,
    # The same examples in every run of the tests; with more of them they are drawn anew.
    derandomize="HYPOTHESIS_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
HALF = st.just("\ud83d")
NUMBERS = st.sampled_from([0, -1, 1, 2**31, 2**62, -(2**62), 0.5, -0.0, 1e308, float("nan"), float("inf")])
TEXTS = st.sampled_from(
    ["", " ", "x" * 5000, "\x1b[31m", "\u202e", "../../x", "/etc/hostname", "a\nb", "{x}", "%s", "-1"]
)
PLAIN = NUMBERS | TEXTS | st.booleans()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


@pytest.fixture(autouse=True)
def no_logs() -> Iterator[None]:
    """Leave out what libraries log: it may have half characters in it, which pytest-xdist cannot send."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model, data and nothing else; no example may add to it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(str(ended.value.code))


def changed(base: dict[str, Any], changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """The values with some others, by name; `a.b` is the value b of the table a."""
    found = json.loads(json.dumps(base))
    for name, value in changes:
        *outer, last = name.split(".")
        place = found
        for one in outer:
            place = place.setdefault(one, {}) if isinstance(place.get(one, {}), dict) else {}
        place[last] = value
    return found


def changes(names: list[str], values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(st.tuples(st.sampled_from(names), values), min_size=1, max_size=3)


@pytest.fixture
def model(here: Path, tiny_teacher: Path) -> Path:
    return Path(shutil.copytree(tiny_teacher, here / "model"))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_configurations_of_a_model(file: str, model: Path, here: Path) -> None:
    place = model / file
    base = json.loads(place.read_text()) if place.is_file() else {"temperature": 0.5}
    more = ["auto_map", "quantization_config", "rope_parameters", "tokenizer_class", "added_tokens_decoder", "new"]
    place.write_text("{}")
    before = everything(here)

    @FEW
    @given(changes=changes([*base, *more], VALUES | HALF), end=st.just(1.0) | st.floats(0, 1))
    def check(changes: list[tuple[str, Any]], end: float) -> None:
        text = json.dumps(changed(base, changes))
        place.write_text(text[: round(end * len(text))])
        errors = ErrorList()
        for read in (read_config, load_tokenizer):
            with errors.catch():
                read("model")
        assert all(line.startswith("model: ") for line in errors.lines)
        assert everything(here) == before

    check()


RUN = {
    "job": "distill", "teacher": "model", "data": "good.csv", "layers": 1, "method": "pkd", "seed": 1, "lr": 1e-4,
    "epochs": 1, "init": "first", "elsewhere": ["data"], "options": {"layer_weight": 1.0},
    "fingerprints": {"data": "x"}, "paths": "relative to this file", "stored_stages": [0], "recipe": "x.py:build",
    "given_in_python": ["metric"], "processes": 2, "copy_layers": [1], "ild_data": "good.csv", "label_map": "0=a",
}  # fmt: skip
PLAN = {
    "title": "a", "tasks": ["good.csv"], "seeds": [0], "vary": ["init"], "select": "mean", "search": "grid",
    "trials": 1, "baselines": ["kd"], "strategies": [], "margin": 1.0, "max_length": 16,
    "published": [{"name": "x", "source": "y", "model": "z", "data": "w", "scores": {"good": 1.0}}],
    "teacher": {"model": "model", "epochs": 1}, "student": {"layers": 1, "tasks": {"good": {"epochs": 1}}},
    "methods": {"kd": {"temperature": 2.0}, "none": {}},
}  # fmt: skip


def names_in(base: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in base.items():
        yield before + name
        if isinstance(value, dict):
            yield from names_in(value, f"{before}{name}.")


@pytest.mark.parametrize(("base", "words"), [(RUN, "check evil.toml"), (PLAN, "study evil.toml --out new --dry-run")])
def test_run_files_and_plans(
    base: dict[str, Any], words: str, model: Path, here: Path, reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(reviews, here / "good.csv")
    (here / "evil.toml").write_text("")
    before = everything(here)
    # TOML has no empty value, and Python's writer of it no mixed keys.
    assert tomllib.loads(tomli_w.dumps(base)) == base

    @FEW
    @given(changes=changes([*names_in(base), "options.x", "tasks", "new", "out"]), end=st.just(1.0) | st.floats(0, 1))
    def check(changes: list[tuple[str, Any]], end: float) -> None:
        text = tomli_w.dumps(changed(base, changes))
        (here / "evil.toml").write_text(text[: round(end * len(text))], encoding="utf-8")
        code = code_of(*words.split())
        printed = capsys.readouterr()
        assert code in (0, 2) and (code == 0 or printed.err), printed.err
        assert "Traceback" not in printed.err and "\x1b" not in printed.err + printed.out
        assert everything(here) == before

    check()


ANALYSIS = {
    "title": "a", "sentence": "b", "spec": {"mark": "bar", "data": {"values": [{"x": 1}]}, "encoding": {}},
    "table": [{"x": 1}], "columns": ["x"], "data": {"x": [1]}, "name": "angles",
}  # fmt: skip


def test_analyses_in_a_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "good.json").write_text(json.dumps(ANALYSIS))
    (here / "evil.json").write_text("{}")
    (here / "page.html").write_text("")
    before = everything(here)

    @FEW
    @given(changes=changes([*names_in(ANALYSIS), "new"], VALUES | HALF), end=st.just(1.0) | st.floats(0, 1))
    def check(changes: list[tuple[str, Any]], end: float) -> None:
        text = json.dumps(changed(ANALYSIS, changes))
        (here / "evil.json").write_text(text[: round(end * len(text))])
        code = code_of("report", "good.json", "evil.json", "--out", "page.html", "--overwrite")
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert "\x1b" not in printed.err + printed.out
        assert everything(here) == before

    check()
