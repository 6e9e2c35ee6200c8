"""The command `stillery shrink`: what it refuses before anything runs, what it would do, and what it prints."""

from __future__ import annotations

import json

import pytest
from text_models import make_writer

SMALL = ("--max-length", 32, "--batch-size", 8, "--max-steps", 2)


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (("--within", -1), ["--within is -1.0: give points of the metric from 0 on, such as 1.0"]),
        (("--within", "nan"), ["--within is nan: give points"]),
        (("--max-params", "few"), ["--max-params is 'few': give a number of parameters, such as 15000000 or 15M"]),
        (("--max-latency", 0), ["--max-latency is 0.0: give milliseconds above 0"]),
        (("--layers", "2,x"), ["--layers 2,x: give whole numbers from 1 on, such as 2,3"]),
        (("--layers", "0"), ["--layers 0: give whole numbers"]),
        (("--layers", "5,2"), ["--layers 5: the teacher has 4 layers, a student cannot be deeper"]),
        (("--layers", "4,2"), ["--layers 4: that is the teacher itself"]),
        (("--widths", "64"), ["--widths 64: the teacher is 32 wide, a student cannot be wider"]),
        (("--widths", "28"), ["--widths 28: not divisible by its 3 heads; multiples of the teacher's head size, 8"]),
        (("--inits", "fist"), ["--inits fist: did you mean 'first'?"]),
        (("--unlabelled",), ["--unlabelled: students are chosen by their scores, which need labels"]),
        (("--method", "kdd", "--lr", -1), ["--lr is -1.0: it must be more", "unknown method 'kdd': did you mean"]),
        (("--model", "minilm-l6"), ["both --teacher (a fine-tuned model) and --model (one to"]),
        (("--method", "tinybert", "--widths", "32,16"), ["student of 1 x 16: match attention: "]),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_written(command, tiny_teacher, reviews, tmp_path, options, lines):
    out = tmp_path / "out"
    done = command("shrink", "--teacher", tiny_teacher, "--data", reviews, *SMALL, *options, "--out", out)
    errors = [line for line in done.err.splitlines() if line.startswith("stillery: ")]
    assert done.code == 2 and done.out == ""
    assert len(errors) >= len(lines)
    for line in lines:
        assert any(error.startswith(f"stillery: {line}") for error in errors), errors
    assert not out.exists()


def test_what_it_needs_and_what_it_is_not_for(command, reviews, tiny_teacher, tmp_path):
    done = command("shrink", "--data", reviews, "--out", tmp_path / "out")
    assert done.code == 2 and done.err.count("\n") == 1
    assert "neither --teacher (a fine-tuned model) nor --model (one to fine-tune first) is given" in done.err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    done = command("shrink", "--teacher", tiny_teacher, "--data", reviews, *SMALL, "--out", tmp_path / "mine")
    assert done.code == 2 and "is not empty and holds no search: give another folder" in done.err
    generator = make_writer(tmp_path, "t5")
    done = command("shrink", "--teacher", generator, "--data", reviews, "--out", tmp_path / "out")
    assert done.code == 2 and "generates text, and a search is for models that classify or tag" in done.err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_names_every_student_with_its_steps_and_writes_nothing(command, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "out"
    done = command(
        "shrink", "--model", tiny_teacher, "--data", reviews, *SMALL, "--max-steps", 8, "--widths", "16,32", "--layers",
        "1,2", "--dry-run", "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("teacher: 8 steps, ")
    for name, steps in (("1 layer x 16, first, short", 2), ("1 layer x 16, first", 8), ("2 layers x 32, first", 8)):
        (line,) = [line for line in lines if line.startswith(f"{name}  ")]
        assert line.split("ms")[1].split()[0] == str(steps)
    assert lines[-1].startswith("4 students, chosen by held-out accuracy; at most 40 steps, about ")
    assert not out.exists()


@pytest.mark.slow
def test_it_prints_the_curve_what_it_says_and_where_the_model_is(stillery, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "out"
    search = ("shrink", "--teacher", tiny_teacher, "--data", reviews, *SMALL, "--layers", "1,2", "--within", 100)
    done = stillery(*search, "--workers", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    head, teacher, first, *_ = done.stdout.splitlines()
    assert head.split() == ["params", "of", "teacher", "latency", "speed", "dev", "accuracy", "minus", "teacher"]
    assert teacher.split()[:4] == ["teacher", "1.0M", "100%", teacher.split()[3]]
    assert first.startswith("* 1 layer x 32, first")
    assert "recommended: 1 layer x 32, first: 1.0M parameters (97% of the teacher's)" in done.stdout
    assert "test, scored once on 16 examples: " in done.stdout
    assert f"model: {out / 'recommended'}" in done.stdout
    assert "so dev chooses" in done.stderr
    record = json.loads((out / "curve.json").read_text())
    assert record["found"] is True and len(record["students"]) == 3
    assert record["reading"][0] in done.stdout
