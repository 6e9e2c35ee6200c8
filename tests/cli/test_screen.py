"""What a user sees: bars and lines on a terminal of 80 columns, how much is said, and what to run next."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import sys
import termios
from pathlib import Path

import pytest
from csv_files import write_csv
from rich.console import Console
from text_models import ask, make_writer, write_pairs

import stillery
from stillery import progress
from stillery.errors import UserError
from stillery.progress import bar, each_once, say

QUICK = ("--max-steps", 3, "--batch-size", 16, "--max-length", 16)
DETAILS = ("is split by its texts", "student: start first", "copied from", "student-teacher layers", "teacher cache:")


def on_a_terminal(*arguments: object, columns: int = 80) -> tuple[int, list[str], list[str]]:
    """Run the command line on a terminal: how it ended, its lines, and the frames of its bars."""
    child, terminal = pty.fork()
    if child == 0:
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        os.execve(
            sys.executable, [sys.executable, "-m", "stillery", *map(str, arguments)], environment | {"TERM": "xterm"}
        )
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    written = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # Linux says so that the other end is closed.
            break
        if not piece:
            break
        written += piece
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    pieces = [piece for piece in re.split(r"[\r\n]+", plain) if piece.strip()]
    return code, [one for one in pieces if "━" not in one], [one for one in pieces if "━" in one]


def next_commands(said: str) -> list[list[str]]:
    """The arguments of the commands that are shown to continue."""
    after = said.partition("next:\n")[2].replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in after.splitlines()]


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_bar_keeps_step_total_and_times_and_cuts_no_number(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=columns, force_terminal=True, force_jupyter=False, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    terms = [f"{stack}_{term} {value}" for stack, value in (("encoder", 3.22), ("decoder", 0.512))
             for term in ("attention", "hidden")]  # fmt: skip
    with bar("train", 12345) as shown:
        shown.advance(6789, note=["layers", "loss 13.8", *terms])
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    *_, frame = [line for line in re.split(r"[\r\n]+", plain) if "━" in line]
    assert len(frame) <= columns
    found = re.search(r"train ━+\S* +6789/12345 \d:\d\d:\d\d (-:--:--|\d:\d\d:\d\d)(.*)", frame)
    assert found, frame
    # Whole pieces from the first on, and a mark where some had no room.
    shown, all_of_it = found[2].strip(), ["layers", "loss 13.8", *terms]
    kept = [one.strip() for one in shown.removesuffix("…").split("  ") if one.strip()]
    assert kept == all_of_it[: len(kept)] and ("…" in shown) == (0 < len(kept) < len(all_of_it))
    assert columns < 80 or kept[:2] == all_of_it[:2]


def test_a_line_said_before_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    with each_once():
        for line in ("data: 80 train", "student: kd", "data: 80 train", "student: pkd"):
            say(line)
    say("data: 80 train")
    said = capsys.readouterr().err.splitlines()
    assert said == ["data: 80 train", "student: kd", "student: pkd", "data: 80 train"]


def test_a_generator_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Many loss terms; its speed is that of whole texts, measured as the teacher's."""
    teacher, pairs, run = make_writer(tmp_path / "t5", "t5"), write_pairs(tmp_path / "pairs.csv"), tmp_path / "run"
    options = ("--method", "tinybert", "--encoder-layers", 1, "--decoder-layers", 1)
    code, lines, frames = on_a_terminal(*ask("distill", teacher, pairs, run, *options))
    assert code == 0, lines
    assert max(map(len, [*lines, *frames])) <= 80 or str(tmp_path) in max(lines, key=len)
    train = [frame for frame in frames if re.match(r"\S? *train ", frame)]
    assert train and all(re.search(r" \d+/4 \d:\d\d:\d\d (-:--:--|\d:\d\d:\d\d)", frame) for frame in train)
    # Lines that were broken are indented, and nothing of them is lost.
    said = " ".join(" ".join(lines).split())
    assert "scores on so few say little (see their 95% intervals); add rows, or give splits of your own" in said
    cost = json.loads((run / "metrics.json").read_text())["cost"]
    assert cost["generation_speedup"] == pytest.approx(
        cost["texts_per_second"] / cost["teacher_texts_per_second"], 0.05
    )
    speed = f"{cost['texts_per_second']:.1f} texts a second, {cost['generation_speedup']:.2f}x the teacher's"
    assert f"{speed} (2 beams, batches of 6)" in said and "teacher's speed" not in said
    assert cost["speedup"] > 0 and cost["latency_ms"] > 0
    assert speed in (run / "README.md").read_text()


