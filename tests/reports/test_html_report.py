"""`stillery report`: a page from real studies and runs, by the command line."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from report_runs import make_run

import stillery as library
from stillery.errors import UserError
from stillery.reports.serve import Server
from stillery.reports.write import write_report

PLAN = """
title = "tiny <b>study</b>"
tasks = ["reviews.csv"]
seeds = [0, 1]
max_length = 24
batch_size = 8
max_steps = 3
log_every = 1
strategies = ["layer-forward", "layer-reverse"]
[teacher]
model = "model"
[student]
layers = 2
[methods.none]
[methods.layer-forward]
[methods.layer-reverse]
[methods.broken]
method = "kd"
samples = 999
"""


class Page(HTMLParser):
    """What of a page can be read: its text by element, its scripts, its data."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: Any = None
        self._in = ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = "data" if dict(attrs).get("id") == "data" else tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "data":
            self.data = json.loads(data)
        elif self._in not in ("script", "style"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_teacher: Path, reviews: Path, stillery: Any) -> Path:
    """A finished study of tiny models, one method of which fails, copied away from its plan, data and model."""
    place = tmp_path_factory.mktemp("study")
    (place / "model").symlink_to(tiny_teacher)
    (place / "reviews.csv").symlink_to(reviews)
    plan = PLAN.replace("strategies", 'vary = ["samples"]\nstrategies')
    (place / "plan.toml").write_text(plan, encoding="utf-8")
    done = stillery("study", place / "plan.toml", "--out", place / "out", STILLERY_CACHE="off")
    assert done.returncode == 1 and "2 of 9 cells failed" in done.stderr, done.stderr
    return Path(shutil.copytree(place / "out", tmp_path_factory.mktemp("copied") / "study"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_teacher: Path, reviews: Path) -> Path:
    """A folder with a teacher, two students and an unfinished run."""
    place = tmp_path_factory.mktemp("runs")
    data = shutil.copy(reviews, place / "reviews.csv")
    library.finetune(model=tiny_teacher, data=data, max_steps=4, max_length=24, out=place / "runs" / "teacher")
    for name, layers in (("small", 2), ("smaller", 1)):
        library.distill(
            teacher=place / "runs" / "teacher", data=data, layers=layers, max_steps=4, max_length=24, cache="off",
            log_every=1, out=place / "runs" / name,
        )  # fmt: skip
    (place / "runs" / "begun").mkdir()
    shutil.copy(place / "runs" / "small" / "run.toml", place / "runs" / "begun")
    return place / "runs"


def sentences(page: Page, *wanted: str) -> None:
    for one in wanted:
        assert one in page.words, one


def test_a_study_becomes_a_page(study, tmp_path, command):
    """From the copied folder alone: title, reading, table, every figure, plan and command; nothing is run from it."""
    out = tmp_path / "report.html"
    assert command("report", study, "--out", out) == (0, f"{out}\n", "")
    page = Page(out)
    reading = json.loads((study / "tables" / "tables.json").read_text())["tables"]
    sentences(
        page, "tiny <b>study</b>", "7 of 9 cells finished, 2 failed.", "2 failed", "the training split has only",
        reading[1]["reading"],
        "Score against size and latency", "Every seed", "Paired differences", "Spread over layer strategies",
        "What they cost", "Learning curves", "Where teacher and student disagree", 'title = "tiny <b>study</b>"',
        "stillery study", "Runs were made with Python", "Vega",
    )  # fmt: skip
    means = {row["row"]: row["mean"] for row in reading[1]["rows"]}
    for name, mean in means.items():
        assert mean is None or re.search(rf"{re.escape(name)} (teacher )?{mean:.1f}", page.words), name
    charts = [chart["spec"] for figure in page.data["figures"] for chart in figure]
    descriptions = " ".join(chart["description"] for chart in charts)
    assert all(term in descriptions for term in ("loss over", "hidden over", "training, seconds"))
    # The data lies where the plan was, and was not copied: examples are shown by their ids, and it says why.
    run = json.loads(next((study / "cells").glob("*-none-seed0-*/metrics.json")).read_text())
    browser = page.data["browser"]
    none = next(one for one in browser["runs"] if one["name"] == "none, seed 0")
    assert none["of"] == run["examples"] and none["differ"] == round(run["examples"] * (1 - run["agreement"] / 100))
    assert not (study / "report.html").exists()


def test_runs_side_by_side_become_a_page(runs, tmp_path, command):
    """A folder of runs stands for them; one that is not finished is left out, and that is said."""
    out = tmp_path / "report.html"
    code, _, err = command("report", runs, "--out", out)
    assert (
        code == 0 and err.count("\n") == 1 and "warning: left out:" in err and "begun: this run is not finished" in err
    )
    page = Page(out)
    compared = library.compare([runs / "teacher", runs / "small", runs / "smaller"])
    sentences(page, *compared.summary, "Left out:", "small", "layer-forward, 1 layer", "stillery distill --config")
    metrics = json.loads((runs / "small" / "metrics.json").read_text())
    browser = page.data["browser"]
    small = next(number for number, one in enumerate(browser["runs"]) if one["name"] == "small")
    with (runs.parent / "reviews.csv").open(encoding="utf-8") as file:
        data = file.read()
    rows = [row for row in browser["rows"] if row[0] == small]
    assert len(rows) == round(metrics["examples"] * (1 - metrics["agreement"] / 100)) > 0
    for _, text, _, teacher, student, sure, _ in rows:
        assert browser["texts"][text].replace('"', '""') in data
        assert browser["answers"][teacher] != browser["answers"][student] and 0.5 <= sure <= 1
    code, _, err = command("report", runs, "--out", out)
    assert code == 2 and "is there already" in err and "--overwrite" in err
    assert command("report", runs, "--out", out, "--overwrite")[0] == 0
    assert library.report([runs / "small", str(runs / "smaller")], out=out, overwrite=True) == out
    assert "Left out" not in Page(out).words


def test_nothing_of_the_page_is_elsewhere_and_no_text_of_data_is_markup(hostile, tmp_path):
    out = write_report([str(hostile)], tmp_path / "report.html")
    page, text = Page(out), out.read_text(encoding="utf-8")
    policy = next(attributes["content"] for tag, attributes in page.tags if tag == "meta" and "content" in attributes)
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src" not in policy
    for tag, attributes in page.tags:
        assert tag not in ("img", "b", "iframe", "object", "base"), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), attributes
    # Four scripts of ours and the data; what users wrote begins none.
    assert sum(tag == "script" for tag, _ in page.tags) == 5
    assert not re.search(r"<script>\s*window\.pwned", text)
    assert any("window.pwned = 'image'" in one for one in page.data["browser"]["texts"])
    assert not re.search(
        r"https?://(?!vega\.github\.io/schema|www\.w3\.org)[\w.]+/",
        re.sub(r"<script>.*?</script>", "", text, flags=re.S),
    )


