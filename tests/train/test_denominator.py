"""Micro-batches of any distance on any representation add up to the step, or are refused before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from stillery import declare
from stillery.data.schema.examples import Examples
from stillery.data.tokens.collate import collate
from stillery.data.tokens.encode import Tokens
from stillery.errors import UserError
from stillery.models.load_model import Loaded
from stillery.models.trace import Trace
from stillery.parts import distance, load, pair, represent
from stillery.parts import represent_relations as relations
from stillery.recipe import Clock, Match, Representation, Stage
from stillery.train.denominator import rows_of
from stillery.train.loop import TrainingData
from stillery.train.microbatches import MicroBatch
from stillery.train.objective import Objective
from stillery.train.recipe_checks import check_stages
from stillery.train.teacher import LiveTeacher

StudentOf = Callable[..., PreTrainedModel]

load()
SHOWN = {one.word: one.part for one in declare.declared("representation")} | {"maps": relations.attention_maps}


def written_like_mse(student, teacher, mask=None, reduction="mean", key_mask=None):
    """What `mse` does, written by somebody else."""
    squares = (student - teacher).square()
    valid = torch.ones_like(squares, dtype=torch.bool)
    if key_mask is not None:
        keys = key_mask.bool()
        valid &= (keys[:, None, None, :] if keys.ndim == 2 and squares.ndim == 4 else keys).expand_as(squares)
    if mask is not None:
        valid &= (mask[:, None, :, None] if squares.ndim == 4 and mask.ndim == 2 else mask[..., None]).bool()
    return squares.where(valid, 0).sum() / valid.sum()


def summed(student, teacher, mask=None, key_mask=None):
    found = written_like_mse(student, teacher, mask, "mean", key_mask)
    count = (torch.ones_like(student) if mask is None else mask.float()).sum()
    return found * count, count


def of_rows(student, teacher, mask=None):
    rows = (student - teacher).abs().amax(-1)
    return rows.mean() if mask is None else rows[mask.bool()].mean()


def added(student, teacher, mask=None):
    return (student - teacher).square().sum() if mask is None else (student - teacher)[mask.bool()].square().sum()


def of_large(student, teacher, mask=None):
    apart = (student - teacher).abs()
    valid = (apart > 0.5) if mask is None else (apart > 0.5) & mask.bool().unsqueeze(-1)
    return apart.where(valid, 0).sum(), valid.sum()


def match_of(what: Representation, how: Callable[..., object], reduction: str = "mean", **more: object) -> Match:
    return Match(name="m", represent=what, pair=pair.last_layer, distance=how, reduction=reduction, **more)


@pytest.fixture
def parts_and_whole(
    student_of: StudentOf, teacher: Loaded, teacher_sizes, sentences: Examples, tokens: Tokens
) -> Callable[[Match], tuple[float, float]]:
    """What the micro-batches of a step come to together, and what the step comes to as a whole."""
    data = TrainingData(examples=sentences, tokens=tokens, pad_id=0)
    student, live, index = student_of(2, init="random").eval(), LiveTeacher(teacher.model), np.arange(32)

    def measure(match: Match) -> tuple[float, float]:
        stage = Stage(matches=(match,), hard_weight=0.0)
        check_stages([stage], teacher_sizes, teacher_sizes, Clock())
        objective = Objective(student, [stage], teacher=teacher_sizes, seed=0, examples=64)
        plan = objective.plan(Clock())

        def micro_batch(part: np.ndarray, share: dict[str, float]) -> MicroBatch:
            batch = collate(sentences, tokens, part, 0)
            return MicroBatch(batch=batch, share=share, places=torch.from_numpy(batch.index))

        def shown(one: MicroBatch) -> dict[str, Trace]:
            return {"plain": live(one.batch.inputs, plan.teacher["plain"])}

        def value(part: np.ndarray, share: dict[str, float], counts=None) -> float:
            one = micro_batch(part, share)
            with torch.no_grad():
                losses = objective(plan, one, shown(one), counts=counts)
            return losses.terms["m"].item()

        total, cuts = data.rows(index), np.array_split(index, [5, 6, 20])
        shares = [{name: count / total[name] for name, count in data.rows(cut).items()} for cut in cuts]
        counts = None
        if plan.counted:
            batches = [micro_batch(cut, share) for cut, share in zip(cuts, shares, strict=True)]
            each = [objective.counts_of(plan, one, shown(one)) for one in batches]
            counts = {"m": sum(one["m"] for one in each)}
        found = sum(value(cut, share, counts) for cut, share in zip(cuts, shares, strict=True))
        return found, value(index, dict.fromkeys(total, 1.0))

    return measure


@pytest.mark.parametrize("reduction", ["mean", "batchmean", "rowmean", "sum"])
@pytest.mark.parametrize("shown", SHOWN)
def test_what_ships_adds_up_or_is_refused(shown: str, reduction: str, parts_and_whole) -> None:
    distances = [one for one in declare.declared("distance") if not one.together]
    done = 0
    for how in distances:
        match = match_of(SHOWN[shown], how.part, reduction)
        if match.represent.together:
            continue
        try:
            found, whole = parts_and_whole(match)
        except UserError:
            continue
        assert found == pytest.approx(whole, rel=1e-5, abs=5e-8), how.word
        done += 1
    assert done >= (0 if shown == "samples" else 1)


@pytest.mark.parametrize("how", [written_like_mse, summed, of_rows, added, of_large], ids=lambda how: how.__name__)
@pytest.mark.parametrize("shown", SHOWN)
def test_what_somebody_else_writes_adds_up_or_is_refused(shown: str, how, parts_and_whole) -> None:
    match = match_of(SHOWN[shown], how)
    if match.represent.together:
        return
    try:
        found, whole = parts_and_whole(match)
    except UserError:
        # Word relations have more elements of long texts; what has no word for keys cannot leave them out.
        assert shown == "word-relations" or how in (of_rows, added, of_large)
        return
    assert found == pytest.approx(whole, rel=1e-5, abs=5e-8)


@pytest.mark.parametrize(
    ("what", "how", "rows"),
    [
        (relations.attention_maps, written_like_mse, "pairs"),
        (relations.attention, written_like_mse, "pairs"),
        (relations.attention, distance.mse, "pairs"),
        (relations.attention, distance.kl, "tokens"),
        (represent.tokens, written_like_mse, "tokens"),
        (represent.pool, written_like_mse, "examples"),
        (relations.attention, summed, "pairs"),
        (represent.tokens, of_large, "counted"),
        (represent.tokens, added, "sum"),
        (represent.tokens, partial(distance.kl, reduction="batchmean"), "tokens"),
        (relations.attention, distance.released_attention_mse, "examples"),
        (represent.samples, distance.mse, "examples"),
        (represent.pool, torch.nn.functional.l1_loss, "examples"),
    ],
)
def test_what_a_mean_is_over_is_found(what: Representation, how, rows: str) -> None:
    assert rows_of(match_of(what, how)) == rows


@pytest.mark.parametrize(
    ("what", "how", "words"),
    [
        (relations.attention, distance.normalised_mse, "padded keys to leave out; use the distance mse or kl"),
        (relations.attention, distance.contrastive, "padded keys to leave out"),
        (relations.word_relations, distance.mse, "use --reduction rowmean or batchmean"),
        (represent.tokens, torch.nn.functional.l1_loss, "changes when a step is cut"),
        (represent.pool, lambda student, teacher: (student - student.mean(0)).abs().mean(), "changes when a step"),
        (represent.pool, lambda student: 0, "fails on a small batch: TypeError"),
        (represent.tokens, lambda student, teacher, mask: torch.tensor(float("nan")), "not finite on a small batch"),
    ],
)
def test_what_does_not_add_up_is_refused(what: Representation, how, words: str) -> None:
    with pytest.raises(UserError, match=words):
        rows_of(match_of(what, how))