def test_how_much_is_said(command, tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, *QUICK)
    usual = command(*asked, "--out", tmp_path / "usual")
    verbose = command(*asked, "--verbose", "--out", tmp_path / "verbose")
    quiet = command(*asked, "--quiet", "--out", tmp_path / "quiet")
    assert (usual.code, verbose.code, quiet.code) == (0, 0, 0), usual.err + verbose.err + quiet.err
    assert [detail in usual.err for detail in DETAILS] == [False] * len(DETAILS)
    assert [detail in verbose.err for detail in DETAILS] == [True] * len(DETAILS)
    assert "128 train" in usual.err and "dev accuracy" in verbose.out and "dev accuracy" not in usual.out
    assert quiet.out == "" and all(line.startswith("warning: ") for line in quiet.err.splitlines())
    kept = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("usual", "verbose", "quiet")]
    assert kept[0]["metrics"] == kept[1]["metrics"] == kept[2]["metrics"] and kept[0].keys() == kept[2].keys()
    # Scores are what evaluate is asked for; bad input is said however quiet.
    test = ("--data", reviews, "--split", "test", "--quiet")
    done = command("evaluate", tmp_path / "quiet", *test)
    assert "accuracy" in done.out and done.err == ""
    assert command("check", tmp_path / "quiet" / "run.toml", "--quiet").out == ""
    out = tmp_path / "out.csv"
    assert command("predict", tmp_path / "quiet", "--data", reviews, "--out", out, "--quiet").out == "" and out.exists()
    done = command("evaluate", tmp_path / "nowhere", *test)
    assert done.code == 2 and done.err.startswith("stillery: ")
    done = command("evaluate", tmp_path / "quiet", *test, "--verbose")
    assert (done.code, done.err) == (2, "stillery: both --quiet and --verbose are given: give one\n")


def test_python_says_as_much(tiny_teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["a quiet triumph of a film that goes on and on"]
    for more, said in (({}, "1 of 1 texts are longer than 4 tokens"), ({"quiet": True}, "")):
        stillery.predict(tiny_teacher, data=texts, max_length=4, **more)
        assert said in (err := capsys.readouterr().err) and bool(err) == bool(said)
    with pytest.raises(UserError, match="both quiet and verbose"):
        stillery.predict(tiny_teacher, data=texts, quiet=True, verbose=True)


def test_what_to_run_next_runs_as_it_is_shown(command, make_bert, reviews: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Column names and a folder name that a shell would take apart.
    rows = [line.rsplit(",", 1) for line in reviews.read_text(encoding="utf-8").splitlines()[1:]]
    data = write_csv(
        tmp_path / "my reviews.csv", ("what they say", "feeling"), [(text.strip('"'), one) for text, one in rows]
    )
    columns = ("--text", "what they say", "--label", "feeling")
    done = command("finetune", "--model", make_bert(), "--data", data.name, *columns, *QUICK, "--out", "my teacher")
    assert done.code == 0, done.err
    (distill,) = next_commands(done.out)
    assert distill[:5] == ["distill", "--teacher", "my teacher", "--data", "my reviews.csv"]
    assert distill[-4:] == ["--layers", "1", "--out", "my teacher-small"]
    done = command(*distill, "--max-steps", 2)
    assert done.code == 0, done.err
    shown = next_commands(done.out)
    assert [one[0] for one in shown] == ["evaluate", "predict"]
    for arguments in shown:
        again = command(*arguments)
        assert again.code == 0, again.err
    assert Path("my teacher-small-predictions.csv").exists()
    found = json.loads(Path("my teacher-small/metrics.json").read_text())
    assert f"{found['metrics']['accuracy']:6.2f}" in command(*shown[0]).out


def test_long_lists_are_cut_with_a_count(command, make_bert, reviews: Path, tmp_path: Path) -> None:
    wide = write_csv(tmp_path / "wide.csv", [f"c{place}" for place in range(60)], [list(range(60))] * 3)
    done = command("finetune", "--model", make_bert(), "--data", wide, *QUICK, "--out", tmp_path / "no")
    assert done.code == 2 and "'c18', 'c19' and 40 more" in done.err and "c20" not in done.err


def test_a_loss_that_explodes(command, tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    """A finite one is warned of once a stage; one that is not finite stops the run; both say what to do first."""
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--batch-size", 16,
             "--max-length", 16, "--max-steps", 16)  # fmt: skip
    done = command(*asked, "--lr", 10, "--warmup", 0, "--out", tmp_path / "far")
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "exploded" in line]
    assert len(lines) == 1 and lines[0].startswith("warning: lower the learning rate (--lr, now 10)")
    (found,) = [one for one in json.loads((tmp_path / "far" / "metrics.json").read_text())["warnings"]
                if one["guard"] == "explosion"]  # fmt: skip
    assert found["message"] == lines[0] and found["loss"] > 5 * found["start"]
    logged = [json.loads(line) for line in (tmp_path / "far" / "log.jsonl").read_text().splitlines()]
    assert [one["guard"] for one in logged if one["event"] == "warning"].count("explosion") == 1
    done = command(*asked, "--lr", 1e30, "--clip", 0, "--out", tmp_path / "nan")
    *_, last = done.err.splitlines()
    assert done.code == 1 and last.startswith("stillery: lower the learning rate (--lr)") and last.endswith(" more")
