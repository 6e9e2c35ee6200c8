"""A smaller model that generates text holds exactly what its origin says, stack by stack."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.family import Sizes, layer_modules, layout_of, sizes, stacks_of
from stillery.models.generator_student import (
    build_generator,
    check_same_outputs,
    choose_stack_layers,
    freeze_embeddings,
    generator_from_checkpoint,
    generator_sizes,
)
from stillery.models.importance import measure
from stillery.models.load_model import Loaded
from stillery.models.option_words import LAYER_CHOICES
from stillery.models.student import Student, StudentShape
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

BIAS = "relative_attention_bias"


def student_of(
    source: Loaded, init: str = "even", chosen: Any = None, seed: int = 0, importance: Any = None, **shape: Any
) -> Student:
    wanted = generator_sizes(StudentShape(**{"layers": 2} | shape), source.model.config, source.name)
    return build_generator(source=source, wanted=wanted, init=init, chosen=chosen, seed=seed, importance=importance)


def loaded(model: Any, tokenizer: Any = None, name: str = "teacher") -> Loaded:
    return Loaded(model=model, tokenizer=tokenizer, name=name, missing=frozenset())


@pytest.mark.parametrize(
    ("init", "chosen", "encoder", "decoder"),
    [
        ("even", None, [2, 4], [2, 4]),
        ("first", None, [1, 2], [1, 2]),
        ("last", None, [3, 4], [3, 4]),
        ("even", {"encoder": [4, 1], "decoder": [3, 3]}, [4, 1], [3, 3]),
    ],
)
def test_layers_are_copied_tensor_by_tensor(
    writer: Loaded, texts: dict[str, Tensor], init: str, chosen: Any, encoder: list[int], decoder: list[int]
) -> None:
    config, theirs = writer.model.config, writer.model.state_dict()
    both = len(stacks_of(config)) == 2
    if both and chosen is None:  # of 3 layers
        decoder = {"even": [2, 3], "first": [1, 2], "last": [2, 3]}[init]
    student = student_of(writer, init, chosen)
    layers = {"encoder": encoder, "decoder": decoder}
    assert all(sizes(student.model.config, stack).layers == 2 for stack in stacks_of(config))
    prefix = "" if writer.model.base_model is writer.model else f"{writer.model.base_model_prefix}."
    for name, tensor in student.model.state_dict().items():
        source = name
        for stack in stacks_of(config):
            path = f"{prefix}{layout_of(config, stack).layers}."
            if name.startswith(path):
                index, rest = name.removeprefix(path).split(".", 1)
                source = f"{path}{0 if BIAS in rest else layers[stack][int(index)] - 1}.{rest}"
        assert torch.equal(tensor, theirs[source]), name
    (line,) = student.origin
    assert line.startswith(f"copied from {writer.name}: ")
    assert f"decoder layers {', '.join(map(str, decoder))}" in line and "embeddings" in line and "head" in line
    assert ("encoder layers" in line) == both
    with torch.no_grad():
        assert trace(student.model.eval(), texts).logits.isfinite().all()


@torch.no_grad()
def test_a_student_of_all_layers_is_the_teacher(writer: Loaded, texts: dict[str, Tensor]) -> None:
    student = student_of(writer, layers=None)
    ours, theirs = trace(student.model.eval(), texts), trace(writer.model, texts)
    assert torch.equal(ours.logits, theirs.logits)


def test_the_head_is_tied_as_the_teachers_is(writer: Loaded) -> None:
    theirs, weights = writer.model, writer.model.state_dict()
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    assert tied == (writer.name.removeprefix("writer-") in ("t5", "mt5", "bart", "gpt2", "qwen2", "gemma", "smollm3"))
    for init in ("even", "random"):
        model = student_of(writer, init).model
        assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
        same = torch.equal(model.state_dict()["lm_head.weight"], weights["lm_head.weight"])
        assert same == (init == "even")


def test_stacks_have_their_own_depths(make_writer: Any) -> None:
    for name in ("t5", "bart"):
        teacher = loaded(make_writer(name))
        student = student_of(teacher, layers=None, encoder_layers=3, decoder_layers=1)
        assert [sizes(student.model.config, stack).layers for stack in ("encoder", "decoder")] == [3, 1]
        assert [len(layer_modules(student.model, stack)) for stack in ("encoder", "decoder")] == [3, 1]
        assert "encoder layers 2, 3, 4" in student.origin[0] and "decoder layers 3" in student.origin[0]
        alone = student_of(teacher, layers=None, decoder_layers=2)
        assert [sizes(alone.model.config, stack).layers for stack in ("encoder", "decoder")] == [4, 2]


def test_layers_are_chosen_by_the_forward_map(make_writer: Any) -> None:
    config = make_writer("t5", num_layers=8, num_decoder_layers=12, d_model=8, d_kv=2, d_ff=8).config
    wanted = generator_sizes(StudentShape(layers=3), config, "t")
    assert choose_stack_layers("even", wanted, config) == {"encoder": [3, 6, 8], "decoder": [4, 8, 12]}
    released = {"encoder": [1, 4, 8], "decoder": [1, 7, 12]}
    assert choose_stack_layers("even", wanted, config, released) == released
    with pytest.raises(UserError) as caught:
        choose_stack_layers("even", wanted, config, {"encoder": [1, 9, 2], "decoder": [1, 2]})
    assert list(caught.value.lines) == [
        "layers 1,9,2: the encoder has layers 1 to 8",
        "layers 1,2: the student's decoder has 3 layers, this names 2",
    ]


@torch.no_grad()
def test_layers_keep_the_kind_they_had(make_writer: Any) -> None:
    windows = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
    for name in ("qwen2", "qwen3"):
        teacher = loaded(make_writer(name, **windows))
        full, sliding = "full_attention", "sliding_attention"
        assert teacher.model.config.layer_types == [full, full, sliding, sliding]
        for chosen, types in (([1, 4], [full, sliding]), ([3, 4], [sliding, sliding]), ([4, 1], [sliding, full])):
            student = student_of(teacher, chosen={"decoder": chosen})
            assert student.model.config.layer_types == types
        assert student_of(teacher, "random", layers=4).model.config.layer_types == [full, full, sliding, sliding]


def test_a_students_layers_are_never_left_out(make_writer: Any) -> None:
    teacher = loaded(make_writer("bart", encoder_layerdrop=0.9, decoder_layerdrop=0.9))
    model = student_of(teacher).model.train()
    ids = torch.tensor([[5, 6, 7]])
    shown = trace(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids},
                  {stack: Wanted(hidden=range(3)) for stack in ("encoder", "decoder")})  # fmt: skip
    assert set(shown.encoder.hidden) == set(shown.decoder.hidden) == {0, 1, 2}
    assert teacher.model.config.encoder_layerdrop == 0.9


@torch.no_grad()
def test_random_students_follow_the_seed_alone(writer: Loaded) -> None:
    state = torch.get_rng_state()
    first, same, other = (student_of(writer, "random", seed=seed).model.state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    assert student_of(writer, "random").origin == ("all weights new (random)",)


WIDTHS = {
    "t5": {"encoder": Sizes(layers=2, width=16, heads=2, inner=24, head_size=6),
           "decoder": Sizes(layers=2, width=16, heads=2, inner=24, head_size=6)},
    "bart": {"encoder": Sizes(layers=2, width=16, heads=2, inner=24),
             "decoder": Sizes(layers=2, width=16, heads=1, inner=20)},
    "gpt2": {"decoder": Sizes(layers=2, width=16, heads=2, inner=64)},
    "llama": {"decoder": Sizes(layers=2, width=16, heads=2, inner=24, head_size=6, key_heads=1)},
    "qwen2": {"decoder": Sizes(layers=2, width=16, heads=2, inner=24, key_heads=1)},
    "qwen3": {"decoder": Sizes(layers=2, width=16, heads=2, inner=24, head_size=10, key_heads=1)},
}  # fmt: skip


@torch.no_grad()
def test_narrower_students(writer: Loaded, texts: dict[str, Tensor]) -> None:
    config = writer.model.config
    alike = {"mt5": "t5", "gemma": "llama", "mistral": "llama"}
    alike |= dict.fromkeys(("olmo", "olmo2", "phi", "smollm3"), "qwen2")
    expected = WIDTHS[alike.get(config.model_type, config.model_type)]
    assert generator_sizes(StudentShape(layers=2, width=16), config, "t") == expected
    student = student_of(writer, width=16)
    assert {stack: sizes(student.model.config, stack) for stack in expected} == expected
    assert "layers (of another shape)" in student.origin[-1] and "copied" not in student.origin[0]
    shown = trace(student.model.eval(), texts, {"decoder": Wanted(hidden=[0, 2])})
    assert shown.decoder.hidden[2].shape[-1] == 16 and shown.logits.shape[-1] == 99


@torch.no_grad()
def test_other_heads_at_the_same_width(make_writer: Any) -> None:
    for name in ("bart", "gpt2", "qwen2"):
        teacher = loaded(make_writer(name))
        student = student_of(teacher, heads=8)
        assert sizes(student.model.config).heads == 8
        assert any("8 heads in the decoder instead of" in line for line in student.origin)
        assert "decoder layers" in student.origin[0]


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("t5", {"layers": 5}, "--layers 5: t has only 4 layers in its encoder, a student cannot be deeper"),
        ("t5", {"layers": 5}, "--layers 5: t has only 3 layers in its decoder, a student cannot be deeper"),
        ("bart", {"encoder_layers": 0}, "--encoder-layers 0: a student needs at least one layer"),
        ("bart", {"layers": 2, "width": 18, "heads": 4}, "width 18 is not divisible by 4 heads"),
        ("gpt2", {"layers": 9}, "--layers 9: t has only 4 layers, a student cannot be deeper"),
        ("gpt2", {"encoder_layers": 2}, "--encoder-layers: t has one stack of layers; use --layers"),
        ("llama", {"layers": 2, "width": 30, "heads": 4}, "width 30 is not divisible by 4 heads"),
        ("qwen2", {"layers": 2, "width": 12, "heads": 4}, "heads of 3: rotary positions need an even size"),
        ("qwen2", {"layers": 2, "width": 28, "heads": 7}, "7 heads cannot share 3 heads of keys evenly"),
    ],
)
def test_sizes_that_cannot_be(make_writer: Any, name: str, shape: dict[str, int], said: str) -> None:
    with pytest.raises(UserError) as caught:
        generator_sizes(StudentShape(**shape), make_writer(name).config, "t")
    assert any(said in line for line in caught.value.lines)


def test_a_classifier_is_no_source(make: Any, make_writer: Any) -> None:
    wanted = generator_sizes(StudentShape(layers=2), make_writer("gpt2").config, "t")
    with pytest.raises(UserError, match="a bert model is a classifier, here a model that generates text is needed"):
        build_generator(source=loaded(make("bert")), wanted=wanted, init="even")


def test_how_to_generate_is_carried_over(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model, importance = writer.model, measure(writer.model, [texts])
    before = dataclasses.replace(writer)
    model.generation_config.max_new_tokens, model.generation_config.num_beams = 7, 3
    try:
        for init in (*LAYER_CHOICES, "random"):
            found = student_of(before, init, importance=importance).model.generation_config
            assert (found.max_new_tokens, found.num_beams) == (7, 3) and found is not model.generation_config
    finally:
        model.generation_config.max_new_tokens, model.generation_config.num_beams = None, None


def test_frozen_embeddings_do_not_move_and_nothing_else_stays(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model = student_of(writer).model
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert freeze_embeddings(model) == (
        "token embeddings frozen" + (", and the head that is tied to them" if tied else "")
    )
    trace(model, texts).logits.square().sum().backward()
    still = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    words = {"t5": "shared.weight", "mt5": "shared.weight", "bart": "model.shared.weight",
             "gpt2": "transformer.wte.weight"}.get(model.config.model_type, "model.embed_tokens.weight")  # fmt: skip
    assert still == {words}


def test_another_checkpoint_as_student(make_writer: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    teacher = loaded(make_writer("qwen2"), tokenizer)
    small = loaded(make_writer("llama", num_hidden_layers=2), tokenizer, "small")
    student = generator_from_checkpoint(teacher=teacher, checkpoint=small)
    assert student.model is small.model and student.origin == ("all weights from small",)
    check_same_outputs(teacher, small)
    refused = [
        (make_writer("qwen2", num_hidden_layers=5), "small has 5 layers in its decoder, the teacher only 4"),
        (make_writer("qwen2", vocab_size=98), "small predicts 98 tokens, teacher 99"),
        (make_writer("t5"), "small is a model of the kind encoder-decoder, teacher of the kind decoder"),
    ]
    for model, said in refused:
        with pytest.raises(UserError, match=said):
            generator_from_checkpoint(teacher=teacher, checkpoint=loaded(model, tokenizer, "small"))
