"""A user's functions see steps and scores, may stop a run, and may say what "best" means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stillery
from stillery.errors import UserError
from stillery.jobs.config.run_file import read_toml

SMALL = {"batch_size": 8, "layers": 2, "method": "pkd", "init": "first"}


def events(out: Path, event: str) -> list[dict[str, Any]]:
    found = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [one for one in found if one["event"] == event]


def test_on_step_and_on_score_see_the_numbers_of_the_log(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    steps: dict[int, Mapping[str, float]] = {}
    scores: dict[int, Mapping[str, float]] = {}
    run = stillery.distill(
        teacher=tiny_teacher, data=reviews, max_steps=5, eval_every=2, log_every=2, out=tmp_path / "run",
        on_step=steps.__setitem__, on_score=scores.__setitem__, **SMALL,
    )  # fmt: skip
    assert list(steps) == [1, 2, 3, 4, 5] and list(scores) == [2, 4, 5]
    for event in events(run.out, "train"):
        assert steps[event["step"]] == {"loss": event["loss"], **event["terms"]}
    assert [event["step"] for event in events(run.out, "train")] == [1, 2, 4, 5]
    assert {event["step"]: event["metrics"] for event in events(run.out, "dev")} == scores
    assert read_toml(run.out / "run.toml")["given_in_python"] == ["on_step", "on_score"]


def test_callbacks_change_nothing_that_is_trained(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    weights = []
    for name, callbacks in {"with": {"on_step": lambda step, losses: None}, "without": {}}.items():
        run = stillery.distill(
            teacher=tiny_teacher, data=reviews, max_steps=3, out=tmp_path / name, **callbacks, **SMALL
        )
        weights.append((run.student / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("stop", [stillery.STOP, False])
def test_on_step_stops_a_run_which_is_then_scored_and_finished(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, stop: object, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"teacher": tiny_teacher, "data": reviews, "max_steps": 9, "keep": "last"} | SMALL
    run = stillery.distill(**given, out=tmp_path / "run", on_step=lambda step, losses: stop if step == 3 else None)
    assert "step 3: on_step stops the run" in capsys.readouterr().err
    training = run.metrics["training"]
    assert (training["steps"], training["kept_step"], training["stopped_by"]) == (3, 3, "on_step")
    assert training["stopped_early"] and training["dev_last"] == events(run.out, "dev")[-1]["metrics"]
    assert [event["by"] for event in events(run.out, "stopped")] == ["on_step"]
    # It is finished: there is nothing to continue.
    assert stillery.distill(**given, out=tmp_path / "run", resume=True).metrics == run.metrics
    assert not (run.out / "checkpoints").exists()


def test_on_score_stops_a_run(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    run = stillery.distill(
        teacher=tiny_teacher, data=reviews, max_steps=9, eval_every=2, out=tmp_path / "run",
        on_score=lambda step, metrics: step < 4, **SMALL,
    )  # fmt: skip
    assert (run.metrics["training"]["steps"], run.metrics["training"]["stopped_by"]) == (4, "on_score")
    assert [event["step"] for event in events(run.out, "dev")] == [2, 4]


def test_an_error_in_a_callback_leaves_a_run_to_go_on_with(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    given = {"teacher": tiny_teacher, "data": reviews, "max_steps": 4, "checkpoint_every": 1} | SMALL
    whole = stillery.distill(**given, out=tmp_path / "whole")

    def fails(step: int, losses: Mapping[str, float]) -> None:
        if step == 3:
            raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError, match="the user's own"):
        stillery.distill(**given, out=tmp_path / "run", on_step=fails)
    run = stillery.distill(**given, out=tmp_path / "run", resume=True)
    weights = [(one.student / "model.safetensors").read_bytes() for one in (whole, run)]
    assert weights[0] == weights[1]


def test_a_metric_decides_which_weights_are_best(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def falling(labels: np.ndarray, predictions: np.ndarray) -> float:
        seen.append((labels, predictions))
        return -float(len(seen))

    run = stillery.distill(
        teacher=tiny_teacher, data=reviews, max_steps=6, eval_every=2, out=tmp_path / "run", metric=falling, **SMALL
    )
    assert [event["metrics"]["falling"] for event in events(run.out, "dev")] == [-1, -2, -3]
    training = run.metrics["training"]
    assert (training["kept_step"], next(iter(training["dev_best"]))) == (2, "falling")
    assert {"negative", "positive"} == set(seen[0][0]) >= set(seen[0][1])
    assert next(iter(run.metrics["metrics"])) == "falling" and run.metrics["teacher_metrics"]["falling"] == -5
    assert "accuracy" in run.metrics["metrics"] and "falling" not in run.metrics["intervals"]
    labels, predictions = seen[3]
    assert run.metrics["metrics"]["accuracy"] == pytest.approx(100 * float((labels == predictions).mean()))
    written = (run.out / "run.toml").read_text(encoding="utf-8")
    assert 'given_in_python = [\n    "metric",\n]' in written and "falling" not in written
    found = stillery.evaluate(run, data=reviews, split="test", metric=lambda labels, predictions: {"n": len(labels)})
    assert found["metrics"]["n"] == found["examples"]


def test_a_repeat_says_that_the_metric_is_not_in_the_file(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(labels: np.ndarray, predictions: np.ndarray) -> float:
        return 0.5

    run = stillery.distill(teacher=tiny_teacher, data=reviews, max_steps=1, out=tmp_path / "run", metric=half, **SMALL)
    capsys.readouterr()
    again = stillery.distill(config=run.out / "run.toml", out=tmp_path / "again")
    assert "run.toml: its run had metric from Python, which this one has not" in capsys.readouterr().err
    assert "half" not in again.metrics["metrics"]
    assert "given_in_python" not in (again.out / "run.toml").read_text(encoding="utf-8")
    stillery.distill(config=run.out / "run.toml", out=tmp_path / "third", metric=half)
    assert "its run had metric" not in capsys.readouterr().err


def test_labels_that_are_whole_numbers_reach_a_metric_as_such(
    tiny_teacher: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    kinds: list[str] = []
    numbered = [{"text": row["text"], "label": int(row["label"] == "positive")} for row in rows]

    def kind(labels: np.ndarray, predictions: np.ndarray) -> float:
        kinds.append(labels.dtype.kind + predictions.dtype.kind)
        return 1.0

    stillery.finetune(model=tiny_teacher, data=numbered, max_steps=1, batch_size=8, out=tmp_path / "run", metric=kind)
    assert set(kinds) == {"ii"}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no function": ({"on_step": 3}, "on_step is a int: give a function"),
    "no number": ({"metric": lambda labels, predictions: "good"}, "metric returned 'good': return a number"),
    "true": ({"metric": lambda labels, predictions: {"a": True}}, "metric returned {'a': True}: return a number"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_callback_is_one_line(tiny_teacher: Path, reviews: Path, tmp_path: Path, kind: str) -> None:
    given, start = BAD[kind]
    with pytest.raises(UserError) as raised:
        stillery.distill(teacher=tiny_teacher, data=reviews, max_steps=1, out=tmp_path / "run", **given, **SMALL)
    assert raised.value.lines[0].startswith(start)


def test_a_metric_needs_labels(tiny_teacher: Path, rows: list[dict[str, str]], tmp_path: Path) -> None:
    never: Callable[[Any, Any], float] = lambda labels, predictions: 0.0  # noqa: E731
    with pytest.raises(UserError, match=r"^metric compares predictions with labels, and the dev split has none"):
        stillery.distill(
            teacher=tiny_teacher, data=[row["text"] for row in rows], unlabelled=True, max_steps=1, metric=never,
            out=tmp_path / "run", layers=2, method="kd",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
