"""Documents tell the truth: their commands run, their tables are current, the files they name exist."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


PAGES = ("design", "methods", "data", "tasks", "performance", "teacher-store", "results/glue", "results/multi30k")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def folder(reviews: Path, tmp_path: Path) -> Path:
    """A folder with the files the README's commands name, short ones."""
    with reviews.open(encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    # The rows are sorted by label.
    parts = {"reviews.csv": (head, rows[::3]), "test.csv": (head, rows[1::9])}
    parts["new.csv"] = (head[:1], [row[:1] for row in rows[2::16]])
    for name, (columns, lines) in parts.items():
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([columns, *lines])
    texts = [row[0] for row in rows]
    (tmp_path / "logs.txt").write_text("\n".join(texts[1::4]), encoding="utf-8")
    for place, labels in {
        "mnli/train": [0, 1, 2],
        "mnli/dev_matched": [0, 1, 2],
        "mnli/dev_mismatched": [2, 1, 0],
        "mnli/test_matched": [-1],
        "mnli/test_mismatched": [-1],
        "scitail/test": [0, 1],
    }.items():
        path = tmp_path / "glue" / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        first, second = ("premise", "hypothesis") if "mnli" in place else ("sentence1", "sentence2")
        columns = {first: texts[:30], second: texts[30:60], "label": [labels[row % len(labels)] for row in range(30)]}
        pq.write_table(pa.table(columns), path)
    return tmp_path


def test_the_readmes_commands_run_as_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether a teacher's store is used is decided by the clock, and rounds otherwise: weights are compared below.
    monkeypatch.setenv("STILLERY_CACHE", "off")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("stillery ")]
    # Those of models that write text need one, which no package ships; tests/cli/test_text_runs.py runs their like.
    text = [line for line in commands if "pairs.csv" in line or "--beams" in line or "--source" in line]
    assert len(text) == 4
    commands = [line for line in commands if line not in text]
    jobs = ["finetune", "distill", "evaluate", "predict", "distill", "finetune", "distill", "evaluate", "evaluate"]
    assert [shlex.split(line)[1] for line in commands] == jobs
    for line in commands:
        arguments = [sys.executable, "-m", "stillery", *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    with (folder / "labelled.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert {path.name for path in (folder / "leaderboard").iterdir()} == {"MNLI-m.tsv", "MNLI-mm.tsv"}
    assert {row["prediction"] for row in rows} <= {"negative", "positive"}
    again = "distill --config small/run.toml --out again"
    assert again in README
    done = subprocess.run(
        [sys.executable, "-m", "stillery", *again.split()], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    weights = [folder / run / "student" / "model.safetensors" for run in ("small", "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_readmes_python_runs_as_written(folder: Path) -> None:
    (block,) = blocks("python")
    code = [line for line in block.splitlines() if line.strip()]
    assert len(code) <= 8
    done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


def test_the_makefile_has_the_readmes_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_methods_page_is_current() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    generated = page.split("<!-- generated: stillery methods --markdown -->\n")[1].split("<!-- end -->")[0]
    done = subprocess.run([sys.executable, "-m", "stillery", "methods", "--markdown"], capture_output=True, text=True)
    assert generated == done.stdout, "write it again: stillery methods --markdown"


def test_the_parts_of_the_methods_page_are_current() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    generated = page.split("<!-- generated: stillery methods --parts -->\n```\n")[1].split("```\n<!-- end parts -->")[0]
    done = subprocess.run([sys.executable, "-m", "stillery", "methods", "--parts"], capture_output=True, text=True)
    assert generated == done.stdout, "write it again: stillery methods --parts"


def test_the_design_names_every_room_and_file_there_is() -> None:
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    map_ = re.search(r"```\n(src/stillery/.*?)```", design, flags=re.DOTALL)
    assert map_ is not None
    source = ROOT / "src" / "stillery"
    rooms = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(re.findall(r"^  (\w+)/", map_[1], flags=re.MULTILINE)) == rooms
    named = set(re.findall(r"(\w+\.py)", map_[1]))
    there = {path.name for path in source.rglob("*.py")}
    assert named <= there, named - there
    for room in ("", "parts", "models", "train"):
        files = {path.name for path in (source / room).glob("*.py")} - {"__init__.py", "__main__.py"}
        assert files <= named, (
            f"docs/design.md does not say what {sorted(files - named)} in {room or 'the root'} is for"
        )


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_recipe_of_the_methods_page_runs(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "my_recipe.py").write_text(code, encoding="utf-8")
    arguments = ["distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", "2", "--max-steps", "2"]
    arguments += ["--recipe", "my_recipe.py:build", "--out", "own", "--width", "16", "--heads", "2"]
    command = [sys.executable, "-m", "stillery", *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
