"""A narrower student is a slice of its source: of what counts, where the rest of the source does nothing.

Small models are grown: every dimension twice, so that norms give what they gave, and only one of the two is read;
heads whose values are zero; inner neurons that are. The grown model must compute what the small one does, and its
student, cut to what counts, must be the small model again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.models.attention_heads import Kept, strongest
from stillery.models.axes import axes_of, head_size, place_of
from stillery.models.family import layout_of, sizes, stacks_of
from stillery.models.generator_student import build_generator, generator_sizes
from stillery.models.importance import Importance, measure
from stillery.models.load_model import Loaded
from stillery.models.student import Student, StudentShape, build, student_sizes
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

READERS = ("bert", "roberta", "camembert", "xlm-roberta", "distilbert", "mpnet", "electra", "albert", "deberta-v2",
           "modernbert",
           "deberta-v2-conv")  # fmt: skip
# Not Gemma, whose embeddings grow with the width, nor OLMo 2, which norms all heads together: growing changes both.
WRITERS = ("t5", "t5-gated", "mt5", "bart", "gpt2", "llama", "qwen2", "qwen3", "phi", "smollm3")
GIVEN = {"query", "key", "value", "fused", "inner", "inner and gate", "cross query", "cross key", "cross value"}
"""What a map gives when it reads the width."""


def student_of(source: Loaded, importance: Importance | None, init: str = "even", **shape: Any) -> Student:
    """A student of four layers, or as many as asked for, of half the width, or of the width asked for."""
    asked = StudentShape(**{"layers": 4, "width": 16} | shape)
    config = source.model.config
    if config.model_type in WRITERS:
        asked = dataclasses.replace(asked, layers=None) if asked.layers == 4 else asked
        wanted = generator_sizes(asked, config, source.name)
        return build_generator(source=source, wanted=wanted, init=init, importance=importance)
    wanted = student_sizes(asked, config, source.name)
    return build(teacher=source, source=source, wanted=wanted, init=init, importance=importance)


def places(count: int, of: int, seed: int) -> Tensor:
    """Some places, in ascending order."""
    return torch.randperm(of, generator=torch.Generator().manual_seed(seed))[:count].sort().values


class Grown:
    """A model in the shape of a larger one that computes what the small one does."""

    def __init__(self, small: PreTrainedModel, large: PreTrainedModel) -> None:
        self.small, self.model, self.config = small, large, large.config
        width = sizes(small.config).width
        # Each pair of neighbours is one dimension twice, of which now the first and now the second is read.
        self.width = torch.arange(width) * 2 + places(width, 2 * width, 1) % 2
        self.twin = torch.arange(width) * 2 + 1 - self.width % 2
        prefix = "" if large.base_model is large else f"{large.base_model_prefix}."
        ours = small.state_dict()
        with torch.no_grad():
            for key, tensor in large.state_dict().items():
                tensor.copy_(self._grown(key.removeprefix(prefix), ours[key], tensor))

    def kept(self, stack: str, layer: int, cross: bool) -> Kept:
        """The heads of a layer that do something."""
        wanted, has = sizes(self.small.config, stack), sizes(self.config, stack)
        layout = layout_of(self.config, stack)
        seed = 7 if layout.bias or layout.head_bias else 10 * layer + 2
        groups, kept_groups = has.key_heads or has.heads, wanted.key_heads or wanted.heads
        chosen, each = places(kept_groups, groups, seed + 5 * cross), has.heads // groups
        heads = (chosen[:, None] * each + torch.arange(each)).flatten()
        size = head_size(self.model, stack)
        return Kept(heads=heads, groups=chosen, size=size, total=size * has.heads)

    def inner(self, stack: str, layer: int) -> Tensor:
        """The inner neurons that do something."""
        return places(sizes(self.small.config, stack).inner, sizes(self.config, stack).inner, 3 + layer)

    def _grown(self, name: str, ours: Tensor, large: Tensor) -> Tensor:
        axes = axes_of(self.model, name, ours.dim())
        for axis, what in enumerate(axes):
            if ours.shape[axis] == large.shape[axis]:
                continue
            assert what is not None, name
            shape = [large.shape[one] if one <= axis else ours.shape[one] for one in range(ours.dim())]
            grown = torch.zeros(shape)
            out = f".{layout_of(self.config, place_of(self.config, name)[0]).from_inner}." in name
            reads = (bool(GIVEN & set(axes)) and not out) or (axes[:2] == ("width", "width") and axis == 1)
            if what in ("attended", "cross attended", "heads") or (what == "inner" and out):
                # What the silent heads and neurons would do is anything.
                grown.normal_()
            ours = grown.index_copy(axis, self._places(what, name), ours)
            if what == "width" and not reads:
                ours = ours.index_copy(axis, self.twin, ours.index_select(axis, self.width))
        return ours

    def _places(self, what: str, name: str) -> Tensor:
        stack, layer = place_of(self.config, name)
        if what == "width":
            return self.width
        if what == "inner":
            return self.inner(stack, layer)
        if what == "inner and gate":
            inner = self.inner(stack, layer)
            return torch.cat([inner, inner + sizes(self.config, stack).inner])
        cross = what.startswith("cross ")
        found = self.kept(stack, layer, cross).of(what.removeprefix("cross "))
        assert found is not None
        return found

    def importance(self, inputs: dict[str, Tensor]) -> Importance:
        """As measured; of two twins the one that is read counts."""
        found = measure(self.model, [inputs])
        torch.testing.assert_close(found.width[self.width], found.width[self.twin])
        return dataclasses.replace(found, width=torch.zeros(len(found.width)).index_fill(0, self.width, 1.0))


def noisy(model: PreTrainedModel) -> PreTrainedModel:
    """The model with no weight as it starts."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def inputs_for(model: PreTrainedModel, times: int = 1) -> dict[str, Tensor]:
    """Three texts of 9, 5 and 2 tokens, or so many times three."""
    mask = (torch.arange(9) < torch.tensor([[9], [5], [2]] * times)).long()
    ids = torch.randint(5, 99, mask.shape, generator=torch.Generator().manual_seed(3))
    inputs = {"input_ids": ids * mask + int(model.config.pad_token_id or 0) * (1 - mask), "attention_mask": mask}
    if model.config.is_encoder_decoder:
        inputs["labels"] = torch.where(mask.flip(0).bool(), ids.flip(1), -100)[:, :6]
    return inputs


