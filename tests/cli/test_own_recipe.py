"""Presets, switches and recipes of one's own through the command line."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from stillery import methods
from stillery.errors import UserError
from stillery.jobs.config.presets import PRESETS
from stillery.jobs.config.run_file import ask
from stillery.jobs.config.settings import Distill, Finetune
from stillery.parts import distance
from stillery.recipe import Clock

RECIPE = """
from stillery.parts import divergence, pair, represent
from stillery.recipe import Match, Prediction, Recipe, Stage


def cubed(student, teacher, mask=None, reduction="mean"):
    return (student - teacher).abs().pow(3).mean()


def crossed(student_layers, teacher_layers, clock):
    return [(1, teacher_layers), (student_layers, 1)]


def build():
    match = Match(name="crossed", represent=represent.pool, pair=crossed, distance=cubed, weight=2.0)
    return Recipe(stages=(Stage(matches=(match,), prediction=Prediction(divergence=divergence.js)),))


def wrong():
    return 3
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "my_recipe.py"
    path.write_text(RECIPE)
    return path


def run(arguments: list[object]) -> int:
    from stillery.cli.main import main

    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def distill(teacher: Path, data: Path, out: Path, *more: object) -> int:
    common = ["distill", "--teacher", teacher, "--data", data, "--out", out, "--max-steps", 2, "--layers", 2]
    return run([*common, "--log-every", 1, *more])


