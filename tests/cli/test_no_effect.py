"""An option that would have no effect is refused in one line, whatever its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_models import ask, make_writer, write_pairs

CLASSES = "is for classifiers: a model that generates text"
WRITES = "is for models that generate text, such as T5 or Llama; this one is a classifier"


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_writer(tmp_path_factory.mktemp("t5"), "t5", layers=2)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.csv")


def errors(err: str) -> list[str]:
    return [line.removeprefix("stillery: ") for line in err.splitlines()]


@pytest.mark.parametrize(
    ("job", "more", "said"),
    [
        ("finetune", ("--label-separator", ";"), f"--label-separator {CLASSES} has --source and --target"),
        ("distill", ("--label-separator", ";"), f"--label-separator {CLASSES} has --source and --target"),
        ("distill", ("--allow-custom-head",), f"--allow-custom-head {CLASSES} keeps its own head"),
        (
            "distill",
            ("--method", "kd", "--stacks", "encoder"),
            "--stacks encoder: the method matches no layers, or names their stack itself; leave it at both",
        ),
    ],
)
def test_models_that_write_text(command, t5, pairs, tmp_path, job, more, said):
    depth = ("--layers", 1) if job == "distill" else ()
    done = command(*ask(job, t5, pairs, tmp_path / "run", *depth, *more))
    assert done.code == 2 and errors(done.err) == [said]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", [("--beams", 4), ("--stacks", "decoder"), ("--stacks", "both"), ("--on-policy", 0)])
def test_classifiers(command, tiny_teacher, reviews, tmp_path, option):
    run = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--out", tmp_path / "run")
    done = command(*run, *option)
    assert done.code == 2 and errors(done.err) == [f"{option[0]} {WRITES}"]
    assert not (tmp_path / "run").exists()


def test_a_classifiers_own_run_file_has_every_setting_and_runs(command, tiny_teacher, reviews, tmp_path):
    run = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--max-steps", 1)
    assert command(*run, "--out", tmp_path / "run").code == 0
    done = command("distill", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert done.code == 0, done.err


def test_a_fault_stands_alone(command, t5, pairs, tmp_path):
    assert command(*ask("finetune", t5, pairs, tmp_path / "teacher", "--max-steps", 1)).code == 0
    asked = ("distill", "--teacher", tmp_path / "teacher", "--data", pairs, "--max-steps", 1, "--beams", 1)
    done = command(*asked, "--layers", 0, "--out", tmp_path / "run")
    assert done.code == 2 and errors(done.err) == ["--layers is 0: it must be at least 1"]
    done = command(*asked, "--layers", 1, "--out", tmp_path / "teacher")
    assert done.code == 2 and len(errors(done.err)) == 1 and "holds another run" in done.err
    done = command(*asked, "--layers", 1, "--out", tmp_path / "run")
    assert done.code == 0 and "was trained to read them: --max-length 16" in done.err