def states(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """All states of real tokens, by stack, [layers, tokens, width]."""
    depths = {stack: sizes(model.config, stack).layers for stack in stacks_of(model.config)}
    wanted: Any = {stack: Wanted(hidden=range(depth + 1)) for stack, depth in depths.items()}
    with torch.no_grad():
        shown = trace(model, inputs, wanted)
    return {
        stack: torch.stack([shown.stack(stack).hidden[layer] for layer in range(depth + 1)])[
            :, shown.stack(stack).mask.bool()
        ]
        for stack, depth in depths.items()
    }


@pytest.fixture(scope="module")
def source_of(make: Any, make_writer: Any, tokenizer: Any) -> Any:
    """A model of a family to make a student of."""

    def load(name: str, **options: Any) -> Loaded:
        if name in WRITERS:
            # BART multiplies its embeddings by the root of its width, which growing changes.
            options = options | ({"scale_embedding": False} if name == "bart" else {})
            return Loaded(model=make_writer(name, **options), tokenizer=tokenizer, name=name, missing=frozenset())
        # An ELECTRA as wide as its embeddings has no projection of them.
        options = options | ({"embedding_size": 8} if name == "electra" and "embedding_size" not in options else {})
        return Loaded(model=make(name, **options), tokenizer=tokenizer, name=name, missing=frozenset())

    return load


@pytest.mark.parametrize("name", [*READERS, *WRITERS])
def test_a_model_that_was_grown_is_cut_back_to_what_it_was(name: str, source_of: Any) -> None:
    source = source_of(name)
    inputs = inputs_for(source.model)
    small = noisy(student_of(source, None, "random").model)
    grown = Grown(small, source.model)
    ours, theirs = states(small, inputs), states(source.model, inputs)
    for stack, some in ours.items():
        torch.testing.assert_close(theirs[stack][..., grown.width], some, rtol=1e-4, atol=1e-4)
    # Many texts: an inner neuron that does something may be silent on few.
    student = student_of(source, grown.importance(inputs_for(source.model, 12)))
    expected = small.state_dict()
    for key, tensor in student.model.state_dict().items():
        new = key.startswith(("classifier.out_proj", "classifier.weight", "classifier.bias"))
        assert torch.equal(tensor, expected[key]) != new, key
    for stack, some in states(student.model.eval(), inputs).items():
        torch.testing.assert_close(some, ours[stack])
    line = student.origin[0]
    assert "each cut to the 16 of 32 dimensions" in line and "that are most active on 36 training texts" in line
    assert "heads" in line and "inner neurons" in line
    assert ("embeddings (whole)" in line) == (name in ("electra", "albert"))
    assert not any("another shape" in one or "differently" in one for one in student.origin)


@pytest.mark.parametrize("name", ["t5-gated", "llama", "qwen3"])
@torch.no_grad()
def test_fewer_heads_at_the_same_width_lose_nothing_that_did_anything(name: str, source_of: Any) -> None:
    source = source_of(name)
    model, inputs = source.model, inputs_for(source.model)
    for stack in stacks_of(model.config):
        layout, size = layout_of(model.config, stack), head_size(model, stack)
        has = sizes(model.config, stack)
        for layer in model.base_model.get_submodule(layout.layers).children():
            for maps in (layout.projections, layout.cross):
                if maps is not None:
                    # The first group of heads that share values is silent.
                    layer.get_submodule(maps[2]).weight[: size * (has.key_heads or has.heads) // 2].zero_()
    student = student_of(source, measure(model, [inputs]), width=None, heads=2)
    assert "cut to the 2 of 4 heads that are most active" in student.origin[0]
    ours, theirs = trace(student.model.eval(), inputs).logits, trace(model, inputs).logits
    if name == "t5-gated":
        ours, theirs = ours[inputs["labels"] != -100], theirs[inputs["labels"] != -100]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
def test_smaller_heads_keep_what_is_strongest_inside_each(name: str, source_of: Any) -> None:
    source = source_of(name)
    model, inputs = source.model, inputs_for(source.model)
    stack, size = stacks_of(model.config)[0], head_size(model, stacks_of(model.config)[0])
    layout = layout_of(model.config, stack)
    rows = {}
    for layer, module in enumerate(model.base_model.get_submodule(layout.layers).children()):
        maps = [module.get_submodule(path).weight.detach() for path in layout.projections]
        parts = list(maps[0].T.chunk(3)) if layout.fused else maps
        rows[layer] = [part.reshape(4, size, 32) for part in parts]
    found = measure(model, [inputs])
    student = student_of(source, found, heads=4)
    assert "4 of 4 heads (4 of 8 dimensions in each)" in student.origin[0]
    width, values = strongest(found.width, 16), found.heads[stack].values
    for layer, module in enumerate(student.model.base_model.get_submodule(layout.layers).children()):
        maps = [module.get_submodule(path).weight.detach() for path in layout.projections]
        parts = list(maps[0].T.chunk(3)) if layout.fused else maps
        query, key, value = rows[layer]
        strength = query.double().norm(dim=-1) * key.double().norm(dim=-1)
        for head in range(4):
            matched, carried = strongest(strength[head], 4), strongest(values[layer, head], 4)
            expected = [query[head][matched], key[head][matched], value[head][carried]]
            for part, full in zip(parts, expected, strict=True):
                assert torch.equal(part.reshape(4, 4, 16)[head], full[:, width])


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("bert", {"heads": 1}, "layers (heads of 16 against heads of 8 in bert)"),
        ("bert", {"heads": 8}, "layers (8 heads against 4 in bert)"),
        ("mpnet", {"heads": 1}, "layers (heads of 16 against heads of 8 in mpnet)"),
        ("qwen2", {"heads": 4}, "decoder layers (heads of 4 with rotary positions against heads of 8 in qwen2)"),
        ("bart", {"heads": 4}, "decoder layers (4 heads against 2 in bart)"),
    ],
)
def test_layers_whose_heads_cannot_be_chosen_are_new_and_say_so(
    name: str, shape: dict[str, int], why: str, source_of: Any
) -> None:
    source = source_of(name)
    student = student_of(source, measure(source.model, [inputs_for(source.model)]), **shape)
    copied, new = student.origin[:2]
    assert new.startswith("new (random): ") and why in new
    cut = "embeddings" in copied and "cut to the 16 of 32 dimensions that are most active" in copied
    assert name == "bart" or (cut and "layers" not in copied)
    with torch.no_grad():
        assert trace(student.model.eval(), inputs_for(source.model)).logits.isfinite().all()


