"""A run whose teacher or run file changed since it began is not resumed silently: one line says what changed."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from stillery.train import checkpoint

RUN = ("--layers", 2, "--cache", "off", "--max-length", 16, "--max-steps", 4, "--batch-size", 8, "--checkpoint-every",
       2)  # fmt: skip


@pytest.fixture
def unfinished(command, tiny_teacher, reviews, tmp_path, monkeypatch) -> Path:
    """A run stopped at its checkpoint; its teacher lies beside it, so that it can be changed."""
    shutil.copytree(tiny_teacher, tmp_path / "teacher")

    def stop(*given: Any) -> None:
        save(*given)
        raise KeyboardInterrupt

    save = checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        asked = ("distill", "--teacher", tmp_path / "teacher", "--data", reviews, *RUN)
        assert command(*asked, "--out", tmp_path / "run").code == 130
    return tmp_path / "run"


def edit_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def swap_words(teacher: Path) -> None:
    content = json.loads((teacher / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["film"], words["good"] = words["good"], words["film"]
    (teacher / "tokenizer.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda teacher: edit_json(teacher / "config.json", num_attention_heads=2), "the teacher's configuration"),
        (swap_words, "the teacher's tokenizer"),
    ],
    ids=["heads", "tokenizer"],
)
def test_another_teacher_of_the_same_weights_is_noticed(
    command, unfinished: Path, change: Callable[[Path], None], what: str
) -> None:
    change(unfinished.parent / "teacher")
    done = command("distill", "--resume", "--out", unfinished)
    assert done.code == 2 and done.err == (
        f"stillery: {what} changed since the run in {unfinished} began: put back what it was and --resume again, or "
        "start again with --overwrite\n"
    )


def test_what_does_not_matter_is_not_compared(command, unfinished: Path) -> None:
    """Neither a version nor a format of numbers in a configuration changes what the model computes here."""
    edit_json(unfinished.parent / "teacher" / "config.json", transformers_version="5.0.0", architectures=None)
    done = command("distill", "--resume", "--out", unfinished)
    assert done.code == 0, done.err


@pytest.mark.parametrize("before", ["no fingerprints of them", "of other versions"])
def test_a_run_of_an_earlier_version_goes_on(command, unfinished: Path, before: str) -> None:
    values = tomllib.loads((unfinished / "run.toml").read_text())
    prints = values["fingerprints"]
    if before == "of other versions":
        values["fingerprints"] = prints | {name: "0 transformers 4" for name in prints if "_" in name}
    else:
        values["fingerprints"] = {name: print_ for name, print_ in prints.items() if "_" not in name}
    (unfinished / "run.toml").write_text(tomli_w.dumps(values))
    (unfinished / "checkpoints" / "run.toml").unlink()
    done = command("distill", "--resume", "--out", unfinished)
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("line", "edited", "said"),
    [
        ("lr", "lr = 0.5", "lr was 5e-05, now 0.5"),
        ("seed", "seed = 7", "seed was 0, now 7"),
        ("max_steps", "max_steps = 9", "max_steps was 4, now 9"),
        ("batch_size", "batch_size = 4", "batch_size was 8, now 4"),
        ("method", 'method = "kd"', "method was 'layer-forward', now 'kd'"),
    ],
)
def test_an_edited_run_file_is_refused(command, unfinished: Path, line: str, edited: str, said: str) -> None:
    file = unfinished / "run.toml"
    changed, count = re.subn(rf"(?m)^{line} = .*$", edited, file.read_text())
    assert count == 1
    file.write_text(changed)
    done = command("distill", "--resume", "--out", unfinished)
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert f"{file} was edited since the run began ({said}" in done.err and "--overwrite" in done.err


def test_a_damaged_run_file_has_a_copy(command, unfinished: Path) -> None:
    file, copy = unfinished / "run.toml", unfinished / "checkpoints" / "run.toml"
    file.write_bytes(file.read_bytes().replace(b"seed = 0", b"seed \xff 0"))
    done = command("distill", "--resume", "--out", unfinished)
    assert done.code == 2 and f"{copy} is a copy of it as the run began" in done.err and done.err.count("\n") == 1
    shutil.copy(copy, file)
    assert command("distill", "--resume", "--out", unfinished).code == 0
    assert not copy.exists()
