"""The loop: accumulation, clipping, scoring, stopping, logs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from stillery import methods
from stillery.errors import Stopped
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.parts import distance, pair, represent
from stillery.recipe import Match, Stage
from stillery.train.loop import Monitoring, Outcome, Sources, TrainingData, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.optimiser import parameter_groups
from stillery.train.settings import Training
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]
FAST = Training(epochs=1, batch_size=16, lr=1e-3, log_every=1, keep="last")


def run(
    folder: Path, objective: Objective, data: TrainingData, settings: Training, teacher: Loaded, score=None
) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    return train(
        objective,
        Sources(data=data, teacher=LiveTeacher(teacher.model)),
        settings,
        accelerator=accelerator_for("fp32"),
        folder=folder,
        monitoring=Monitoring(score=score),
    )


def events(folder: Path, kind: str) -> list[dict]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.parametrize("method", ["none", "layer-forward", "pkd"])
def test_accumulating_4_times_8_equals_32_at_once(
    method, tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    finished = []
    for batch_size, accumulate in ((32, 1), (8, 4)):
        settings = dataclasses.replace(FAST, batch_size=batch_size, accumulate=accumulate, epochs=2)
        stages = methods.build(method).stages
        objective = Objective(student_of(2, width=16, heads=2), stages, teacher=teacher_sizes, seed=0)
        outcome = run(tmp_path / f"{accumulate}", objective, data, settings, teacher)
        assert outcome.steps == 4
        finished.append(objective.state_dict())
    for name, value in finished[0].items():
        torch.testing.assert_close(finished[1][name], value, atol=1e-6, rtol=0, msg=name)
    whole, cut = (events(tmp_path / folder, "train") for folder in ("1", "4"))
    for one, other in zip(whole, cut, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
        assert other["terms"] == pytest.approx(one["terms"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("method", "starts_anew"), [("bert-emd", False), ("emd-ild", True)])
def test_the_weights_of_a_transport_start_anew_in_every_epoch_where_the_method_says_so(
    method: str,
    starts_anew: bool,
    tmp_path: Path,
    student_of: StudentOf,
    teacher: Loaded,
    teacher_sizes: Sizes,
    data: TrainingData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six steps of two epochs, all of them in the hidden-state stage or in the only one."""
    equal: list[set[bool]] = []
    after_step = Objective.after_step

    def noted(objective: Objective, *, new_epoch: bool) -> None:
        after_step(objective, new_epoch=new_epoch)
        weights = [flow.teacher for flow in objective.flows["0"].values()]
        equal.append({bool(torch.allclose(each, torch.full((4,), 1 / 4), atol=1e-6)) for each in weights})

    monkeypatch.setattr(Objective, "after_step", noted)
    objective = Objective(student_of(2), methods.build(method).stages[:1], teacher=teacher_sizes, seed=0)
    settings = dataclasses.replace(FAST, epochs=2, batch_size=24)
    assert run(tmp_path / "run", objective, data, settings, teacher).steps == 6
    assert equal == [{False}, {False}, {starts_anew}] * 2


