"""A finished run whose metrics or log were damaged on disk: one line, never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from forked import start

RUN = ("--layers", 2, "--cache", "off", "--max-length", 16, "--max-steps", 4, "--batch-size", 8, "--checkpoint-every",
       2, "--log-every", 1)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    made = start(
        place / "said", "distill", "--teacher", tiny_teacher, "--data", reviews, *RUN, "--out", place / "whole"
    )
    assert made.wait() == 0, made.err
    return place / "whole"


@pytest.fixture
def run(finished: Path) -> Path:
    """A copy beside the first one, from where the relative paths in its run file lead to the same places."""
    place = finished.with_name("run")
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(finished, place)


def changed(metrics: dict[str, Any], key: str, value: Any) -> bytes:
    return json.dumps(
        {name: one for name, one in metrics.items() if name != key} | ({} if value is None else {key: value})
    ).encode()


DAMAGES = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "binary": lambda raw: b"\xff\xfe" + raw,
    "a list": lambda raw: b"[]",
    "no metrics": lambda raw: changed(json.loads(raw), "metrics", None),
    "texts as metrics": lambda raw: changed(json.loads(raw), "metrics", {"accuracy": "high"}),
    **{f"{key} as a number": (lambda raw, key=key: changed(json.loads(raw), key, 3))
       for key in ("split", "intervals", "per_class", "teacher_metrics", "cost", "training", "warnings")},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_metrics_are_one_line(command, run, finished, damage):
    file = run / "metrics.json"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    for asked in (("distill", "--resume", "--out", run), ("compare", run, finished), ("diagnose", run)):
        done = command(*asked)
        if done.code == 0:
            # Neither shows the split that is written there.
            assert asked[0] != "distill" and damage == "split as a number"
            continue
        assert done.code == 2 and done.err.splitlines()[-1].startswith(f"stillery: {file}: not as a run writes it (")
        assert done.err.count("stillery: ") == 1 and done.err.endswith("; copy the run again\n")


LINES = {
    "not UTF-8": b"\xff\xfe\x00\n",
    "a list": b"[]\n",
    "no step": b'{"event": "train"}\n',
    "a text as step": b'{"event": "train", "step": "x"}\n',
    "no stage": b'{"event": "train", "step": 1, "loss": 1.0, "terms": {}}\n',
    "metrics that are none": b'{"event": "dev", "step": 1, "metrics": 3}\n',
}


@pytest.mark.parametrize("damage", LINES)
def test_damaged_lines_of_the_log_are_left_out(command, run, finished, damage):
    log = run / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(LINES[damage] + whole)
    assert command("diagnose", run).code == 0
    assert command("report", run, "--out", run / "page.html").code == 0
    # As if it had been killed before its last word.
    (run / "metrics.json").unlink()
    (run / "page.html").unlink()
    done = command("distill", "--resume", "--out", run)
    assert done.code == 0 and f"{log}: 1 damaged line is left out" in done.err, done.err
    events = [[json.loads(line) for line in text.splitlines()] for text in (log.read_bytes(), whole)]
    for event in [*events[0], *events[1]]:
        event.pop("seconds", None)
    assert events[0] == events[1]
