"""`stillery analyse`: data, picture and sentence of runs and models of every family; bad input is one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from text_models import SHORT, SMALL, make_writer, write_pairs

import stillery
from stillery.errors import UserError
from stillery.verbosity import Verbosity, verbosity_as


@pytest.fixture(scope="module")
def run(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a student of two layers, with snapshots."""
    out = tmp_path_factory.mktemp("analysed") / "small"
    stillery.distill(
        teacher=tiny_teacher, data=reviews, layers=2, max_steps=4, snapshot_every=2, max_length=32, out=out, quiet=True
    )
    return out


@pytest.fixture(scope="module")
def other(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with trained projections, texts of its own for layers, and the start of the first run."""
    out = tmp_path_factory.mktemp("analysed") / "projected"
    stillery.distill(
        teacher=tiny_teacher, data=reviews, layers=2, max_steps=4, max_length=32, out=out, quiet=True, method="rail-kd",
        schedule="sequential", ild_data=reviews, init="first", snapshot_every=100,
    )  # fmt: skip
    return out


def block(folder: Path, name: str) -> dict:
    """What an analysis has written; its pictures are beside it."""
    found = json.loads((folder / f"{name}.json").read_text())
    assert set(found) == {"analysis", "title", "sentence", "spec", "data", "table", "settings"}
    assert found["analysis"] == name and found["sentence"].endswith(".")
    assert "$schema" not in found["spec"] and "config" not in found["spec"]
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert found["title"] in (folder / f"{name}.svg").read_text()
    return found


def test_angles_of_a_run(command, run, tmp_path):
    done = command("analyse", "angles", run, "--examples", 20, "--split", "train", "--out", tmp_path)
    assert done.code == 0
    found = block(tmp_path, "angles")
    assert done.out.splitlines()[0] == found["sentence"]
    assert found["data"]["student_layers"] == [1, 2] and found["data"]["teacher_layers"] == [1, 2, 3, 4]
    assert sum(found["data"]["histogram"][0]) == found["data"]["tokens"]
    assert found["data"]["over_steps"]["steps"] == [0, 2, 4]
    assert found["settings"]["examples"] == 20
    again = command("analyse", "angles", run, "--out", tmp_path)
    assert again.code == 2 and "is there already" in again.err


def test_layers_of_a_run(command, run, tiny_teacher, reviews, tmp_path):
    assert command("analyse", "similarity", run, "--out", tmp_path).code == 0
    found = block(tmp_path, "similarity")["data"]
    assert len(found["cka"]) == 3 and len(found["cka"][0]) == 5
    assert command("analyse", "layer-divergence", tiny_teacher, run, "--data", reviews, "--out", tmp_path).code == 0
    assert len(block(tmp_path, "layer-divergence")["data"]["divergence"]) == 2


@pytest.mark.parametrize("family", ["t5", "llama"])
def test_models_that_generate_text(command, family, tmp_path):
    teacher, pairs = make_writer(tmp_path / "teacher", family), write_pairs(tmp_path / "pairs.csv")
    common = ("--data", pairs, *SHORT)
    assert command(
        "distill", "--teacher", teacher, *common, "--layers", 2, *SMALL, "--out", tmp_path / "run", "--quiet"
    ).code == 0  # fmt: skip
    for name in ("angles", "similarity", "layer-divergence"):
        assert command("analyse", name, tmp_path / "run", "--out", tmp_path / "figures").code == 0
        block(tmp_path / "figures", name)
    stack = ("--stack", "decoder") if family == "t5" else ("--stack", "encoder")
    done = command("analyse", "angles", tmp_path / "run", *stack, "--out", tmp_path / "other")
    assert (done.code, "has none" in done.err) == ((0, False) if family == "t5" else (2, True))


def test_losses_and_probes_of_two_runs(command, run, other, tmp_path):
    few = ("--examples", 24, "--out", tmp_path)
    assert command("analyse", "flatness", run, other, *few, "--radii", 2, "--draws", 2).code == 0
    found = block(tmp_path, "flatness")["data"]
    assert set(found) == {"small", "projected"} and found["small"]["radii"] == [0, 2]
    assert command("analyse", "probe", run, other, *few, "--split", "test").code == 0
    assert len(block(tmp_path, "probe")["data"]["small"]["test"]) == 3
    done = command("analyse", "loss-surface", run, other, *few, "--grid", 3)
    assert done.code == 0 and len(block(tmp_path, "loss-surface")["data"]["losses"]) == 3
    start = command("analyse", "loss-surface", run, run, other, *few, "--grid", 3, "--overwrite")
    assert start.code == 2 and "on one line" in start.err


def test_paths_on_a_surface(command, run, tiny_teacher, reviews, tmp_path):
    twin = tmp_path / "twin"
    common = ("--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--max-length", 32, "--max-steps", 2)
    assert command("distill", *common, "--method", "kd", "--init", "even", "--out", twin, "--quiet").code == 0
    also = command("distill", *common, "--init", "even", "--snapshot-every", 1, "--out", tmp_path / "b", "--quiet")
    assert also.code == 0
    out = ("--examples", 16, "--grid", 3, "--out", tmp_path / "out")
    assert command("analyse", "loss-surface", twin, tmp_path / "b", *out).code == 0
    found = block(tmp_path / "out", "loss-surface")["data"]
    steps = found["paths"]["b"]
    assert [one["step"] for one in steps] == [0, 1, 2] and found["paths"]["twin"] == []
    assert steps[0]["a"] == steps[0]["b"] == 0
    assert (steps[2]["a"], steps[2]["b"]) == pytest.approx((0, 1), abs=1e-2)
    # The path is drawn: a line through these points, in the picture as well.
    written = json.loads((tmp_path / "out" / "loss-surface.json").read_text())["spec"]
    lines = [layer for layer in written["layer"] if layer["mark"]["type"] == "line"]
    assert lines[-1]["data"]["values"] == [
        {"a": one["a"], "b": one["b"], "step": one["step"], "model": "b"} for one in steps
    ]
    svg = (tmp_path / "out" / "loss-surface.svg").read_text()
    assert svg.count("mark-line") == 2 and "of their way leads out of the plane" in svg
    apart = command("analyse", "loss-surface", twin, run, *out, "--overwrite")
    assert apart.code == 2 and "have no common start (they differ in init)" in apart.err


def test_runs_as_they_were_written(command, run, other, reviews, tmp_path):
    out = ("--out", tmp_path)
    assert command("analyse", "agreement", run, *out).code == 0
    found = block(tmp_path, "agreement")["data"]
    assert len(found["listed"]) == found["disagreements"] and all(one["text"] for one in found["listed"])
    assert sum(one["examples"] for one in found["by"]["label"]) == found["examples"]
    assert command("analyse", "variance", run, other, *out).code == 0
    assert len(block(tmp_path, "variance")["data"]) == 1
    assert command("analyse", "projections", other, *out).code == 0
    found = block(tmp_path, "projections")["data"]
    assert {one["side"] for one in found.values()} == {"student", "teacher"}
    assert all(0 < one["effective_rank"] <= len(one["singular"]) for one in found.values())
    assert command("analyse", "supplementary", run, other, *out).code == 0
    found = block(tmp_path, "supplementary")["data"]
    assert found["texts"]["reviews.csv"]["size"] > 0
    # The layers of the first run have no stage of their own, so there is nothing to probe after it.
    assert found["sources"] == ["the task's own", "reviews.csv"] and found["probe"][0] == [None]
    after = max(step for step in (int(file.stem.split("-")[1]) for file in (other / "snapshots").iterdir()) if step < 4)
    left = tmp_path / "copy" / "after-layers"
    shutil.copytree(other, left, ignore=shutil.ignore_patterns("snapshots"))
    shutil.copy(other / "snapshots" / f"step-{after}.safetensors", left / "model.safetensors")
    assert command("analyse", "probe", left, "--data", reviews, "--examples", 1000, *out).code == 0
    probed = block(tmp_path, "probe")["data"]["after-layers"]["dev"]
    assert found["probe"][1] == pytest.approx([probed[-1]])
    for arguments, said in (
        (("projections", run), "its method trains no projections"),
        (("supplementary", run), "compares runs with --ild-task or --ild-data"),
        (("variance", tmp_path), "no finished run of stillery distill there"),
        (("variance", run, "--metric", "accurcy"), "did you mean 'accuracy'"),
        (("agreement", run, "--data", "x.csv"), "No such option: --data"),
    ):
        done = command("analyse", *arguments, "--out", tmp_path / "none")
        assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1, done.err


def test_forecast_and_attention(command, run, tiny_teacher, reviews, tmp_path):
    out = ("--out", tmp_path)
    assert command("analyse", "attention-weights", run, "--examples", 12, *out).code == 0
    (weights,) = block(tmp_path, "attention-weights")["data"]["weights"].values()
    assert [sum(row) for row in weights] == pytest.approx([1], abs=1e-4) and len(weights[0]) == 3
    asked = ("analyse", "forecast", tiny_teacher, "--data", reviews, "--layers", 2, "--max-length", 32)
    assert command(*asked, "--examples", 16, "--steps", 12, *out).code == 0
    found = block(tmp_path, "forecast")["data"]
    assert set(found["starts"]) == {"first", "even"} == set(found["trial"]["held_out_loss"])
    assert found["trial"]["steps"] == 12
    assert command("analyse", "forecast", tiny_teacher, "--data", reviews, *out, "--overwrite").code == 2


def test_bad_input_is_one_line(command, run, tiny_teacher, reviews, make_bert, tmp_path):
    narrow = make_bert(hidden_size=16, num_attention_heads=2)
    out = ("--out", tmp_path / "none")
    for arguments, said in (
        (("angles", tiny_teacher, "--data", reviews), "so its teacher is not known: give --teacher"),
        (("angles", tiny_teacher, "--teacher", tiny_teacher), "give --data (a file or folder) or --task"),
        (("angles", narrow, "--teacher", tiny_teacher, "--data", reviews), "vectors of one space"),
        (("angles", tmp_path / "gone"), "no such folder"),
        (("angles", run, "--split", "nowhere"), "choose from train, dev, test"),
        (("angles", run, "--examples", 0), "must be at least 1"),
        (("angles", run, run), "angles takes STUDENT: 2 given"),
        (("nothing", run), "No such command 'nothing'"),
    ):
        done = command("analyse", *arguments, *out)
        assert done.code == 2 and said in done.err and len(done.err.splitlines()) == 1, done.err
    assert not (tmp_path / "none").exists()


def test_from_python(run, tmp_path):
    with verbosity_as(Verbosity.QUIET):
        found = stillery.analysis("similarity", run, examples=8, pool="first")
    assert found.data["cka"].shape == (3, 5) and found.settings["pool"] == "first"
    with pytest.raises(UserError, match="did you mean 'angles'"):
        stillery.analysis("angels", run)