def test_every_forward_pass_of_a_run_draws_dropout_of_its_own(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    """The same examples in every step, and weights that do not move: what differs is dropout."""
    assert data.tokens.lengths.size == 64
    losses = {}
    for dropout in (0.0, 0.5):
        student = student_of(2)
        for module in student.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
        seeds: list[int] = []
        student.register_forward_pre_hook(
            lambda model, _, seeds=seeds: seeds.append(torch.initial_seed()) if model.training else None
        )
        objective = Objective(student, methods.build("none").stages, teacher=teacher_sizes, seed=0)
        settings = dataclasses.replace(FAST, epochs=4, batch_size=32, accumulate=2, lr=1e-12)
        assert run(tmp_path / f"{dropout}", objective, data, settings, teacher).steps == 4
        assert len(seeds) == len(set(seeds)) == 8
        losses[dropout] = [event["loss"] for event in events(tmp_path / f"{dropout}", "train")]
    assert losses[0.0] == pytest.approx([losses[0.0][0]] * 4, rel=1e-5)
    assert min(abs(one - other) for one, other in zip(losses[0.5], losses[0.5][1:], strict=False)) > 1e-4


def test_what_remembers_is_told_of_every_step_and_of_the_last_of_an_epoch(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, monkeypatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Objective, "after_step", lambda _, *, new_epoch: told.append(new_epoch))
    objective = Objective(student_of(2), methods.build("kd").stages, teacher=teacher_sizes, seed=0)
    settings = dataclasses.replace(FAST, epochs=2, batch_size=24)
    assert run(tmp_path / "run", objective, data, settings, teacher).steps == 6, "64 examples, the last step has 16"
    assert told == [False, False, True] * 2


def test_terms_are_logged_under_their_names_with_gradient_norms(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    settings = dataclasses.replace(FAST, grad_norms=True, tensorboard=True)
    stages = methods.build("layer-forward").stages
    objective = Objective(student_of(2), stages, teacher=teacher_sizes, seed=0)
    run(tmp_path, objective, data, settings, teacher)
    logged = events(tmp_path, "train")
    assert [event["step"] for event in logged] == [1, 2, 3, 4]
    for event in logged:
        assert event["terms"].keys() == event["term_gradient_norms"].keys() == {"hard", "soft", "hidden"}
        assert min(event["term_gradient_norms"].values()) > 0
        weighed = event["terms"]["hard"] + event["terms"]["soft"] + 3 * event["terms"]["hidden"]
        assert event["loss"] == pytest.approx(weighed, rel=1e-5)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_gradients_are_clipped_projections_included(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData, monkeypatch
) -> None:
    clipped: list[set[int]] = []
    clip = torch.nn.utils.clip_grad_norm_

    def watch(parameters, *args, **kwargs):
        held = list(parameters)
        clipped.append({id(parameter) for parameter in held})
        return clip(held, *args, **kwargs)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watch)
    stages = methods.build("layer-forward").stages
    objective = Objective(student_of(2, width=16, heads=2), stages, teacher=teacher_sizes, seed=0)
    run(tmp_path, objective, data, FAST, teacher)
    assert len(clipped) == 4
    assert all({id(parameter) for parameter in objective.projections.parameters()} <= seen for seen in clipped)


def test_biases_and_norms_do_not_decay(student_of: StudentOf) -> None:
    student = student_of(2)
    names = {id(parameter): name for name, parameter in student.named_parameters()}
    decaying, others = parameter_groups(student, 0.01)
    assert decaying["weight_decay"] == 0.01 and others["weight_decay"] == 0.0
    assert len(decaying["params"]) + len(others["params"]) == len(names)
    for parameter in others["params"]:
        assert names[id(parameter)].endswith("bias") or "LayerNorm" in names[id(parameter)]
    assert not any("LayerNorm" in names[id(parameter)] for parameter in decaying["params"])


def test_the_best_weights_are_kept_and_patience_stops(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    scores = iter([50.0, 70.0, 60.0, 65.0, 10.0, 10.0])
    seen: list[dict[str, torch.Tensor]] = []

    def score(model) -> dict[str, float]:
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return {"accuracy": next(scores)}

    settings = dataclasses.replace(FAST, keep="best", eval_every=1, patience=2, epochs=3)
    objective = Objective(student_of(2), methods.build("none").stages, teacher=teacher_sizes, seed=0)
    outcome = run(tmp_path, objective, data, settings, teacher, score)
    assert outcome == dataclasses.replace(outcome, steps=4, kept_step=2, stopped_early=True)
    for name, value in objective.student.state_dict().items():
        assert torch.equal(value, seen[1][name])
    assert [event["metrics"]["accuracy"] for event in events(tmp_path, "dev")] == [50, 70, 60, 65]


def test_keep_last_keeps_the_last(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    scores = iter([70.0, 60.0, 50.0, 40.0])
    settings = dataclasses.replace(FAST, eval_every=1)
    objective = Objective(student_of(2), methods.build("none").stages, teacher=None, seed=0)
    outcome = run(tmp_path, objective, data, settings, teacher, lambda model: {"accuracy": next(scores)})
    assert outcome.kept_step == outcome.steps == 4


def test_a_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    calls = 0

    def broken(student, teacher, mask=None, reduction="mean"):
        nonlocal calls
        calls += 1
        return distance.mse(student, teacher, mask, reduction) * (float("nan") if calls > 2 else 1.0)

    match = Match(name="broken", represent=represent.tokens, pair=lambda m, n, clock: [(m, n)], distance=broken)
    objective = Objective(student_of(2), (Stage(matches=(match,)),), teacher=teacher_sizes, seed=0)
    with pytest.raises(Stopped) as caught:
        run(tmp_path, objective, data, FAST, teacher)
    assert "step 3" in str(caught.value) and "broken" in str(caught.value)
    assert "rotten-tomatoes-" in str(caught.value)


def test_stages_run_one_after_the_other(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    hidden = Match(name="hidden", represent=represent.tokens, pair=pair.forward, distance=distance.mse)
    stages = (Stage(name="layers", matches=(hidden,), hard_weight=0, share=3), Stage(name="labels", share=1))
    objective = Objective(student_of(2), stages, teacher=teacher_sizes, seed=0)
    before = objective.student.classifier.weight.clone()
    scored_at: list[int] = []
    settings = dataclasses.replace(FAST, epochs=2, eval_every=1)

    def score(model) -> dict[str, float]:
        scored_at.append(len(scored_at))
        return {"accuracy": 1.0}

    run(tmp_path, objective, data, settings, teacher, score)
    logged = events(tmp_path, "train")
    assert [event["stage"] for event in logged] == ["layers"] * 6 + ["labels"] * 2
    assert set(logged[0]["terms"]) == {"hidden"} and set(logged[-1]["terms"]) == {"hard"}
    assert len(scored_at) == 2, "a stage that does not train predictions is not scored"
    # Its own warm-up: a stage of two steps starts at its full rate.
    assert logged[6]["lr"] == pytest.approx(1e-3)
    assert not torch.equal(objective.student.classifier.weight, before)


def test_the_same_seed_gives_the_same_weights_with_dropout_on(
    tmp_path: Path, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    from stillery.models.student import StudentShape, build, student_sizes

    wanted = student_sizes(StudentShape(layers=2), teacher.model.config, "teacher")
    finished = []
    for number, seed in enumerate((5, 5, 6)):
        student = build(teacher=teacher, source=teacher, wanted=wanted, init="even", seed=0).model
        objective = Objective(student, methods.build("kd").stages, teacher=teacher_sizes, seed=0)
        torch.rand(number * 7)  # what a program drew before must not matter
        run(tmp_path / str(number), objective, data, dataclasses.replace(FAST, seed=seed), teacher)
        finished.append(torch.cat([value.flatten() for value in student.state_dict().values()]))
    assert torch.equal(finished[0], finished[1])
    assert not torch.equal(finished[0], finished[2])


def test_a_later_stage_in_fp16_has_the_gradients_of_fp32(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    hidden = Match(name="hidden", represent=represent.tokens, pair=pair.forward, distance=distance.mse)
    stages = (Stage(name="layers", matches=(hidden,), hard_weight=0, share=1), Stage(name="labels", share=1))
    norms = {}
    for precision in ("fp32", "fp16"):
        objective = Objective(student_of(2), stages, teacher=teacher_sizes, seed=0)
        folder = tmp_path / precision
        folder.mkdir()
        train(
            objective,
            Sources(data=data, teacher=LiveTeacher(teacher.model)),
            FAST,
            accelerator=accelerator_for(precision),
            folder=folder,
        )
        norms[precision] = [event["gradient_norm"] for event in events(folder, "train")]
    assert norms["fp16"] == pytest.approx(norms["fp32"], rel=0.1)


def test_cudnns_attention_is_left_out_while_training(
    tmp_path: Path, student_of: StudentOf, teacher, teacher_sizes: Sizes, data: TrainingData
) -> None:
    enabled, seen = torch.backends.cuda.cudnn_sdp_enabled, []

    def score(_: PreTrainedModel) -> dict[str, float]:
        seen.append(enabled())
        return {"accuracy": 0.0}

    objective = Objective(student_of(2), methods.build("none").stages, teacher=teacher_sizes, seed=0)
    run(tmp_path, objective, data, FAST, teacher, score=score)
    assert seen == [False] and enabled()
