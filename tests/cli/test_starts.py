"""Which layers a student starts from: the default, one that is asked for, and the best of a short trial."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import load_file
from text_models import ask as ask_text
from text_models import make_writer, write_pairs

from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill
from stillery.train.start_trial import HELD_OUT, SHARE, probe_steps

LONG = ("--batch-size", 4, "--epochs", 40, "--max-steps", 270, "--max-length", 8, "--eval-every", 270)
"""Long enough to try two starts in."""


def read(path: Path) -> dict:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


@pytest.fixture
def distill(command, tiny_teacher, reviews, tmp_path) -> Callable:
    def run(*options: object, out: str = "run"):
        return command("distill", "--teacher", tiny_teacher, "--data", reviews, "--cache", "off", "--verbose", *options,
                       "--out", tmp_path / out)  # fmt: skip

    return run


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


def test_a_trial_chooses_says_the_numbers_and_is_not_repeated(distill, command, tmp_path) -> None:
    done = distill("--layers", 2, "--method", "kd", "--init", "auto", *LONG)
    assert done.code == 0, done.err
    start, run = read(tmp_path / "run" / "metrics.json")["start"], read(tmp_path / "run" / "run.toml")
    losses = start["held_out_loss"]
    assert len(losses) == 2 and start["chosen"] == min(losses, key=losses.get) and start["steps_each"] >= 12
    shown = " ".join(done.err.split())
    assert f"start {start['chosen']}: lowest loss on held-out training examples" in shown
    assert all(f"{name} {loss:.4f}" in shown for name, loss in losses.items())
    assert run["init"] == start["chosen"]

    again = command("distill", "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert "try starts" not in again.err
    first, second = weights(tmp_path / "run"), weights(tmp_path / "again")
    assert all(torch.equal(value, second[name]) for name, value in first.items())

    # What another method of the same teacher, data and seed is tried with is the same.
    other = distill("--layers", 2, "--method", "layer-forward", "--init", "auto", *LONG, out="other")
    assert other.code == 0, other.err
    assert read(tmp_path / "other" / "metrics.json")["start"]["held_out_loss"] == losses


def test_a_trial_costs_at_most_a_share_of_the_run_and_a_short_run_has_none(distill, tmp_path) -> None:
    for total in range(1, 6000, 7):
        for starts in (2, 3, 4):
            steps = probe_steps(total, starts)
            # The teacher looks at every batch once, and what is held out is scored once a start.
            assert not steps or steps * (starts + 0.5) + HELD_OUT * (starts / 3 + 0.5) <= SHARE * total
    done = distill("--layers", 2, "--init", "auto", "--max-steps", 4)
    assert done.code == 0, done.err
    start = read(tmp_path / "run" / "metrics.json")["start"]
    assert start["chosen"] == "first" and not start["held_out_loss"] and "too few to try any" in start["why"]


def test_too_short_for_a_trial_models_that_write_text_start_as_by_default(command, tmp_path) -> None:
    model, pairs = make_writer(tmp_path / "t5", "t5"), write_pairs(tmp_path / "pairs.csv")
    more = ("--layers", 2, "--method", "kd", "--init", "auto")
    assert command(*ask_text("distill", model, pairs, tmp_path / "run", *more)).code == 0
    start = read(tmp_path / "run" / "metrics.json")["start"]
    assert start["chosen"] == "even" == read(tmp_path / "run" / "run.toml")["init"] and "too few" in start["why"]


def test_the_help_of_pairs_has_the_defaults_of_distill(command) -> None:
    pairs, distill = (" ".join(command(name, "--help").out.split()) for name in ("pairs", "distill"))
    said = re.search(
        r"\[default: the paper's, else first; even for models that generate or embed texts\]",
        re.sub("[│|] ?", "", pairs),
    )
    assert said and said[0] in re.sub("[│|] ?", "", distill)


def test_a_classifier_starts_from_the_first_layers_unless_told(distill, command, tmp_path) -> None:
    done = distill("--layers", 2, "--method", "kd", "--max-steps", 1)
    assert done.code == 0 and "start first: the default, --init chooses another" in done.err
    assert read(tmp_path / "run" / "run.toml")["init"] == "first"
    done = distill("--layers", 2, "--method", "pkd", "--max-steps", 1, out="pkd")
    assert "start first: as the method's paper has it" in done.err
    done = distill("--layers", 2, "--method", "tinybert", "--max-steps", 2, out="tinybert")
    assert "start even: measured to be best for the method" in done.err
    assert "student: starts even (measured; see docs/results/methods.md)" in command("methods", "tinybert").out
    done = distill("--layers", 2, "--init", "last", "--max-steps", 1, out="last")
    assert "start last: as asked for" in done.err and "layers 3, 4 as 1..2" in done.err
    shown = " ".join(command("methods", "kd").out.split())
    assert "student: starts first, or even for a model that generates text (the paper fixes none; " in shown
    assert "student: starts first (the paper's)" in command("methods", "pkd").out


def test_important_layers_are_named_in_the_run_file(distill, tmp_path) -> None:
    done = distill("--layers", 2, "--init", "important", "--max-steps", 1)
    assert done.code == 0, done.err
    run = read(tmp_path / "run" / "run.toml")
    assert run["init"] == "important" and len(run["copy_layers"]) == 2


def test_a_run_file_of_before_an_option_means_what_it_meant(distill, tmp_path) -> None:
    assert distill("--layers", 2, "--method", "rail-kd", "--max-steps", 1).code == 0
    written = read(tmp_path / "run" / "run.toml")
    assert written["options"]["projection_start"] == "same"
    del written["options"]["projection_start"]
    (tmp_path / "old.toml").write_text(tomli_w.dumps(written))
    assert ask(Distill, {}, tmp_path / "old.toml").run.method.options["projection_start"] == "literal"
    # One written by hand has no fingerprints, and means today's defaults.
    del written["fingerprints"]
    (tmp_path / "own.toml").write_text(tomli_w.dumps(written))
    assert "projection_start" not in ask(Distill, {}, tmp_path / "own.toml").run.method.options
