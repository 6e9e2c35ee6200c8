"""What is known of a family is true of its models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import XLNetConfig

from stillery.errors import UserError
from stillery.models.family import (
    FAMILIES,
    Sizes,
    family_of,
    kind_of,
    longest_input,
    scores_are_plain,
    sizes,
    stacks_of,
)
from stillery.models.load_model import Loaded
from stillery.models.stack_layout import GENERATORS


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


def test_relative_positions_have_no_end(make: Any) -> None:
    assert longest_input(make("deberta-v2").config) == 20


def test_every_tensor_is_in_one_place(teacher: Loaded, kind: Any) -> None:
    model, family = teacher.model, family_of(teacher.model.config, teacher.name)
    prefix = f"{model.base_model_prefix}."
    for name in model.state_dict():
        head = name.startswith((kind.pooler, kind.classifier, "head."))
        assert family.in_body(name.removeprefix(prefix)) != head, name
    assert len(family.layer_modules(model)) == 4


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="somewhere: model type 'xlnet' is not supported") as caught:
        family_of(XLNetConfig(), "somewhere")
    assert all(name in caught.value.lines[0] for name in FAMILIES)
    with pytest.raises(UserError, match="somewhere: model type 'xlnet' is not supported") as caught:
        kind_of(XLNetConfig(), "somewhere")
    assert all(name in caught.value.lines[0] for name in (*FAMILIES, *GENERATORS))


@pytest.mark.parametrize("name", list(GENERATORS))
def test_a_model_that_writes_text_is_no_classifier(make_writer: Any, name: str) -> None:
    config = make_writer(name).config
    stacks = ("encoder", "decoder") if name in ("t5", "mt5", "bart") else ("decoder",)
    assert stacks_of(config) == stacks
    assert kind_of(config) == "-".join(stacks)
    with pytest.raises(UserError, match=f"here: a {name} model generates text, here a classifier is needed"):
        family_of(config, "here")


def test_sizes_are_told_by_stack(make_writer: Any, make: Any) -> None:
    t5, bart, gpt2, llama = (make_writer(name).config for name in ("t5", "bart", "gpt2", "llama"))
    assert sizes(t5) == sizes(t5, "encoder") == Sizes(layers=4, width=32, heads=4, inner=48, head_size=6)
    assert sizes(t5, "decoder") == Sizes(layers=3, width=32, heads=4, inner=48, head_size=6)
    assert sizes(bart, "decoder") == Sizes(layers=3, width=32, heads=2, inner=40)
    assert sizes(gpt2) == sizes(gpt2, "decoder") == Sizes(layers=4, width=32, heads=4, inner=128)
    assert sizes(llama) == Sizes(layers=4, width=32, heads=4, inner=48, head_size=6, key_heads=2)
    assert stacks_of(make("bert").config) == ("encoder",) and kind_of(make("bert").config) == "encoder"


@torch.no_grad()
def test_the_longest_text_of_a_writer(make_writer: Any) -> None:
    ids = torch.full((1, 21), 7)
    for name in ("bart", "gpt2"):
        model = make_writer(name)
        assert longest_input(model.config) == 20
        asked = {"decoder_input_ids": ids[:, :3]} if name == "bart" else {}
        assert model(ids[:, :20], **asked).logits.isfinite().all()
        with pytest.raises((IndexError, RuntimeError)):
            model(ids, **asked)
    assert longest_input(make_writer("t5").config) > 10**9
    assert longest_input(make_writer("t5", n_positions=512).config) > 10**9


def test_scores_of_layers_that_look_through_a_window_are_not_plain(make_writer: Any, make: Any) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
    assert not scores_are_plain(make_writer("qwen3", **windows).config)
    assert not scores_are_plain(make_writer("mistral", sliding_window=3).config)
    assert not scores_are_plain(make_writer("olmo", clip_qkv=1.0).config)
    assert not scores_are_plain(make_writer("gpt2", scale_attn_by_inverse_layer_idx=True).config)
    assert not scores_are_plain(make("deberta-v2").config)
    assert all(scores_are_plain(make_writer(name).config, "decoder") for name in GENERATORS)
    assert scores_are_plain(make("bert").config)