def test_groups_of_heads_that_share_keys_stay_together(source_of: Any) -> None:
    source = source_of("qwen2", num_attention_heads=8, num_key_value_heads=2)
    found = measure(source.model, [inputs_for(source.model)])
    scores = torch.tensor([[9.0, 1, 1, 1, 4, 4, 5, 4]]).expand(4, 8)
    heads = {"decoder": dataclasses.replace(found.heads["decoder"], heads=scores)}
    student = student_of(source, dataclasses.replace(found, heads=heads))
    ours, theirs = (one.model.model.layers[1].self_attn for one in (student, source))
    width = strongest(found.width, 16)
    # The strongest head of all is in the group that is weaker together.
    assert torch.equal(ours.q_proj.weight, theirs.q_proj.weight[16:, width])
    assert torch.equal(ours.k_proj.weight, theirs.k_proj.weight[4:, width])
    assert torch.equal(ours.q_proj.bias, theirs.q_proj.bias[16:])


def test_one_group_keeps_its_strongest_heads(source_of: Any) -> None:
    source = source_of("qwen2", num_key_value_heads=1)
    found = measure(source.model, [inputs_for(source.model)])
    scores = torch.tensor([[1.0, 3, 2, 4]]).expand(4, 4)
    heads = {"decoder": dataclasses.replace(found.heads["decoder"], heads=scores)}
    student = student_of(source, dataclasses.replace(found, heads=heads))
    ours, theirs = (one.model.model.layers[0].self_attn for one in (student, source))
    width, kept = strongest(found.width, 16), torch.cat([torch.arange(8, 16), torch.arange(24, 32)])
    assert torch.equal(ours.q_proj.weight, theirs.q_proj.weight[kept][:, width])
    assert torch.equal(ours.k_proj.weight, theirs.k_proj.weight[:, width])


