"""What matters in a model: layers that do nothing, silent heads and neurons, whatever the padding and order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

from stillery.models.family import layer_modules, layout_of, sizes, stacks_of
from stillery.models.importance import Importance, measure
from stillery.models.load_model import Loaded
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

HEAD_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm")


@torch.no_grad()
def make_idle(model: PreTrainedModel, stack: str, layer: int) -> None:
    """Let a layer add nothing to its states, and its own norms change nothing but their scale."""
    layout, module = layout_of(model.config, stack), layer_modules(model, stack)[layer - 1]
    for path in (layout.attended, layout.cross_attended, layout.from_inner):
        for parameter in module.get_submodule(path).parameters() if path else ():
            parameter.zero_()
    width = sizes(model.config, stack).width
    for name, parameter in module.named_parameters():
        if "norm" in name.lower() or "ln_" in name:
            assert parameter.shape == (width,) or any(norm in name for norm in HEAD_NORMS)
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)


def busy(model: PreTrainedModel) -> PreTrainedModel:
    """The model with all its maps of a size that makes layers differ from one another."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)
    return model


def assert_alike(one: Importance, other: Importance) -> None:
    """Equal up to rounding, in everything that is measured."""
    assert one.texts == other.texts
    for stack, influence in one.influence.items():
        assert influence == pytest.approx(other.influence[stack], rel=1e-5, abs=1e-7)
        torch.testing.assert_close(one.inner[stack], other.inner[stack], rtol=1e-5, atol=1e-7)
        for ours, theirs in ((one.heads, other.heads), (one.cross, other.cross)):
            if stack in ours:
                torch.testing.assert_close(ours[stack].heads, theirs[stack].heads, rtol=1e-5, atol=1e-7)
                torch.testing.assert_close(ours[stack].values, theirs[stack].values, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(one.width, other.width, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layer", [2, 4])
def test_a_classifiers_layer_that_does_nothing_is_dropped(
    make: Any, teacher: Loaded, batch: dict[str, Tensor], layer: int
) -> None:
    name = teacher.name.removeprefix("teacher-")
    if name == "albert":
        pytest.skip("its layers are one module")
    model = busy(make(name, seed=4))
    make_idle(model, "encoder", layer)
    found = measure(model, [batch])
    influence = found.influence["encoder"]
    # Alone among classifiers ModernBERT adds to a residual stream, to which an idle layer adds nothing at all.
    assert len(influence) == 4 and all(value > (-1e-6 if name == "modernbert" else 0) for value in influence)
    assert min(influence) == influence[layer - 1] < 0.5 * sorted(influence)[1]
    assert found.layers("encoder", 3) == [number for number in (1, 2, 3, 4) if number != layer]


@pytest.mark.parametrize("layer", [1, 3])
def test_a_writers_layer_that_does_nothing_is_dropped_from_its_stack(
    make_writer: Any, writer: Loaded, texts: dict[str, Tensor], layer: int
) -> None:
    name = writer.name.removeprefix("writer-")
    for stack in stacks_of(writer.model.config):
        model = busy(make_writer(name, seed=4))
        make_idle(model, stack, layer)
        found = measure(model, [texts])
        depth = sizes(model.config, stack).layers
        assert {one: len(some) for one, some in found.influence.items()} == {
            one: sizes(model.config, one).layers for one in stacks_of(model.config)
        }
        least = min(found.influence[stack])
        assert least == found.influence[stack][layer - 1]
        if name != "bart":
            # These add to a residual stream: a layer that adds nothing changes nothing.
            assert least == pytest.approx(0, abs=1e-6)
        assert found.layers(stack, depth - 1) == [number for number in range(1, depth + 1) if number != layer]


def test_influence_is_the_states_own(writer: Loaded, texts: dict[str, Tensor]) -> None:
    model, found = writer.model, measure(writer.model, [texts])
    for stack in stacks_of(model.config):
        depth = sizes(model.config, stack).layers
        wanted: Any = {stack: Wanted(hidden=range(depth + 1), raw_last=True)}
        with torch.no_grad():
            shown = trace(model, texts, wanted).stack(stack)
        for layer in range(1, depth + 1):
            before, after = (shown.hidden[number][shown.mask.bool()] for number in (layer - 1, layer))
            cosine = (before * after).sum(-1) / before.norm(dim=-1) / after.norm(dim=-1)
            assert found.influence[stack][layer - 1] == pytest.approx(1 - float(cosine.mean()), abs=1e-5)


def test_an_albert_has_an_influence_for_each_application(make: Any) -> None:
    ids = torch.arange(5, 14)[None]
    found = measure(make("albert"), [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}])
    assert len(found.influence["encoder"]) == 4
    assert found.heads["encoder"].heads.shape == (1, 4) and found.inner["encoder"].shape == (1, 48)


READERS = ("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "mpnet", "electra", "albert", "deberta-v2",
           "modernbert",
           "deberta-v2-conv")  # fmt: skip
WRITERS = ("t5", "t5-gated", "mt5", "bart", "gpt2", "llama", "qwen2", "qwen3")


@pytest.fixture(scope="module", params=[*READERS, *WRITERS])
def shown(request: pytest.FixtureRequest, make: Any, make_writer: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """A model of every family, and three texts of 9, 5 and 2 tokens."""
    model = make_writer(request.param) if request.param in WRITERS else make(request.param)
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    ids = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(3))
    inputs = {"input_ids": ids * mask + int(model.config.pad_token_id or 0) * (1 - mask), "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs["labels"] = torch.where(mask.flip(0).bool(), ids.flip(1), -100)[:, :6]
    return model, inputs


def _padded(inputs: Mapping[str, Tensor], pad: int, more: int) -> dict[str, Tensor]:
    fill = {"input_ids": pad, "labels": -100}
    return {
        name: torch.cat([tensor, tensor.new_full((len(tensor), more), fill.get(name, 0))], dim=1)
        for name, tensor in inputs.items()
    }


def _rows(inputs: Mapping[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    return {name: tensor[rows] for name, tensor in inputs.items()}


def test_padding_order_and_batches_change_nothing(shown: tuple[PreTrainedModel, dict[str, Tensor]]) -> None:
    model, inputs = shown
    plain = measure(model, [inputs])
    pad = int(model.config.pad_token_id or 0)
    assert_alike(plain, measure(model, [_padded(inputs, pad, 3)]))
    assert_alike(plain, measure(model, [_rows(inputs, [2, 0, 1])]))
    assert_alike(plain, measure(model, [_rows(inputs, [1]), _rows(inputs, [2, 0])]))


def test_a_model_is_left_as_it_was(shown: tuple[PreTrainedModel, dict[str, Tensor]]) -> None:
    model, inputs = shown
    before, state = measure(model, [inputs]), torch.get_rng_state()
    model.train()
    try:
        # Dropout would show.
        assert_alike(before, measure(model, [inputs]))
        assert model.training
    finally:
        model.eval()
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(IndexError):
        measure(model, [inputs | {"input_ids": inputs["input_ids"] + 10_000}])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_what_is_silent_scores_nothing(shown: tuple[PreTrainedModel, dict[str, Tensor]]) -> None:
    model, inputs = shown
    found = measure(model, [inputs])
    for stack in stacks_of(model.config):
        has = sizes(model.config, stack)
        assert found.heads[stack].heads.shape[1] == has.heads and found.inner[stack].shape[1] == has.inner
        assert (found.heads[stack].heads > 0).all()
        # The length of a head's output is at least that of its largest number, and at most the sum of all.
        values = found.heads[stack].values
        assert (found.heads[stack].heads <= values.sum(-1) + 1e-6).all()
        assert (found.heads[stack].heads >= values.max(-1).values - 1e-6).all()
        assert (stack in found.cross) == (layout_of(model.config, stack).cross is not None)
    assert found.width.shape == (sizes(model.config).width,) and (found.width > 0).all()


def test_a_model_without_a_head_is_measured_alike(teacher: Loaded, batch: dict[str, Tensor], save: Any) -> None:
    model = AutoModel.from_pretrained(save("model", teacher.model)).eval()
    assert_alike(measure(teacher.model, [batch]), measure(model, [batch]))


def test_of_equal_layers_the_earlier_stay() -> None:
    empty: dict[str, Any] = {"texts": 1, "width": torch.ones(1), "inner": {}, "heads": {}, "cross": {}}
    found = Importance(influence={"decoder": (0.2, 0.1, 0.2, 0.3, 0.2)}, **empty)
    assert [found.layers("decoder", count) for count in (1, 2, 3, 5)] == [[4], [1, 4], [1, 3, 4], [1, 2, 3, 4, 5]]
    assert dataclasses.replace(found, influence={"decoder": (0.1, 0.2)}).layers("decoder", 1) == [2]


def test_nothing_is_measured_on_no_texts(make: Any) -> None:
    with pytest.raises(ValueError, match="without texts"):
        measure(make("bert"), [])