def test_200_runs_fit(tmp_path):
    """Their page stays below 5 MB, says what was left out, and is made in seconds."""
    for number in range(200):
        make_run(
            tmp_path / "runs" / f"run-{number:03}", right=0.6 + 0.001 * number, seed=number, examples=500, steps=300,
            layers=1 + number % 5,
        )  # fmt: skip
    began = time.monotonic()
    out = write_report([str(tmp_path / "runs")], tmp_path / "report.html")
    assert time.monotonic() - began < 60
    assert out.stat().st_size < 5_000_000
    page = Page(out)
    assert len(page.data["browser"]["rows"]) <= 1600
    sentences(page, "The first 40 of 200 students are here.", "run-199", "At most 37 examples of a student")
    # All runs and their teacher, and the five depths over their seeds, each with a heading.
    sentences(page, "Over seeds", "kd, 5 layers")
    assert sum(tag == "tr" for tag, _ in page.tags) == 202 + 6


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Two runs, made of files."""
    for number in range(2):
        make_run(tmp_path / "runs" / f"run-{number}", right=0.7, seed=number, examples=60, steps=20)
    return tmp_path / "runs"


def test_what_cannot_be_read_is_named_and_left_out(made, study, tmp_path, capsys):
    make_run(made / "cut", right=0.7, seed=3, examples=60, steps=20)
    (made / "cut" / "predictions.parquet").write_bytes(b"PAR1")
    (made / "run-1" / "log.jsonl").write_text('{"event": "train", "step": 1, "loss": 1, "terms": {}}\n{"event"\n')
    copied = Path(shutil.copytree(study, tmp_path / "study"))
    cell = next((copied / "cells").glob("*-layer-forward-seed1-*"))
    (cell / "metrics.json").write_text("{")
    (made / "analyses").mkdir()
    figure = {"analysis": "angles", "title": "Angles", "sentence": "Few are acute.", "data": {}, "settings": {}}
    spec = {"mark": "bar", "data": {"values": [{"x": 1}]}, "encoding": {"x": {"field": "x"}}, "usermeta": {"a": 1}}
    for name, value in (("angles", spec), ("far", spec | {"data": {"url": "http://example.org/x.csv"}})):
        (made / "analyses" / f"{name}.json").write_text(json.dumps(figure | {"spec": value}))
    out = write_report([str(made), str(copied), str(made / "analyses")], tmp_path / "report.html")
    warned = capsys.readouterr().err
    assert warned.count("warning: left out:") == 3
    for part in ("cut/predictions.parquet", cell.name, "far.json", "asks for data from elsewhere"):
        assert part in " ".join(warned.split()), part
    page = Page(out)
    sentences(page, "layer-forward has 1 of 2 seeds", "Few are acute.", "run-1")
    assert (
        page.data["figures"][-1][0]["spec"]["mark"] == "bar" and "usermeta" not in page.data["figures"][-1][0]["spec"]
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["empty"], "empty: neither a study nor a run is in this folder"),
        (["notes.txt"], "notes.txt is a file"),
        (["begun"], "begun: this run is not finished"),
        (["runs/run-0", "--out", "report.pdf"], "ends with .html"),
        (["runs/run-0", "--out", "none/report.html"], "there is no folder none"),
        (["runs/run-0", "--serve", "--out", "report.html"], "--serve writes no file"),
    ],
)
def test_bad_input_is_one_line(made, arguments, line, command, monkeypatch):
    here = made.parent
    for name in ("empty", "begun"):
        (here / name).mkdir()
    (here / "notes.txt").write_text("notes")
    shutil.copy(made / "run-0" / "run.toml", here / "begun")
    before = sorted(here.iterdir())
    monkeypatch.chdir(here)
    code, out, err = command("report", *arguments)
    assert (code, out) == (2, "") and line in err and err.count("\n") == 1
    assert sorted(here.iterdir()) == before


def test_a_study_without_a_finished_run_is_refused(study, tmp_path):
    bare = Path(shutil.copytree(study, tmp_path / "study", ignore=shutil.ignore_patterns("metrics.json")))
    with pytest.raises(UserError, match=r"no finished run in this study yet; continue it, or follow it with --serve"):
        write_report([str(bare)], tmp_path / "report.html")


def get(address: str, **headers: str) -> tuple[int, str, str | None]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode(), answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["ETag"]


def test_a_served_study_is_followed(study, tmp_path):
    """Before a run is finished, and as they finish; for this machine's names alone, and nothing but the page."""
    growing = Path(shutil.copytree(study, tmp_path / "study", ignore=shutil.ignore_patterns("metrics.json")))
    with Server([str(growing)], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            address = server.address
            assert address.startswith("http://127.0.0.1:") and server.server_address[0] == "127.0.0.1"
            status, text, tag = get(address)
            assert status == 200 and "No run is finished yet." in text and "connect-src &#39;self&#39;" in text
            status, text, tag = get(f"{address}main")
            assert "0 of 9 cells finished" in text and get(f"{address}main", **{"If-None-Match": tag})[0] == 304
            for metrics in (study / "cells").glob("*/metrics.json"):
                shutil.copy(metrics, growing / "cells" / metrics.parent.name)
            status, text, new = get(f"{address}main", **{"If-None-Match": tag})
            assert status == 200 and new != tag and "7 of 9 cells finished, 2 failed" in text
            assert get(address, Host="example.org")[0] == 421
            assert get(address, Host=f"localhost:{server.server_address[1]}")[0] == 200
            assert get(f"{address}cells.json")[0] == 404 and get(f"{address}../plan.toml")[0] == 404
        finally:
            server.shutdown()
            thread.join()


def test_serving_ends_with_ctrl_c(made):
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from stillery.cli.main import main; main()"
    command = [sys.executable, "-c", code, "report", str(made), "--serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address is not None and get(address[0])[0] == 200, said
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0 and out == "" and "Traceback" not in err, err


def test_the_libraries_are_those_that_are_recorded():
    folder = files("stillery.reports").joinpath("vendor")
    recorded = tomllib.loads(folder.joinpath("versions.toml").read_text(encoding="utf-8"))
    assert {one.name for one in folder.iterdir() if one.name.endswith(".js")} == {
        one["file"] for one in recorded.values()
    }
    for name, one in recorded.items():
        content = folder.joinpath(one["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"], name
        assert f'"{one["version"]}"'.encode() in content
        assert b"</script" not in content and b"<!--" not in content
        assert "Redistribution and use in source and binary forms" in folder.joinpath(f"{name}.LICENSE").read_text()
