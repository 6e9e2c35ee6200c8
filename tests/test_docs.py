"""Documents tell the truth: their commands run, their tables are current, the files they name exist."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillery.cli import method_pages
from stillery.cli.methods import methods as show_method

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

PAGES = sorted(str(path.relative_to(ROOT)) for path in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")))
METHOD_PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/methods").glob("*.md"))}
RESULTS = [*(ROOT / "docs").glob("performance*.md"), *(ROOT / "docs/results").glob("*.md")]


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


@pytest.mark.slow
def test_the_readmes_commands_run_as_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether a teacher's store is used is decided by the clock, and rounds otherwise: weights are compared below.
    monkeypatch.setenv("STILLERY_CACHE", "off")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("stillery ")]
    # Those of models that generate text need one, which no package ships; tests/cli/test_text_runs.py runs their like.
    text = [line for line in commands if "pairs.csv" in line or "--beams" in line or "--source" in line]
    assert len(text) == 4
    commands = [line for line in commands if line not in text]
    jobs = [
        "finetune",
        "distill",
        "evaluate",
        "compare",
        "predict",
        "distill",
        "finetune",
        "distill",
        "evaluate",
        "evaluate",
    ]
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
    weights = [folder / run / "model.safetensors" for run in ("small", "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
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


def printed(*arguments: str) -> str:
    """What `stillery methods` prints with these arguments."""
    command = [sys.executable, "-m", "stillery", "methods", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def described() -> dict[str, dict[str, Any]]:
    """Every method as `stillery methods --json` has it."""
    return {one["name"]: one for one in json.loads(printed("--json"))}


@pytest.fixture(scope="module")
def composed() -> dict[str, list[str]]:
    """The lines of `stillery methods --markdown` that say how each method's student starts and what its terms are."""
    sections = (part.split("\n", 1) for part in printed("--markdown").split("\n### ")[1:])
    return {
        name: [line for line in text.splitlines() if line.startswith(("Student: starts", "- `"))]
        for name, text in sections
    }