def test_a_recipe_of_ones_own_runs(recipe: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--recipe", f"{recipe}:build") == 0
    first = json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[0])
    assert set(first["terms"]) == {"hard", "soft", "crossed"}
    again = ["distill", "--config", tmp_path / "out" / "run.toml", "--out", tmp_path / "again"]
    assert run(again) == 2, "a run file alone never runs code"
    assert run([*again, "--recipe", f"{recipe}:build"]) == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("{}:nothing", "no function"),
        ("{}:wrong", "returned int"),
        ("{}", "FILE.py:FUNCTION"),
        ("no.py:f", "no such file"),
    ],
)
def test_a_wrong_recipe_is_one_line(
    where: str, words: str, recipe: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--recipe", where.format(recipe)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and words in lines[0]
    assert not (tmp_path / "out").exists()


def test_switches_reach_the_run_and_its_file(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    more = ["--method", "rail-kd", "--pair", "forward", "--represent", "tokens", "--distance", "cosine"]
    assert (
        distill(tiny_teacher, reviews, tmp_path / "out", *more, "--divergence", "js", "--schedule", "sequential") == 0
    )
    written = tomllib.loads((tmp_path / "out" / "run.toml").read_text())
    assert (written["pair"], written["represent"], written["distance"]) == ("forward", "tokens", "cosine")
    logged = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [event["stage"] for event in logged if event["event"] == "train"] == ["layers", "prediction"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_run(name: str) -> None:
    job, given = PRESETS[name].job, {"data": "d.csv", "preset": name}
    distils = job == "distill"
    asked = ask(Distill, {"teacher": "t", "layers": 3} | given) if distils else ask(Finetune, {"model": "m"} | given)
    assert not asked.errors
    for setting, value in PRESETS[name].settings.items():
        if setting not in ("layers", "options"):
            groups = [getattr(asked.run, item.name) for item in dataclasses.fields(asked.run)]
            assert next(getattr(group, setting) for group in groups if hasattr(group, setting)) == value
    if distils:
        methods.build(asked.run.method.method, asked.run.method.method_options())
        assert PRESETS[name].settings.get("options", {}).items() <= asked.run.method.method_options().items()


@pytest.mark.parametrize(("task", "weight"), [("mrpc", 0.2), ("rte", 0.3)])
def test_the_consistency_of_t5_weighs_what_appendix_f_says(task: str, weight: float) -> None:
    asked = ask(Distill, {"teacher": "t", "task": task, "layers": 3, "preset": f"cr-ild-t5-{task}"})
    recipe = methods.build(asked.run.method.method, asked.run.method.method_options())
    found = {match.name: match for match in recipe.stages[0].matches}
    end = Clock(stage_step=10, stage_steps=10)
    assert found["consistency_attention"].weight_at(end) == weight and "consistency_hidden" not in found
    # After MiniLMv2's relation heads TinyBERT's distance; the second stage is fine-tuning.
    assert found["attention"].distance is distance.mse and found["hidden"].weight_at(end) == 0
    assert recipe.stages[1].prediction is None or recipe.stages[1].prediction.weight == 0
    assert recipe.stages[1].hard_weight == 1


def test_what_is_given_beside_a_preset_wins() -> None:
    given = {"teacher": "t", "data": "d.csv", "layers": 4, "preset": "ild-rtc-6-mrpc", "lr": 1.0}
    asked = ask(Distill, given)
    assert (asked.run.student.layers, asked.run.training.lr) == (4, 1.0)
    assert asked.run.method.options == {"layer_weight": 500.0}
    with pytest.raises(UserError, match="did you mean 'rail-kd-paper'"):
        ask(Distill, given | {"preset": "rail-kd-papr"})


@pytest.fixture
def raw_logs(reviews: Path, tmp_path: Path) -> Path:
    """The sentences alone, without labels, twice over."""
    import csv

    with reviews.open(encoding="utf-8", newline="") as file:
        rows = [row["text"] for row in csv.DictReader(file)]
    path = tmp_path / "logs.jsonl"
    path.write_text("".join(json.dumps({"text": f"{text} indeed"}) + "\n" for text in rows + rows[:40]))
    return path


def test_the_stage_of_layers_trains_on_texts_without_labels(
    raw_logs: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    more = ["--method", "l-ild", "--ild-data", raw_logs, "--ild-max-length", 16, "--max-steps", 6]
    assert distill(tiny_teacher, reviews, tmp_path / "out", *more) == 0
    shown = capsys.readouterr().err
    assert "logs.jsonl, 200 texts" in shown and "longer than 16 tokens" in shown
    again = ["distill", "--config", tmp_path / "out" / "run.toml", "--out", tmp_path / "again"]
    assert run(again) == 0
    plain = distill(tiny_teacher, reviews, tmp_path / "plain", "--method", "l-ild", "--max-steps", 6)
    assert plain == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "again", "plain")]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("method", "words"), [("layer-forward", "--schedule sequential"), ("universal-kd", "needs the task's own examples")]
)
def test_supplementary_texts_need_a_stage_for_them(
    method: str, words: str, raw_logs: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--method", method, "--ild-data", raw_logs) == 2
    assert words in capsys.readouterr().err


def test_a_preset_and_a_method_win_over_a_run_file(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "first", "--method", "layer-forward") == 0
    again = ["distill", "--config", tmp_path / "first" / "run.toml"]
    assert run([*again, "--preset", "pkd-paper", "--out", tmp_path / "preset"]) == 0
    written = tomllib.loads((tmp_path / "preset" / "run.toml").read_text())
    assert (written["method"], written["temperature"], written["max_steps"]) == ("pkd", 10.0, 2)
    assert run([*again, "--method", "kd", "--out", tmp_path / "method"]) == 0
    assert tomllib.loads((tmp_path / "method" / "run.toml").read_text())["temperature"] == 2.0


def test_resume_and_out_are_enough(tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--method", "kd") == 0
    (tmp_path / "out" / "metrics.json").unlink()  # as if it had been killed before its last word
    assert run(["distill", "--resume", "--out", tmp_path / "out"]) == 0
    assert (tmp_path / "out" / "metrics.json").is_file()


@pytest.mark.parametrize("job", ["distill", "finetune"])
def test_there_must_be_a_run_to_go_on_with(tmp_path: Path, capsys, job: str) -> None:
    for out in (tmp_path / "nowhere", tmp_path):
        assert run([job, "--resume", "--out", out]) == 2
        assert capsys.readouterr().err.splitlines() == [
            f"stillery: --resume: there is no run in {out} to continue; name its folder, or what to run"
        ]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--method", "tinybert", "--max-steps", 1], "too few for 2 stages"),
        (["--init", "random", "--init-from", "minilm-l6"], "nothing is copied"),
        (["--ild-max-length", 16], "--ild-data or --ild-task"),
        (["--text", ""], "--text is empty"),
    ],
)
def test_what_would_be_ignored_is_refused(
    more: list[object], words: str, tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", *more) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_options_cannot_go_with_a_recipe(
    recipe: Path, tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    given = ["--recipe", f"{recipe}:build"]
    assert distill(tiny_teacher, reviews, tmp_path / "out", *given, "--temperature", 3) == 2
    assert "--temperature cannot go with a recipe" in capsys.readouterr().err
    assert distill(tiny_teacher, reviews, tmp_path / "out", *given) == 0
    recipe.write_text(RECIPE.replace("weight=2.0", "weight=3.0"))
    assert distill(tiny_teacher, reviews, tmp_path / "out", *given, "--resume") == 2
    assert "holds another run" in capsys.readouterr().err


def test_a_representation_for_all_counts_once(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--method", "minilm", "--represent", "cls") == 0
    first = json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[0])
    assert list(first["terms"]) == ["cls"]


def test_a_model_is_scored_at_the_length_it_was_trained_with(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "out", "--max-length", 8, "--lr", "0.001") == 0
    trained = json.loads((tmp_path / "out" / "metrics.json").read_text())["metrics"]
    capsys.readouterr()
    assert run(["evaluate", tmp_path / "out", "--data", reviews, "--split", "test", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["metrics"] == trained
    assert "longer than 8 tokens" in shown.err


def test_a_student_reads_texts_as_long_as_its_teacher_did(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys
) -> None:
    assert distill(tiny_teacher, reviews, tmp_path / "teacher", "--max-length", 9) == 0
    capsys.readouterr()
    assert distill(tmp_path / "teacher", reviews, tmp_path / "small") == 0
    told = capsys.readouterr().err
    assert "was trained to read them: --max-length 9" in told and "another way" not in told
    assert tomllib.loads((tmp_path / "small" / "run.toml").read_text())["max_length"] == 9
    assert distill(tmp_path / "teacher", reviews, tmp_path / "other", "--max-length", 12) == 0
    assert "read texts in another way than --max-length 12 (not 9)" in capsys.readouterr().err
    assert tomllib.loads((tmp_path / "other" / "run.toml").read_text())["max_length"] == 12
