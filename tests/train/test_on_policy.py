"""Texts the student writes itself: what it is trained on then, and that they count right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_writers import FAMILIES, PAD, Lesson, batch_of, texts, writer

from stillery import methods
from stillery.recipe import Clock
from stillery.train.loop import accelerator_for
from stillery.train.microbatches import MicroBatch
from stillery.train.on_policy import OnPolicy, is_on_policy, with_generated_targets

END = 2
# So cold that the likeliest token is always drawn.
GREEDY = OnPolicy(rate=1.0, max_new_tokens=6, end_ids=(END,), pad_id=PAD, temperature=1e-4)


def prompt_of(family: str, row: int) -> torch.Tensor:
    """One source, or the prompt of one row, without padding."""
    tokens = texts(family).tokens
    start, end = tokens.source.offsets[row], tokens.source.offsets[row + 1]
    length = end - start if tokens.prompt_lengths is None else tokens.prompt_lengths[row]
    return torch.from_numpy(tokens.source.flat[start : start + length].astype(np.int64))[None]


def written_alone(family: str, model, row: int) -> list[int]:
    """What the model writes for one source by itself, greedily, up to its end token."""
    source = prompt_of(family, row)
    out = model.generate(input_ids=source, attention_mask=torch.ones_like(source), do_sample=False, num_beams=1,
                         max_new_tokens=6, eos_token_id=END, pad_token_id=PAD, forced_eos_token_id=None)[0]  # fmt: skip
    new = out[1:] if model.config.is_encoder_decoder else out[source.shape[1] :]
    found = new.tolist()
    return found[: found.index(END) + 1] if END in found else found


def parts_of(*batches, share=None) -> list[MicroBatch]:
    return [MicroBatch(batch=batch, share=share or {}, places=torch.from_numpy(batch.index)) for batch in batches]


def own_texts(family: str, model, *batches):
    parts = parts_of(*batches, share={"examples": 1 / len(batches)})
    return with_generated_targets(parts, model, GREEDY, Clock(), accelerator_for("fp32"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_students_texts_take_the_place_of_the_targets(family):
    model = writer(family, seed=3)
    model.generation_config.forced_eos_token_id = None
    (part,) = own_texts(family, model, batch_of(texts(family), pad_to=8))
    batch = part.batch
    assert batch.generated
    for row in range(8):
        labels, mask = batch.inputs["labels"][row], batch.inputs["attention_mask"][row].bool()
        wanted, source = written_alone(family, model, row), prompt_of(family, row)[0].tolist()
        assert labels[labels != -100].tolist() == wanted
        real = batch.inputs["input_ids"][row][mask].tolist()
        assert real == (source if model.config.is_encoder_decoder else source + wanted)
        if not model.config.is_encoder_decoder:
            assert (labels[: len(source)] == -100).all() and labels[len(source)] == wanted[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "own",
    [{"min_p": 0.9}, {"typical_p": 0.1}, {"epsilon_cutoff": 0.5}, {"eta_cutoff": 0.5}, {"max_time": 1e-9}, {"top_k": 1},
     {"exponential_decay_length_penalty": (1, 9.0)}, {"repetition_penalty": 5.0}],
    ids=lambda own: next(iter(own)),
)  # fmt: skip
def test_what_is_drawn_does_not_depend_on_the_settings_of_a_checkpoint(family, own):
    policy = replace(GREEDY, temperature=1.0)
    found = []
    for settings in ({}, own):
        model = writer(family, seed=3)
        for name, value in settings.items():
            setattr(model.generation_config, name, value)
        parts = parts_of(batch_of(texts(family), pad_to=8))
        (part,) = with_generated_targets(parts, model, policy, Clock(), accelerator_for("fp32"))
        found.append(part.batch.inputs["labels"])
    assert torch.equal(*found)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_of_its_own_ends_at_any_end(family):
    model, batch = writer(family, seed=3), batch_of(texts(family))
    alone = [written_alone(family, model, row) for row in range(8)]
    other = next(text[2] for text in alone if len(text) > 3)
    policy = replace(GREEDY, end_ids=(END, other))
    (written,) = with_generated_targets(parts_of(batch), model, policy, Clock(), accelerator_for("fp32"))
    found = written.batch
    for row, text in enumerate(alone):
        labels = found.inputs["labels"][row]
        wanted = text[: text.index(other) + 1] if other in text else text
        assert labels[labels != -100].tolist() == wanted
    assert any(other in text[:-1] for text in alone)


def test_a_dropped_start_is_no_row_of_what_was_written():
    model, batches = writer("t5", seed=3), [batch_of(texts("t5"), rows) for rows in (range(5), range(5, 8))]
    policy = replace(GREEDY, drop_start=True)
    parts = parts_of(*batches)
    written = with_generated_targets(parts, model, policy, Clock(), accelerator_for("fp32"))
    counts = [
        [int(n) - 1 for n in (batch.inputs["labels"] != -100).sum(1)] for batch in (part.batch for part in written)
    ]
    whole = sum(map(sum, counts))
    assert [part.share["decoder tokens"] for part in written] == [sum(some) / whole for some in counts]


@pytest.mark.parametrize("family", FAMILIES)
def test_shares_are_of_what_was_written(family):
    model, data = writer(family, seed=3), texts(family)
    parts = own_texts(family, model, batch_of(data, range(5)), batch_of(data, range(5, 8)))
    counts = [int((batch.inputs["labels"] != -100).sum()) for batch in (part.batch for part in parts)]
    assert [part.share["targets"] for part in parts] == [count / sum(counts) for count in counts]
    for rows in ("decoder tokens", "causal pairs"):
        assert sum(part.share[rows] for part in parts) == pytest.approx(1)
    assert all(part.share["examples"] == 0.5 for part in parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_own_texts_are_scored_by_the_teacher_and_are_no_labels(family):
    model, teacher = writer(family, seed=3), writer(family, seed=5)
    lesson = Lesson(methods.build("layer-forward", {}), model, teacher)
    (part,) = own_texts(family, model, batch_of(texts(family)))
    batch = part.batch
    with_labels = lesson.losses(batch).terms
    plan = lesson.objective.plan(_clock())
    shown = {"plain": lesson.teacher(batch.inputs, plan.teacher["plain"])}
    terms = lesson.objective(plan, replace(part, share=_whole()), shown).terms
    assert "hard" not in terms and terms.keys() == with_labels.keys() - {"hard"}
    for name, term in terms.items():
        assert term.item() == pytest.approx(with_labels[name].item(), rel=1e-6)


def _clock() -> Clock:
    return Clock(stage_step=1, stage_steps=2)


def _whole():
    from tiny_writers import Whole

    return Whole()


def test_the_mode_and_the_settings_of_the_student_stay():
    model = writer("t5", seed=3).train()
    before = model.generation_config.to_dict()
    own_texts("t5", model, batch_of(texts("t5")))
    assert model.training and model.generation_config.to_dict() == before


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_how_often_is_a_function_of_the_clock(rate):
    policy = OnPolicy(rate=rate, max_new_tokens=4, end_ids=(END,), pad_id=PAD)
    drawn = [is_on_policy(policy, Clock(step=step)) for step in range(500)]
    assert drawn == [is_on_policy(policy, Clock(step=step)) for step in range(500)]
    assert abs(np.mean(drawn) - rate) < 0.07
