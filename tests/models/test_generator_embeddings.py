"""The embeddings of a smaller model that generates text: tied to its head or not, copied alone or with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from stillery.errors import UserError
from stillery.models.family import layer_modules, stacks_of
from stillery.models.generator_student import build_generator, generator_sizes, is_tied
from stillery.models.load_model import Loaded
from stillery.models.student import Student, StudentShape
from stillery.models.trace import trace


def student_of(source: Loaded, init: str = "even", **options: Any) -> Student:
    wanted = generator_sizes(StudentShape(layers=2), source.model.config, source.name)
    return build_generator(source=source, wanted=wanted, init=init, **options)


@torch.no_grad()
@pytest.mark.parametrize("tie", [True, False])
def test_a_head_is_tied_as_asked(writer: Loaded, texts: dict[str, Tensor], tie: bool, tmp_path: Path) -> None:
    theirs, before, stated = writer.model, is_tied(writer.model), writer.model.config.tie_word_embeddings
    if len(stacks_of(theirs.config)) == 2 and tie != before:
        with pytest.raises(UserError, match=rf"--{'' if tie else 'no-'}tie-embeddings: the head of .* leave it out"):
            student_of(writer, tie=tie)
        return
    student = student_of(writer, tie=tie)
    model = student.model.eval()
    assert is_tied(model) == tie and is_tied(theirs) == before and theirs.config.tie_word_embeddings == stated
    assert torch.equal(model.get_input_embeddings().weight, theirs.get_input_embeddings().weight)
    head = theirs.get_input_embeddings() if tie else theirs.get_output_embeddings()
    assert torch.equal(model.get_output_embeddings().weight, head.weight)
    assert ("tied to the token embeddings" in student.origin[-1]) == (tie != before)
    model.save_pretrained(tmp_path)
    auto = AutoModelForSeq2SeqLM if theirs.config.is_encoder_decoder else AutoModelForCausalLM
    again = auto.from_pretrained(tmp_path).eval()
    assert is_tied(again) == tie
    assert torch.allclose(trace(again, texts).logits, trace(model, texts).logits, atol=1e-5)


@torch.no_grad()
def test_embeddings_alone(writer: Loaded, texts: dict[str, Tensor]) -> None:
    student, theirs = student_of(writer, "random", embeddings=True, seed=5), writer.model
    bare = student_of(writer, "random", seed=5).model
    assert torch.equal(student.model.get_input_embeddings().weight, theirs.get_input_embeddings().weight)
    tied = is_tied(theirs)
    assert (student.model.get_output_embeddings().weight is student.model.get_input_embeddings().weight) == tied
    assert ("and the head that is tied to them" in student.origin[0]) == tied
    assert ("head" in student.origin[1]) != tied
    for stack in stacks_of(theirs.config):
        for ours, same in zip(layer_modules(student.model, stack), layer_modules(bare, stack), strict=True):
            assert all(torch.equal(one, other) for one, other in zip(ours.parameters(), same.parameters(), strict=True))
    assert trace(student.model.eval(), texts).logits.isfinite().all()


@torch.no_grad()
def test_a_random_student_begins_near_a_guess(writer: Loaded, texts: dict[str, Tensor]) -> None:
    if writer.model.config.model_type == "mt5":
        pytest.skip("transformers gives an mT5 with a tied head no scale; real checkpoints have a head of their own")
    student = student_of(writer, "random", seed=1).model.eval()
    shown = trace(student, {"labels": texts["input_ids"], **texts})
    scored = shown.targets != -100
    loss = torch.nn.functional.cross_entropy(shown.logits[scored], shown.targets[scored])
    # Evenly spread over 99 tokens it would be 4.6.
    assert loss < 6.5
