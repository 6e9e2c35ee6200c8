"""Progress in a notebook, which IPython's absence here stands in for: a shell with a kernel is all that is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import stillery
from stillery import notebook
from stillery.notebook import NotebookBar, in_notebook


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Let this process be in an IPython shell."""

    def use(found: object) -> None:
        module = ModuleType("IPython")
        module.get_ipython = lambda: found  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", module)

    return use


def test_a_notebook_is_a_shell_with_a_kernel(shell: Callable[[object], None]) -> None:
    assert not in_notebook()
    for found, expected in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)):
        shell(found)
        assert in_notebook() is expected


def test_a_run_in_a_notebook_shows_its_progress_as_text(
    shell: Callable[[object], None],
    tiny_teacher: Path,
    reviews: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell(SimpleNamespace(kernel=1))
    monkeypatch.setattr(notebook, "EVERY", 0.0)
    stillery.distill(teacher=tiny_teacher, data=reviews, layers=2, max_steps=3, log_every=1, out=tmp_path / "run")
    err = capsys.readouterr().err
    train = [line for line in err.replace("\r", "\n").splitlines() if line.startswith("train ")]
    assert "[########                ] 1/3 " in err and "loss " in train[-1]
    assert train[-1].startswith("train [########################] 3/3 ")
    assert "ipywidgets" not in err and "\x1b" not in err


def test_the_line_is_written_over_at_a_modest_rate(capsys: pytest.CaptureFixture[str]) -> None:
    bar = NotebookBar("train", 1000)
    for _ in range(1000):
        bar.advance()
    assert capsys.readouterr().err.count("\r") == 1
    bar.advance(0, note=["loss 0.5000"])
    bar.show()
    assert "] 1000/1000 0:00<0:00 loss 0.5000" in capsys.readouterr().err
    quiet = NotebookBar("train", None, silent=True)
    quiet.advance()
    assert capsys.readouterr().err == "" and quiet.line() == "train 1 0:00"
