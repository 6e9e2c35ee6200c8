"""The four Python names do what the four commands do."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import stillery
from stillery.errors import UserError


def test_the_whole_job_from_python(tiny_teacher, reviews, tmp_path):
    small = {"data": reviews, "max_steps": 2, "batch_size": 8}
    teacher = stillery.finetune(model=tiny_teacher, out=tmp_path / "teacher", **small)
    run = stillery.distill(teacher=teacher.student, method="pkd", layers=2, options={"layers": "last"},
                           out=tmp_path / "small", **small)  # fmt: skip
    assert run.student == tmp_path / "small"
    assert run.metrics == json.loads((tmp_path / "small" / "metrics.json").read_text())
    found = stillery.evaluate(run.out, data=reviews, split="test", against=teacher.out)
    assert {name: run.metrics[name] for name in found} == found
    assert stillery.predict(run.out, data=reviews, out=tmp_path / "new.parquet") == 160
    assert pq.read_table(tmp_path / "new.parquet").num_rows == 160


def test_a_run_file_and_resume_from_python(tiny_teacher, reviews, tmp_path):
    run = stillery.distill(teacher=tiny_teacher, data=reviews, copy_layers=(1, 3), max_steps=1, out=tmp_path / "a")
    again = stillery.distill(config=run.out / "run.toml", out=tmp_path / "b")
    weights = [(result.student / "model.safetensors").read_bytes() for result in (run, again)]
    assert weights[0] == weights[1]
    back = stillery.distill(config=run.out / "run.toml", out=tmp_path / "a", resume=True)
    assert back.metrics == run.metrics


def test_faults_are_exceptions_with_all_lines(tiny_teacher, tmp_path):
    with pytest.raises(UserError) as raised:
        stillery.distill(teacher=tiny_teacher, data="nowhere.csv", layer=2, lr=0, out=tmp_path / "x")
    assert raised.value.lines == (
        "layer is not a setting: did you mean 'layers'?",
        "lr is 0.0: it must be more than 0",
        "no such file: nowhere.csv",
    )
    assert not (tmp_path / "x").exists()
    with pytest.raises(UserError, match="neither data"):
        stillery.evaluate(tiny_teacher)
    with pytest.raises(UserError, match="modle is not a setting"):
        stillery.finetune(modle=tiny_teacher, out=tmp_path / "x", data="a.csv", model=tiny_teacher)


@pytest.mark.parametrize("size", [0, -1])
def test_batch_sizes_are_checked(tiny_teacher, reviews, tmp_path, size):
    with pytest.raises(UserError, match="batch size"):
        stillery.evaluate(tiny_teacher, data=reviews, batch_size=size)
    with pytest.raises(UserError, match="batch size"):
        stillery.predict(tiny_teacher, data=reviews, out=tmp_path / "out.csv", batch_size=size)
    assert not list(tmp_path.iterdir())


def test_every_public_name_says_what_it_does():
    for name in stillery.__all__:
        assert inspect.getdoc(getattr(stillery, name))


def test_a_recipe_made_in_python(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    from stillery.parts import distance, pair, represent
    from stillery.recipe import Match, Recipe, Stage

    hidden = Match(name="mine", represent=represent.pool, pair=pair.last_layer, distance=distance.cosine, weight=5.0)
    recipe = Recipe(stages=(Stage(matches=(hidden,)),), init="last")
    run = stillery.distill(
        teacher=tiny_teacher, data=reviews, recipe=recipe, layers=2, max_steps=2, log_every=1, out=tmp_path / "own"
    )
    assert '"mine"' in (run.out / "log.jsonl").read_text()
    assert "given in Python" in (run.out / "run.toml").read_text()