@torch.no_grad()
def test_an_electra_without_a_projection_gets_one_that_picks(source_of: Any) -> None:
    source = source_of("electra", embedding_size=32)
    inputs = inputs_for(source.model)
    found = measure(source.model, [inputs])
    student = student_of(source, found)
    assert "embedding projection that picks what is kept (whole)" in student.origin[0]
    assert "embeddings (whole)" in student.origin[0]
    ours, theirs = trace(student.model.eval(), inputs, [0]), trace(source.model, inputs, [0])
    width = strongest(found.width, 16)
    torch.testing.assert_close(ours.encoder.hidden[0], theirs.encoder.hidden[0][..., width])


def test_an_electra_as_narrow_as_its_embeddings_says_what_is_left_out(source_of: Any) -> None:
    source = source_of("electra", embedding_size=16)
    student = student_of(source, measure(source.model, [inputs_for(source.model)]))
    assert "the projection of electra's embeddings is left out: they are as wide as the student" in student.origin


@pytest.mark.parametrize("name", ["t5", "bart", "gpt2", "llama"])
def test_embeddings_alone_are_cut(name: str, source_of: Any) -> None:
    source = source_of(name)
    found = measure(source.model, [inputs_for(source.model)])
    wanted = generator_sizes(StudentShape(layers=2, width=16), source.model.config, name)
    student = build_generator(source=source, wanted=wanted, init="random", embeddings=True, importance=found)
    width = strongest(found.width, 16)
    theirs = source.model.get_input_embeddings().weight
    assert torch.equal(student.model.get_input_embeddings().weight, theirs[:, width])
    assert "cut to the 16 of 32 dimensions that are most active on 3 training texts" in student.origin[0]
    assert student.origin[1].startswith("new (random): ") and student.layers == {}


@pytest.mark.parametrize("name", ["bert", "mpnet", "t5", "gpt2"])
def test_a_wider_student_copies_nothing_of_another_shape(name: str, source_of: Any) -> None:
    source = source_of(name)
    found = measure(source.model, [inputs_for(source.model)])
    wide, plain = (student_of(source, one, width=48, layers=2) for one in (found, None))
    assert wide.origin == plain.origin and "(of another shape)" in wide.origin[-1]


def test_important_layers_are_copied_and_told(source_of: Any) -> None:
    source = source_of("bert")
    found = measure(source.model, [inputs_for(source.model)])
    found = dataclasses.replace(found, influence={"encoder": (0.4, 0.1, 0.2, 0.3)})
    student = student_of(source, found, "important", width=None, layers=2)
    assert student.layers == {"encoder": [1, 4]} and "layers 1, 4 as 1..2" in student.origin[0]
    line = "block influence of the layers on 3 training texts: 1 0.400, 2 0.100, 3 0.200, 4 0.300"
    assert student.origin[-1] == line and "cut" not in student.origin[0]
    writer = source_of("t5")
    found = measure(writer.model, [inputs_for(writer.model)])
    found = dataclasses.replace(found, influence={"encoder": (0.4, 0.1, 0.2, 0.3), "decoder": (0.1, 0.2, 0.3)})
    student = student_of(writer, found, "important", layers=2)
    assert student.layers == {"encoder": [1, 4], "decoder": [2, 3]}
    assert (
        student.origin[-1] == "block influence of the decoder's layers on 3 training texts: 1 0.100, 2 0.200, 3 0.300"
    )
    with pytest.raises(ValueError, match="measured first"):
        student_of(source, None, "important")