def section(name: str) -> str:
    """The part of a page that is about one method: from its heading to the next of that level."""
    found = [
        text
        for page in METHOD_PAGES.values()
        for text in re.findall(rf"^## `{name}`\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    ]
    assert len(found) == 1, f"{name} has {len(found)} headings in docs/methods, not one"
    return str(found[0])


def page_of(name: str) -> str:
    """The one page with a heading for the method."""
    (page,) = (text for text in METHOD_PAGES.values() if f"\n## `{name}`\n" in text)
    return page


def options_on(page: str) -> dict[str, list[tuple[str, str, str]]]:
    """The rows (option, default, source) of a page's tables of options, by method."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    table = r"^Options of (.*):\n\n\| option \| default \| from \| what it does \|\n\|[-|]+\n((?:\|.*\n)+)"
    for names, rows in re.findall(table, page, flags=re.MULTILINE):
        read = [tuple(cell.strip() for cell in row.split("|")[1:5]) for row in rows.splitlines()]
        assert all(what for *_, what in read), names
        for name in re.findall(r"`(.+?)`", names):
            found.setdefault(name, []).extend(
                (option.strip("`"), default, source) for option, default, source, _ in read
            )
    return found


def test_every_method_has_one_page_with_its_paper(described: dict[str, dict[str, Any]]) -> None:
    headings = re.findall(r"^## `(.+)`$", "\n".join(METHOD_PAGES.values()), flags=re.MULTILINE)
    assert sorted(headings) == sorted(described)
    for name, method in described.items():
        # Methods of one paper may name it once, above all of them.
        page = page_of(name)
        above = page[: re.search(r"^## ", page, flags=re.MULTILINE).start()]  # type: ignore[union-attr]
        paper = f"Paper: {method['paper']}."
        assert paper in section(name) or paper in above, f"{name}: its page does not say {paper!r}"


def test_the_pages_of_methods_have_their_terms(composed: dict[str, list[str]]) -> None:
    for name, lines in composed.items():
        assert len(lines) > 1, name
        missing = [line for line in lines if line not in section(name).splitlines()]
        assert not missing, f"{name}: write again with make docs: {missing}"
        stated = [line for line in section(name).splitlines() if re.match(r"- `\w+`( \(\w+, share \d+\))?: ", line)]
        assert [line for line in stated if line not in lines] == [], name


def test_the_pages_of_methods_have_every_option_with_its_default_and_source(
    described: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, method in described.items():
        show_method(name=name, json=False, parts=False, presets=False, markdown=False)
        said = re.findall(r"^  (\w+) = (.*)  \((.*)\)$", capsys.readouterr().out, flags=re.MULTILINE)
        assert [option for option, _, _ in said] == list(method["options"])
        assert sorted(options_on(page_of(name))[name]) == sorted(said), name


def test_every_page_of_methods_says_when_what_and_how_well() -> None:
    for name, page in METHOD_PAGES.items():
        if "\n## `" not in page:
            continue
        headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
        assert {"Options", "Measured", "Known limits"} <= set(headings), name
        assert "When to use" in page, name
        # A page that `make docs` has begun says so until somebody writes the equation down.
        assert "```math" in page or "The equation is the paper's." in page, name
        assert f"(methods/{name})" in (ROOT / "docs/methods.md").read_text(encoding="utf-8"), name


def test_measured_differences_on_the_pages_of_methods_stand_in_the_results() -> None:
    results = "\n".join(path.read_text(encoding="utf-8") for path in RESULTS)
    measured = {
        (name, number) for name, page in METHOD_PAGES.items() for number in re.findall(r"[+-]\d+\.\d \+- \d+\.\d", page)
    }
    assert len(measured) > 20
    assert not {(name, number) for name, number in measured if number not in results}


def test_equations_are_whole() -> None:
    for name, page in METHOD_PAGES.items():
        for equation in re.findall(r"```math\n(.*?)```", page, flags=re.DOTALL):
            bare = re.sub(r"\\[{}]", "", equation)
            assert bare.count("{") == bare.count("}"), (name, equation)
            assert len(re.findall(r"\\left\b", equation)) == len(re.findall(r"\\right\b", equation)), (name, equation)
            assert equation.count(r"\begin") == equation.count(r"\end"), (name, equation)
            assert "\n\n" not in equation, (name, equation)


def test_the_table_of_methods_is_current() -> None:
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    table = page.split("<!-- generated: stillery methods --markdown, its table -->\n")[1].split("<!-- end -->")[0]
    assert table.strip() == printed("--markdown").split("\n\n### ")[0], "write it again: make docs"


def test_the_readme_counts_the_methods(described: dict[str, dict[str, Any]]) -> None:
    assert re.findall(r"(\d+) methods", README) == [str(len(described))]


def test_make_docs_changes_nothing() -> None:
    pages = method_pages.current()
    later = method_pages.written(pages)
    assert [path.name for path in later if later[path] != pages.get(path)] == [], "write them again: make docs"


def test_the_list_of_parts_is_current() -> None:
    page = METHOD_PAGES["parts.md"]
    generated = page.split("<!-- generated: stillery methods --parts -->\n```\n")[1].split("```\n<!-- end parts -->")[0]
    assert generated == printed("--parts"), "write it again: make docs"


def test_the_design_names_every_room_there_is() -> None:
    design = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    assert len(design.splitlines()) <= 100
    tree = re.search(r"```\n(src/stillery/.*?)```", design, flags=re.DOTALL)
    assert tree is not None
    source = ROOT / "src/stillery"
    rooms = {str(path.parent.relative_to(source)) for path in source.rglob("__init__.py")} - {"."}
    # A kind of model is a file or a folder, as it likes.
    rooms = {room for room in rooms if not room.startswith("jobs/kinds/")}
    named, above = set(), ""
    for indent, room in re.findall(r"^( +)(\w+)/ ", tree[1], flags=re.MULTILINE):
        above = room if len(indent) == 2 else above
        named.add(room if len(indent) == 2 else f"{above}/{room}")
    assert named == rooms
    for file in re.findall(r"(\w+\.py)", design):
        assert (source / file).exists(), file


def test_levers_of_the_reasons_are_those_of_the_benchmark() -> None:
    reasons = (ROOT / "docs/performance-reasons.md").read_text(encoding="utf-8")
    benchmark = (ROOT / "benchmarks/levers.py").read_text(encoding="utf-8")
    levers = re.findall(r'^    "([a-z-]+)": lambda', benchmark, flags=re.MULTILINE)
    assert len(levers) > 5
    assert not [lever for lever in levers if f"`{lever}`" not in reasons]
    given = re.findall(r"--without ([a-z\s-]+?)(?:`|\)| --)", reasons)
    assert not {word for words in given for word in words.split()} - set(levers)


def test_options_that_documents_name_exist() -> None:
    helped = ""
    for command in (
        "finetune",
        "distill",
        "evaluate",
        "predict",
        "export",
        "methods",
        "pairs",
        "layers",
        "demo",
        "cache",
        "study",
        "shrink",
    ):
        done = subprocess.run([sys.executable, "-m", "stillery", command, "--help"], capture_output=True, text=True)
        helped += done.stdout
    for group in ("synth", "fetch", "average"):
        done = subprocess.run(
            [sys.executable, "-m", "stillery", "tasks", group, "--help"], capture_output=True, text=True
        )
        helped += done.stdout
    for name in ("angles", "flatness", "forecast", "loss-surface", "probe"):
        done = subprocess.run(
            [sys.executable, "-m", "stillery", "analyse", name, "--help"], capture_output=True, text=True
        )
        helped += done.stdout
    known = set(re.findall(r"--[a-z][a-z-]*", helped))
    for page in (
        "README.md",
        "docs/methods.md",
        "docs/data.md",
        "docs/deploy.md",
        "docs/tasks.md",
        "docs/teacher-cache.md",
        "docs/teachers.md",
        "docs/studies.md",
        "docs/analyses.md",
    ):
        text = re.sub(
            r"`python benchmarks.*?`|```sh\npython.*?```|accelerate launch --.*? -m ",
            "",
            (ROOT / page).read_text("utf-8"),
            flags=re.DOTALL,
        )
        assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - known, page
    for name, text in METHOD_PAGES.items():
        bare = re.sub(r"`python\s+benchmarks.*?`|`--losses.*?`", "", text, flags=re.DOTALL)
        assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", bare)) - known, name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if target.startswith("http"):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in [slug(heading) for heading in headings], f"{target}#{anchor}"


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_documents_use_the_words_of_the_field(page: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    other = r"teacher stores?\b|\bwrit(?:es?|ing) text|put away|stages? of layers|(?:train|dev|test)(?:ing)? parts?\b"
    assert not re.findall(other, text), page


def test_the_recipe_of_the_methods_page_runs(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", METHOD_PAGES["parts.md"], flags=re.DOTALL)
    (tmp_path / "my_recipe.py").write_text(code, encoding="utf-8")
    arguments = ["distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", "2", "--max-steps", "2"]
    arguments += ["--recipe", "my_recipe.py:build", "--out", "own", "--width", "16", "--heads", "2"]
    command = [sys.executable, "-m", "stillery", *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
