"""Loss terms against independent numpy references, on ragged batches of real sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from transformers import PreTrainedModel

from stillery import methods
from stillery.data.schema.examples import Examples
from stillery.data.tokens.batches import Batch
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens
from stillery.errors import UserError
from stillery.losses import Mixed
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.models.wanted_outputs import Wanted
from stillery.parts import distance, pair, represent
from stillery.parts import represent_relations as relations
from stillery.recipe import Clock, Match, Representation, Stage
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Losses, Needs, Objective
from stillery.train.recipe_checks import check_stages
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]
WHOLE = {"examples": 1.0, "tokens": 1.0, "pairs": 1.0, "mixed tokens": 1.0, "mixed pairs": 1.0}


def everything(layers: int) -> Needs:
    inner = set(range(1, layers + 1))
    return {None: Wanted(hidden={0} | inner, query=inner, key=inner, value=inner, feature={layers} - {0})}


def losses_of(
    name: str, student: PreTrainedModel, teacher: Loaded, sizes: Sizes, batch: Batch, options=None, seed=0
) -> tuple[Objective, Losses]:
    stages = methods.build(name, options).stages
    objective = Objective(student, stages, teacher=sizes, seed=seed, examples=64)
    return objective, losses_in(objective, LiveTeacher(teacher.model), batch, Clock(seed=seed))


def losses_in(objective: Objective, teacher: LiveTeacher, batch: Batch, clock: Clock, share=WHOLE) -> Losses:
    mixed = Mixed(lam=0.3, partner=torch.arange(len(batch)).flip(0)) if objective.stages[clock.stage].mixing else None
    needs = everything(objective.between[0][None].depths[1])
    shown = {"plain": teacher(batch.inputs, needs)}
    if mixed:
        shown["mixed"] = teacher(batch.inputs, needs, mixed)
    index = torch.from_numpy(batch.index)
    torch.manual_seed(5)  # a contrast draws its negatives
    return objective(objective.plan(clock), MicroBatch(batch=batch, share=share, mixed=mixed, places=index), shown)


@pytest.mark.parametrize(
    ("shown", "enough"), [(represent.cls, True), (represent.pool, False), (relations.key_relations, True)]
)
def test_the_first_token_of_the_last_state_is_enough_where_a_match_looks_at_no_other(
    shown: Representation, enough: bool, student_of: StudentOf, teacher_sizes: Sizes
) -> None:
    last = Match(name="last", represent=shown, pair=pair.last, distance=distance.mse)
    for matches, expected in (
        ((last,), enough),
        ((last, replace(last, name="all", represent=represent.tokens)), False),
    ):
        stage = Stage(name="one", matches=matches)
        objective = Objective(student_of(2), [stage], teacher=teacher_sizes, seed=0)
        plan = objective.plan(Clock())
        for needs in (plan.student["plain"], plan.teacher["plain"]):
            assert needs[None].first_of_last == expected


def shown_by(model: PreTrainedModel, batch: Batch) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits and hidden states as transformers itself gives them."""
    with torch.no_grad():
        output = model.eval()(**batch.inputs, output_hidden_states=True)
    return output.logits.double().numpy(), [state.double().numpy() for state in output.hidden_states]


