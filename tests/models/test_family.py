"""What is known of a family is true of its models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config

from stillery.faults import Fault
from stillery.models.family import FAMILIES, family_of, longest_input
from stillery.models.load import Loaded


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize(
    "name", ["albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta"]
)
@torch.no_grad()
def test_the_longest_input_runs_and_a_longer_one_does_not(make: Any, name: str, pad: int) -> None:
    model = make(name, pad_token_id=pad)
    longest = longest_input(model.config)
    ids = torch.full((2, longest + 1), 7)
    assert model(ids[:, :longest]).logits.isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):
        model(ids)


def test_relative_positions_have_no_end_but_a_stated_one(make: Any) -> None:
    assert longest_input(make("deberta-v2").config) == 20


def test_every_tensor_is_in_one_place(teacher: Loaded, kind: Any) -> None:
    model, family = teacher.model, family_of(teacher.model.config, teacher.name)
    prefix = f"{model.base_model_prefix}."
    for name in model.state_dict():
        head = name.startswith((kind.pooler, kind.classifier))
        assert family.in_body(name.removeprefix(prefix)) != head, name
    assert len(family.layer_modules(model)) == 4


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(Fault, match="somewhere: model type 'gpt2' is not supported") as caught:
        family_of(GPT2Config(), "somewhere")
    assert all(name in caught.value.lines[0] for name in FAMILIES)
