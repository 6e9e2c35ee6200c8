"""A page of a study and of runs, made once."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from report_runs import make_run

from stillery.cli.main import main

HOSTILE = "</script><script>window.pwned = 'text'</script><img src=x onerror=\"window.pwned = 'image'\">"


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process; gives its code, and what it printed to stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose texts, labels, names and settings hold scripts; texts differ in length."""
    place = tmp_path_factory.mktemp("hostile")
    texts = [f"{HOSTILE} {row} " + "word " * (row % 45) for row in range(120)]
    names = ("<script>window.pwned = 'label'</script>", "fine & \u2028 good")
    for split, rows in {"train": [f"other {row}" for row in range(40)], "test": texts}.items():
        path = place / "data" / f"{split}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *((text, names[row % 2]) for row, text in enumerate(rows))])
    for number, method in enumerate(("kd", "none", "<b onmouseover=alert(1)>")):
        folder = place / "runs" / f"run-{number}<script>window.pwned = 'name'<"
        make_run(
            folder, right=0.6 + 0.1 * number, seed=number, texts=texts, names=names, method=method, layers=number + 1,
            data="../../data",
        )  # fmt: skip
    return place / "runs"
