"""Slips in names and paths are refused before a model library is loaded, with what may have been meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, sys
from stillery.cli.main import main
import contextlib, io
for line in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(line)
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue()]))
print(json.dumps(sorted({"torch", "transformers", "pyarrow"} & set(sys.modules))))
"""

DISTILL = "distill --layers 1 --out new"
CASES = [
    ("finetune --model teacher --data review.csv --out new", "no such file: review.csv; did you mean 'reviews.csv'?"),
    (f"{DISTILL} --teacher teacher --data reviews.json", "no such file: reviews.json; did you mean 'reviews.csv'?"),
    (f"{DISTILL} --teacher teachr --data reviews.csv", "teachr: no such folder; did you mean 'teacher'?"),
    (f"{DISTILL} --teacher run/smal --data reviews.csv", "run/smal: no such folder; did you mean 'runs/small'?"),
    (f"{DISTILL} --teacher ./nowhere --data reviews.csv", "./nowhere: no such folder"),
    ("finetune --model minilm-l7 --data reviews.csv --out new", "minilm-l7: no such folder; did you mean 'minilm-l6'?"),
    (f"{DISTILL} --teacher teacher --task sst2 --data-dir gleu",
     "--data-dir gleu: no such folder; did you mean 'glue'?"),
    (f"{DISTILL} --teacher teacher --data reviews.csv --method pdk",
     "unknown method 'pdk': did you mean 'pkd'? (see `stillery methods`)"),
    (f"{DISTILL} --teacher teacher --data reviews.csv --recipe min.py:build",
     "--recipe min.py:build: no such file: min.py; did you mean 'mine.py'?"),
    (f"{DISTILL} --teacher teacher --data reviews.csv --init evne",
     "--init: evne: no such folder; did you mean 'even'? (or choose from even, first, last, important, random, auto)"),
    ("distill --teacher teacher --data reviews.csv --layers 1 --out full",
     "--out full is not empty and holds no run: give another folder"),
    ("distill --config rum.toml --out new", "no such file: rum.toml; did you mean 'run.toml'?"),
    ("check run.toml", "no such file: nowhere.csv"),
    ("evaluate teachr --data reviews.csv", "teachr: no such folder; did you mean 'teacher'?"),
    ("predict teacher --data review.csv --out new.csv", "no such file: review.csv; did you mean 'reviews.csv'?"),
    ("layers teachr", "teachr: no such folder; did you mean 'teacher'?"),
    ("pairs --teacher teachr --layers 2", "teachr: no such folder; did you mean 'teacher'?"),
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as people have them; what is in its files is not read."""
    for model in ("teacher", "runs/small"):
        (tmp_path / model).mkdir(parents=True)
        (tmp_path / model / "config.json").write_text("{}")
    for folder in ("glue", "full"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text("mine")
    for file in ("reviews.csv", "mine.py"):
        (tmp_path / file).write_text("text,label\n")
    (tmp_path / "run.toml").write_text(
        'teacher = "teacher"\ndata = "nowhere.csv"\nlayers = 1\nmethod = "pkd"\nfingerprints = {data = "0"}\n'
    )
    return tmp_path


def test_slips_are_refused_without_a_model_library(place: Path) -> None:
    lines = json.dumps([line.split() for line, _ in CASES])
    done = subprocess.run([sys.executable, "-c", RUN, lines], capture_output=True, text=True, cwd=place, timeout=120)
    *answers, loaded = map(json.loads, done.stdout.splitlines())
    assert [said for _, said in answers] == [f"stillery: {said}\n" for _, said in CASES]
    assert {code for code, _ in answers} == {2}
    # pyarrow takes a fifth of a second, and says whether a file can be written.
    assert set(loaded) <= {"pyarrow"}
    assert not (place / "new").exists()


def test_the_hub_is_asked_only_where_everything_else_is_right(place: Path) -> None:
    lines = json.dumps([[*f"{DISTILL} --data review.csv --teacher".split(), "someone/model"]])
    done = subprocess.run([sys.executable, "-c", RUN, lines], capture_output=True, text=True, cwd=place, timeout=120)
    assert json.loads(done.stdout.splitlines()[0]) == [
        2, "stillery: no such file: review.csv; did you mean 'reviews.csv'?\n",
    ]  # fmt: skip


def test_lists_need_no_model_library() -> None:
    code = "import sys; from stillery.cli.main import main\ntry: main(['tasks'])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
