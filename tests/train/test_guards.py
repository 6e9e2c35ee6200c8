"""Guards fire on what was made to fail, are silent on sound runs, and change no bit of either."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from stillery import methods
from stillery.data.tokens.collate import collate
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.parts import distance, divergence, pair, project, represent
from stillery.parts.project import Projection
from stillery.recipe import Clock, Match, Prediction, Stage
from stillery.train import guards
from stillery.train.guard_measures import Measures, ProjectionRanks, effective_rank, few_of, gradient_shares
from stillery.train.loop import Monitoring, Outcome, Sources, TrainingData, accelerator_for, train
from stillery.train.microbatches import split_window
from stillery.train.objective import Losses, Objective
from stillery.train.settings import Training
from stillery.train.stage_clocks import StageSpan
from stillery.train.step import Step
from stillery.train.step_plan import StepPlan
from stillery.train.teacher import LiveTeacher
from stillery.train.validation import OneAnswer, Scores

StudentOf = Callable[..., PreTrainedModel]
FAST = Training(epochs=3, batch_size=8, lr=1e-3, log_every=1, keep="last")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after every second step: an epoch has eight."""
    monkeypatch.setitem(guards.STEPS_BETWEEN, "cpu", 2)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that were looked at."""
    found: list[int] = []
    check = guards.Guards.check

    def counted(self: guards.Guards, plan: StepPlan, part: Any) -> list[guards.GuardWarning]:
        found.append(plan.clock.step)
        return check(self, plan, part)

    monkeypatch.setattr(guards.Guards, "check", counted)
    return found


def run(
    folder: Path, objective: Objective, data: TrainingData, teacher: Loaded, score: Any = None, resume: bool = False,
    **settings: Any,
) -> Outcome:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    return train(
        objective, Sources(data=data, teacher=LiveTeacher(teacher.model)), dataclasses.replace(FAST, **settings),
        accelerator=accelerator_for("fp32"), folder=folder, resume=resume, monitoring=Monitoring(score=score),
    )  # fmt: skip


def with_dropout(model: PreTrainedModel) -> PreTrainedModel:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    return model


def flat_maps(student: list[int], teacher: list[int]) -> Projection:
    """Projections to one line."""
    sides = [
        torch.nn.ModuleList(torch.nn.Linear(width, 8, bias=False) for width in side) for side in (student, teacher)
    ]
    for one in (*sides[0], *sides[1]):
        with torch.no_grad():
            one.weight.copy_(torch.linspace(1, 2, 8)[:, None] * torch.linspace(-1, 1, one.in_features))
    return Projection(*sides, shared=False)


def flat_stage(weight: float = 1e-3) -> Stage:
    match = Match(
        name="flat", represent=represent.tokens, pair=pair.forward, distance=distance.mse, project=flat_maps,
        weight=weight,
    )  # fmt: skip
    return Stage(matches=(match,), prediction=Prediction(divergence=divergence.kl))


def test_the_rank_of_rows_is_over_how_many_directions_they_are_spread() -> None:
    torch.manual_seed(0)
    direction = torch.randn(1, 12)
    assert effective_rank(torch.eye(5) * torch.arange(1, 6)) == pytest.approx(5), "however long"
    assert effective_rank(torch.randn(30, 1) * direction) == pytest.approx(1), "one line, both ways"
    assert effective_rank(direction + 1e-3 * torch.randn(30, 12)) == pytest.approx(1, abs=1e-3), "one, but for noise"
    rows = torch.randn(7, 20)
    units = (rows / rows.norm(dim=1, keepdim=True)).double().numpy()
    values = np.linalg.svd(units, compute_uv=False) ** 2
    assert effective_rank(rows) == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-5)


def steps_of(objective: Objective, teacher: Loaded) -> Step:
    return Step(
        module=objective, objective=objective, teacher=LiveTeacher(teacher.model), accelerator=accelerator_for("fp32"),
        optimiser=None, clip=1.0,
    )  # type: ignore[arg-type] # fmt: skip


def test_shares_are_of_the_weighted_terms_on_what_several_reach() -> None:
    torch.manual_seed(0)
    trunk, head = torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False)
    states = trunk(torch.randn(5, 3))
    terms = {
        "hard": head(states).square().mean(), "soft": head(states).abs().mean(), "layers": states.square().mean(),
        "off": states.sum(),
    }  # fmt: skip
    weights = {"hard": 0.5, "soft": 2.0, "layers": 3.0, "off": 0.0}
    norms = {}
    for name in ("hard", "soft", "layers"):
        found = torch.autograd.grad(
            weights[name] * terms[name], [trunk.weight, head.weight], retain_graph=True, allow_unused=True
        )
        norms[name] = torch.cat([one.flatten() for one in found if one is not None]).norm()
    losses = Losses(total=torch.zeros(()), terms=terms, weights=weights)
    found = gradient_shares(losses, [trunk.weight, head.weight], scale=8.0)
    assert found == pytest.approx({name: float(norm / sum(norms.values())) for name, norm in norms.items()})


def test_what_one_term_alone_reaches_does_not_count() -> None:
    torch.manual_seed(0)
    trunk, head = torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False)
    states = trunk(torch.randn(5, 3))
    terms = {"hard": 1e-3 * states.sum() + 100 * head.weight.sum(), "layers": 1e-3 * states.sum()}
    losses = Losses(total=torch.zeros(()), terms=terms, weights={"hard": 1.0, "layers": 3.0})
    found = gradient_shares(losses, [trunk.weight, head.weight])
    assert found == pytest.approx({"hard": 0.25, "layers": 0.75})
    alone = Losses(total=torch.zeros(()), terms={"hard": head(states.detach()).sum()}, weights={"hard": 1.0})
    assert gradient_shares(alone, [trunk.weight, head.weight]) == {}


def test_a_share_does_not_depend_on_how_many_examples_are_looked_at_where_a_term_is_a_sum(
    student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    stage = flat_stage(weight=2e-4)
    summed = dataclasses.replace(stage, matches=(dataclasses.replace(stage.matches[0], reduction="sum", project=None),))
    objective = Objective(student_of(2), [summed], teacher=teacher_sizes, seed=0).eval()
    (part,) = split_window(data, np.arange(32), 32, Clock(), None, accelerator_for("fp32"))
    shares = []
    for one in (part, few_of(part, 16), few_of(part, 8)):
        losses = steps_of(objective, teacher).losses(objective.plan(Clock()), one)
        shares.append(gradient_shares(losses, list(objective.student.parameters()))["flat"])
    assert 0.2 < shares[0] < 0.9
    assert shares[1:] == pytest.approx([shares[0]] * 2, abs=0.1)


def test_few_examples_are_the_same_examples(data: TrainingData, student_of: StudentOf, teacher: Loaded) -> None:
    (part,) = split_window(data, np.arange(5, 37), 32, Clock(), None, accelerator_for("fp32"))
    few = few_of(part, 4)
    again = collate(data.examples, data.tokens, few.batch.index, 0, 1)
    width = again.inputs["input_ids"].shape[1]
    assert few.batch.ids == again.ids and len(few.batch) == 4 and torch.equal(few.batch.labels, again.labels)
    assert torch.equal(few.batch.inputs["input_ids"][:, :width], again.inputs["input_ids"])
    assert torch.equal(few.places, torch.from_numpy(few.batch.index))
    assert few.share["examples"] == pytest.approx(4 / 32)
    assert few_of(few, 4) is few


@pytest.mark.parametrize(
    ("method", "accumulate", "options"),
    [
        ("kd", 1, {}),
        ("pkd", 2, {}),
        ("layer-forward", 1, {"layer_weight": 1e4}),
        ("rail-kd", 1, {"projection_start": "literal", "frozen_teacher": False, "width": 8}),
        ("bert-emd", 1, {}),
        ("codir", 2, {"width": 8}),
        ("universal-kd", 1, {}),
        ("cr-ild", 1, {}),
    ],
)
def test_no_bit_of_a_run_changes(
    method: str, accumulate: int, options: Mapping[str, Any], tmp_path: Path, student_of: StudentOf, teacher: Loaded,
    teacher_sizes: Sizes, data: TrainingData, looks: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Other examples than those of the step, or what is remembered of them would be the same twice.
    monkeypatch.setattr(guards, "EXAMPLES", 3)
    ended = []
    for on in (True, False):
        student = with_dropout(student_of(2, width=16, heads=4))
        stages = methods.build(method, options).stages
        objective = Objective(student, stages, teacher=teacher_sizes, seed=0, examples=len(data))
        outcome = run(
            tmp_path / str(on), objective, data, teacher, guards=on, batch_size=8 // accumulate, accumulate=accumulate
        )
        assert (outcome.warnings is None) == (not on)
        ended.append(objective.state_dict())
        assert len(looks) >= 4, "and none of them in the second run"
    assert len(looks) == len(set(looks))
    for name, value in ended[0].items():
        assert torch.equal(ended[1][name], value), name
    logs = [[json.loads(line) for line in (tmp_path / each / "log.jsonl").read_text().splitlines()]
            for each in ("True", "False")]  # fmt: skip
    steps = [[{**one, "seconds": 0} for one in log if one["event"] == "train"] for log in logs]
    assert steps[0] == steps[1]


def warned(outcome: Outcome) -> dict[str, Mapping[str, Any]]:
    assert outcome.warnings is not None
    assert len({one["guard"] for one in outcome.warnings}) == len(outcome.warnings)
    return {one["guard"]: one for one in outcome.warnings}


@pytest.mark.parametrize(
    "method", ["kd", "pkd", "layer-forward", "rail-kd", "rail-kd-concat", "tinybert", "ckd-combine"]
)
@pytest.mark.parametrize("shape", [{}, {"init": "random"}, {"init": "random", "width": 16, "heads": 4}])
def test_sound_runs_are_silent(
    method: str, shape: Mapping[str, Any], tmp_path: Path, student_of: StudentOf, teacher: Loaded,
    teacher_sizes: Sizes, data: TrainingData, looks: list[int],
) -> None:  # fmt: skip
    objective = Objective(student_of(2, **shape), methods.build(method).stages, teacher=teacher_sizes, seed=0)
    assert run(tmp_path, objective, data, teacher).warnings == [] and looks


def test_a_term_with_all_the_gradient_is_named_once(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stages = methods.build("layer-forward", {"layer_weight": 1e4}).stages
    objective = Objective(student_of(2, init="random"), stages, teacher=teacher_sizes, seed=0)
    one = warned(run(tmp_path, objective, data, teacher))["gradient share"]
    assert (one["about"], one["stage"], one["epoch"], one["step"]) == ("hidden", "train", 1, 8)
    assert len(one["shares"]) == 4 and min(one["shares"]) > 0.95 and 0.95 < one["share"] <= 1 and one["weight"] == 1e4
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert lines == [one["message"]] and "lower its weight in the recipe (now 1e+04)" in lines[0]
    assert f"term hidden takes {one['share']:.1%} of the gradient in epoch 1" in lines[0]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [event for event in logged if event["event"] == "warning"] == [{"event": "warning", **one}]


def test_a_stage_of_layers_alone_has_no_term_to_drown(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    stages = methods.build("tinybert", {"attention_weight": 1e6, "layer_share": 1.0, "least_steps": 1}).stages
    objective = Objective(student_of(2, init="random"), stages, teacher=teacher_sizes, seed=0)
    assert run(tmp_path, objective, data, teacher).warnings == []


def test_a_term_is_not_named_before_an_epoch_of_it(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    match = dataclasses.replace(
        flat_stage().matches[0], project=None, weight=lambda clock: 0.0 if clock.stage_step == 5 else 1e5
    )
    stage = dataclasses.replace(flat_stage(), matches=(match,))
    objective = Objective(student_of(2, init="random"), [stage], teacher=teacher_sizes, seed=0)
    assert run(tmp_path / "one", objective, data, teacher, epochs=1).warnings == []
    objective = Objective(student_of(2, init="random"), [stage], teacher=teacher_sizes, seed=0)
    assert warned(run(tmp_path / "two", objective, data, teacher))["gradient share"]["step"] == 14


def test_a_projection_to_one_line_is_named(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    objective = Objective(student_of(2), [flat_stage()], teacher=teacher_sizes, seed=0)
    one = warned(run(tmp_path, objective, data, teacher))["projection rank"]
    assert (one["about"], one["side"], one["pair"], one["step"]) == ("flat", "student", 1, 2)
    assert one["rank"] == pytest.approx(1, abs=1e-3) and one["full_rank"] > 1.1
    assert "effective rank 1.000 of" in one["message"] and "in epoch 1" in one["message"]


def test_projections_that_turn_to_one_direction_are_named(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    # Both sides are trained and have biases: all rows may as well become the bias.
    maps = partial(project.both, width=8, bias=True)
    match = dataclasses.replace(flat_stage().matches[0], project=maps, distance=distance.normalised_mse, weight=3.0)
    objective = Objective(student_of(2), [dataclasses.replace(flat_stage(), matches=(match,))],
                          teacher=teacher_sizes, seed=0)  # fmt: skip
    one = warned(run(tmp_path, objective, data, teacher, epochs=10, lr=1e-2))["projection rank"]
    assert one["about"] == "flat" and one["rank"] - 1 < 0.05 * (one["full_rank"] - 1)
    assert one["step"] > 4, "they did not start like that"
    anchored = dataclasses.replace(match, project=partial(maps, bias=False, start="same", frozen_teacher=True))
    stage = dataclasses.replace(flat_stage(), matches=(anchored,))
    objective = Objective(student_of(2), [stage], teacher=teacher_sizes, seed=0)
    outcome = run(tmp_path / "anchored", objective, data, teacher, epochs=10)
    assert "projection rank" not in warned(outcome), "the teacher's side is as it was"


@pytest.mark.parametrize(
    ("what", "moves", "ranks", "at"),
    [
        # Before, after and the teacher's, look by look, as measured on CoLA with students of MiniLM.
        ("literal rail-kd", True, [(2.0, 2.0, 2.0), (1.08, 1.02, 2.1), (1.05, 1.014, 3.9)], 2),
        ("once is no proof", True, [(2.0, 2.0, 2.0), (1.08, 1.02, 2.1), (1.9, 1.8, 2.1)], None),
        ("default rail-kd", False, [(2.1, 2.0, 2.1), (1.9, 1.5, 2.0), (2.1, 1.9, 2.4)], None),
        ("a new narrow student", False, [(12.6, 11.6, 4.8), (1.29, 1.25, 10.9), (1.06, 1.04, 7.9)], None),
        ("its map loses it", False, [(12.6, 11.6, 4.8), (9.3, 1.02, 10.9), (9.1, 1.02, 7.9)], 2),
        ("a teacher that tells nothing apart", True, [(2.0, 2.0, 1.0), (1.1, 1.0, 1.01), (1.1, 1.0, 1.02)], None),
    ],
)
def test_what_is_lost_by_a_projection(
    what: str, moves: bool, ranks: list[tuple[float, float, float]], at: int | None, student_of: StudentOf,
    teacher: Loaded, teacher_sizes: Sizes, data: TrainingData, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    objective = Objective(student_of(2), [flat_stage()], teacher=teacher_sizes, seed=0)
    step = steps_of(objective, teacher)
    (part,) = split_window(data, np.arange(4), 4, Clock(), None, step.accelerator)
    # 64 examples by windows of 8 are 8 steps an epoch.
    span = StageSpan(stage=0, start=0, length=24, window=8, data=data, teacher=None, seed=0)
    assert span.per_epoch == 8
    kept = guards.Guards(step, span, graphs=False, advice=guards.PlainAdvice())
    said = []
    for look, (before, after, theirs) in enumerate(ranks):
        one = ProjectionRanks(
            match="flat", pair=0, side="student", before=before, after=after, teacher=theirs, trained=moves
        )
        found = Measures(shares={}, weights={"flat": 1.0}, projections=[one])
        monkeypatch.setattr(guards, "measure", lambda *_, found=found: found)
        said += [(look, warned.guard) for warned in kept.check(objective.plan(Clock(step=look)), part)]
    assert said == ([] if at is None else [(at, "projection rank")]), what


ONE = OneAnswer(answer="the class positive", examples=50, expected=0.6)


def scores(*found: OneAnswer | None) -> Callable[[PreTrainedModel], Scores]:
    each: Iterator[OneAnswer | None] = iter(found)
    return lambda _: Scores({"accuracy": 50.0}, next(each))


def test_one_answer_after_an_epoch_is_named_once(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    kd = methods.build("kd").stages

    def trained(folder: str, *found: OneAnswer | None, stages=kd, **settings: Any) -> Outcome:
        objective = Objective(student_of(2), stages, teacher=teacher_sizes, seed=0)
        return run(tmp_path / folder, objective, data, teacher, scores(*found), **settings)

    one = warned(trained("always", ONE, ONE, ONE))["one answer"]
    assert (one["epoch"], one["step"], one["expected"], one["lr"]) == (1, 8, 0.6, 1e-3)
    assert one["message"].startswith(
        "warning: after 1 epoch every one of 50 dev examples gets the class positive, which 60.0% should get: "
    )
    assert trained("never", None, None, None).warnings == []
    assert trained("at first", ONE, None, epochs=1, eval_every=4).warnings == [], "half an epoch says nothing yet"
    assert trained("later", ONE, None, ONE, None, epochs=2, eval_every=4).warnings[0]["step"] == 12
    rare = dataclasses.replace(ONE, expected=0.97)
    assert trained("rare", rare, rare, rare).warnings == [], "that may be all there is to learn"
    (short,) = trained("short", ONE, max_steps=5).warnings
    assert short["step"] == 5, "its end is the epoch's"
    assert short["message"].startswith("warning: after the 5 steps of this stage every one of 50 dev examples")
    layers = [dataclasses.replace(flat_stage(1.0).matches[0], project=None)]
    only = [Stage(matches=tuple(layers), hard_weight=0.0)]
    assert trained("layers", ONE, ONE, ONE, stages=only).warnings == [], "nothing of labels is learnt there"
    assert trained("off", ONE, ONE, ONE, guards=False).warnings is None


def test_a_run_that_goes_on_keeps_its_warnings_and_repeats_none(
    tmp_path: Path, student_of: StudentOf, teacher: Loaded, teacher_sizes: Sizes, data: TrainingData
) -> None:
    class Killed(Exception):
        pass

    def killing(_: PreTrainedModel) -> Scores:
        if not killed:
            killed.append(True)
            raise Killed
        return Scores({"accuracy": 1.0}, ONE)

    killed: list[bool] = []
    stages = methods.build("layer-forward", {"layer_weight": 1e4}).stages

    def objective() -> Objective:
        return Objective(student_of(2, init="random"), stages, teacher=teacher_sizes, seed=0)

    settings = {"checkpoint_every": 5, "eval_every": 13, "epochs": 4}
    with pytest.raises(Killed):
        run(tmp_path / "cut", objective(), data, teacher, killing, **settings)
    outcome = run(tmp_path / "cut", objective(), data, teacher, killing, resume=True, **settings)
    whole = run(tmp_path / "whole", objective(), data, teacher, killing, **settings)
    assert warned(outcome).keys() == {"gradient share", "one answer"}
    assert outcome.warnings == whole.warnings
    logged = [json.loads(line)["event"] for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert logged.count("warning") == 2