def reference_kl(student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    log_s, log_t = log_softmax(student / temperature, axis=1), log_softmax(teacher / temperature, axis=1)
    return float((np.exp(log_t) * (log_t - log_s)).sum(1).mean() * temperature**2)


@pytest.mark.parametrize(
    ("name", "teachers"),
    [
        ("layer-forward", [0, 2, 4]),
        ("layer-reverse", [0, 4, 2]),
        ("layer-all-to-one", [2, 2, 2]),
        ("layer-random", None),
    ],
)
def test_layer_selection_terms(name, teachers, student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    student = student_of(2, init="random")
    _, losses = losses_of(name, student, teacher, teacher_sizes, batch)
    if teachers is None:
        teachers = [j for _, j in pair.fixed_random(2, 4, Clock(seed=0))]
    logits, hidden = shown_by(student, batch)
    teacher_logits, teacher_hidden = shown_by(teacher.model, batch)
    mask = batch.inputs["attention_mask"].numpy().astype(bool)
    assert mask.sum() < mask.size, "the batch must be ragged"
    expected = sum(((hidden[i] - teacher_hidden[j])[mask] ** 2).mean() for i, j in enumerate(teachers))
    hard = -log_softmax(logits, axis=1)[np.arange(8), batch.labels.numpy()].mean()
    assert losses.terms["hidden"].item() == pytest.approx(expected, rel=1e-5)
    assert losses.terms["soft"].item() == pytest.approx(reference_kl(logits, teacher_logits, 1.0), abs=1e-6)
    assert losses.terms["hard"].item() == pytest.approx(hard, rel=1e-5)
    total = losses.terms["hard"] + losses.terms["soft"] + 3 * losses.terms["hidden"]
    assert losses.total.item() == pytest.approx(total.item(), rel=1e-6)


def test_layer_selection_released_form(student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    student = student_of(2, init="random")
    _, losses = losses_of("layer-forward", student, teacher, teacher_sizes, batch, {"released": True})
    _, hidden = shown_by(student, batch)
    _, teacher_hidden = shown_by(teacher.model, batch)
    mask = batch.inputs["attention_mask"].numpy().astype(bool)
    squares = [((hidden[i] - teacher_hidden[j]) ** 2).sum(-1) for i, j in ((0, 0), (1, 2), (2, 4))]
    expected = np.mean([(square * mask).sum() / mask.sum() / len(mask) for square in squares])
    assert losses.terms["hidden"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("layers", "pairs"), [("skip", [(1, 1), (2, 2)]), ("last", [(1, 2), (2, 3)])])
def test_pkd_terms(layers, pairs, student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    student = student_of(3, init="random")
    _, losses = losses_of("pkd", student, teacher, teacher_sizes, batch, {"layers": layers})
    logits, hidden = shown_by(student, batch)
    teacher_logits, teacher_hidden = shown_by(teacher.model, batch)

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    terms = [((unit(hidden[i][:, 0]) - unit(teacher_hidden[j][:, 0])) ** 2).mean() for i, j in pairs]
    assert losses.terms["patience"].item() == pytest.approx(np.mean(terms), rel=1e-5)
    assert losses.terms["soft"].item() == pytest.approx(reference_kl(logits, teacher_logits, 10.0), abs=1e-6 * 10**2)
    weighed = 0.5 * losses.terms["hard"] + 0.5 * losses.terms["soft"] + 100 * losses.terms["patience"]
    assert losses.total.item() == pytest.approx(weighed.item(), rel=1e-6)


@pytest.mark.parametrize("name", methods.names())
def test_padding_never_changes_a_loss(
    name, student_of: StudentOf, teacher, teacher_sizes, sentences: Examples, tokens: Tokens
) -> None:
    index = np.argsort(tokens.lengths, kind="stable")[4:12]
    narrow = collate(sentences, tokens, index, 0, pad_to=1)
    wide = collate(sentences, tokens, index, 0, pad_to=48)
    assert wide.inputs["input_ids"].shape[1] > narrow.inputs["input_ids"].shape[1]
    student = student_of(2, width=16, heads=4).eval()
    _, short = losses_of(name, student, teacher, teacher_sizes, narrow)
    _, long = losses_of(name, student, teacher, teacher_sizes, wide)
    for term in short.terms:
        torch.testing.assert_close(long.terms[term], short.terms[term], rtol=1e-5, atol=1e-6)


# Transport and contrast look at the batch at hand, MixUp mixes within it: cutting it differently changes them.
CUTTABLE = [name for name in methods.names() if name not in ("bert-emd", "emd-ild", "cr-ild", "codir")]


@pytest.mark.parametrize("name", CUTTABLE)
def test_parts_of_a_step_add_up_to_the_whole(
    name, student_of: StudentOf, teacher, teacher_sizes, sentences: Examples, tokens: Tokens
) -> None:
    student = student_of(2).eval()
    stages = methods.build(name).stages
    objective = Objective(student, stages, teacher=teacher_sizes, seed=0, examples=64)
    live, index = LiveTeacher(teacher.model), np.arange(32)

    def terms(part: np.ndarray) -> dict[str, torch.Tensor]:
        cut = collate(sentences, tokens, part, 0)
        lengths, all_lengths = tokens.lengths[part], tokens.lengths[index]
        share = {
            "examples": len(part) / 32,
            "tokens": lengths.sum() / all_lengths.sum(),
            "pairs": (lengths**2).sum() / (all_lengths**2).sum(),
        }
        return losses_in(objective, live, cut, Clock(), share).terms

    whole = terms(index)
    parts = [terms(part) for part in np.array_split(index, [5, 6, 20])]
    for term, value in whole.items():
        torch.testing.assert_close(sum(part[term] for part in parts), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["layer-forward", "layer-all-to-one", "pkd"])
def test_golden_22_every_projection_moves(name, student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    student = student_of(3, width=16, heads=2)
    objective, losses = losses_of(name, student, teacher, teacher_sizes, batch)
    before = {key: value.clone() for key, value in objective.projections.state_dict().items()}
    assert len(before) == {"layer-forward": 4, "layer-all-to-one": 4, "pkd": 2}[name]
    optimiser = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=1e-3)
    losses.total.backward()
    optimiser.step()
    for key, value in objective.projections.state_dict().items():
        assert not torch.equal(value, before[key]), key
    assert not any("projection" in key for key in student.state_dict())


def test_golden_22_frozen_projections_stay(student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    from stillery.train.optimiser import adamw

    student = student_of(2, width=16, heads=2)
    objective, _ = losses_of("layer-forward", student, teacher, teacher_sizes, batch)
    frozen = objective.projections["0"]["hidden"].student[0].weight.requires_grad_(False)
    before = frozen.clone()
    optimiser = adamw(objective, 1e-2, 0.01)
    losses_in(objective, LiveTeacher(teacher.model), batch, Clock()).total.backward()
    optimiser.step()
    assert torch.equal(frozen, before)


def test_no_projection_at_equal_width(student_of: StudentOf, teacher, teacher_sizes, batch: Batch) -> None:
    objective, _ = losses_of("layer-forward", student_of(2), teacher, teacher_sizes, batch)
    assert not list(objective.projections.parameters())


def test_regression_matches_values(teacher_sizes, student_of: StudentOf, teacher, batch: Batch) -> None:
    stages = methods.build("kd", {"hard_weight": 0.25, "temperature": 3}).stages
    student = student_of(2)
    student.classifier = torch.nn.Linear(32, 1)
    objective = Objective(student, stages, teacher=teacher_sizes, kind="score", seed=0)
    shown = LiveTeacher(teacher.model)(batch.inputs, everything(0))
    object.__setattr__(shown, "logits", shown.logits[:, :1])
    labels = torch.linspace(0, 5, 8)
    scored = MicroBatch(batch=replace(batch, labels=labels), share=WHOLE, places=torch.from_numpy(batch.index))
    losses = objective(objective.plan(Clock()), scored, {"plain": shown})
    with torch.no_grad():
        outputs = student.eval()(**batch.inputs).logits[:, 0]
    assert losses.terms["hard"].item() == pytest.approx(((outputs - labels) ** 2).mean().item(), rel=1e-5)
    assert losses.terms["soft"].item() == pytest.approx(((outputs - shown.logits[:, 0]) ** 2).mean().item(), rel=1e-5)


def test_the_teacher_is_frozen_and_in_eval_mode(teacher: Loaded, batch: Batch) -> None:
    teacher.model.train()
    live = LiveTeacher(teacher.model)
    shown = live(batch.inputs, {None: Wanted(hidden={1})})
    assert not teacher.model.training and not shown.logits.requires_grad
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())
    assert set(shown.encoder.hidden) == {1}


def hidden_match(**changes) -> Match:
    return Match(
        **{"name": "m", "represent": represent.tokens, "pair": pair.forward, "distance": distance.mse} | changes
    )


def test_faults_are_found_before_the_first_step() -> None:
    student, teacher = Sizes(layers=2, width=16, heads=2, inner=32), Sizes(layers=4, width=32, heads=4, inner=64)
    outside = hidden_match(pair=lambda m, n, clock: [(1, n + 1)])
    empty = hidden_match(name="e", pair=lambda m, n, clock: [])
    with pytest.raises(UserError) as caught:
        check_stages([Stage(matches=(outside, empty))], student, teacher, Clock())
    text = str(caught.value)
    assert "(1, 5)" in text and "no layer pairs" in text and "no projection" in text
    with pytest.raises(UserError, match="same name"):
        check_stages([Stage(matches=(outside, outside))], teacher, teacher, Clock())
    with pytest.raises(UserError, match="none is given"):
        check_stages([Stage(matches=(empty,))], student, None, Clock())
