"""A classifier of tokens of every family: loaded, cut, given the teacher's head, traced and exported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from stillery.errors import UserError
from stillery.models.describe import describe
from stillery.models.export import export
from stillery.models.family import sizes
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.head import choose_head, load_student, reuse_head
from stillery.models.head_type import SEQUENCE, TOKEN, head_in, head_type
from stillery.models.importance import measure
from stillery.models.load_model import (
    Loaded,
    fingerprint,
    load_classifier,
    load_encoder,
    load_head,
    load_token_classifier,
)
from stillery.models.projected_head import Head, exported_parameters, final_linear, folded, head_of, is_custom
from stillery.models.similarity import layer_means
from stillery.models.student import StudentShape, build, build_from_checkpoint, student_sizes
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
VOCABULARY = 30522


@pytest.fixture(scope="session")
def token_model(make_tagger: Any) -> Callable[..., Any]:
    """Build a classifier of tokens with the tags above."""
    labels = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: index for index, tag in enumerate(TAGS)}}
    return partial(make_tagger, **labels)


@pytest.fixture(scope="session")
def tagger(teacher: Loaded, token_model: Callable[..., Any]) -> Loaded:
    """A classifier of tokens of each kind: 4 layers x 32, 4 heads, 5 tags; no test changes it."""
    name = teacher.name.removeprefix("teacher-")
    return Loaded(model=token_model(name), tokenizer=teacher.tokenizer, name=f"tagger-{name}", missing=frozenset())


@pytest.fixture
def inputs(tagger: Loaded) -> dict[str, Tensor]:
    """Three inputs of 9, 5 and 2 tokens, padded, two segments, and a tag for each token."""
    lengths = torch.tensor([[9], [5], [2]])
    mask = (torch.arange(9) < lengths).long()
    random = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 99, (3, 9), generator=random)
    pad = tagger.model.config.pad_token_id
    return {
        "input_ids": ids * mask + pad * (1 - mask),
        "attention_mask": mask,
        "token_type_ids": (torch.arange(9) >= lengths // 2).long() * mask,
        "labels": torch.randint(0, 5, (3, 9), generator=random) * mask - 100 * (1 - mask),
    }


@pytest.fixture
def folder(tagger: Loaded, tmp_path: Path) -> Callable[..., str]:
    """Save a model of the tagger's kind, in another vocabulary size, with MiniLM's tokenizer."""

    def save(model: Any, name: str = "checkpoint") -> str:
        model.save_pretrained(tmp_path / name)
        tagger.tokenizer.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return save


def kind_of(tagger: Loaded) -> str:
    return tagger.name.removeprefix("tagger-")


def plainly(model: Any, inputs: dict[str, Tensor]) -> Any:
    """What transformers itself gives, without labels."""
    segments = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    names = ("input_ids", "attention_mask", *(("token_type_ids",) if segments else ()))
    return model(**{name: inputs[name] for name in names}, output_hidden_states=True)


def test_the_head_is_known_by_its_class(tagger: Loaded, make: Any) -> None:
    assert head_type(tagger.model) is TOKEN and head_type(make(kind_of(tagger))) is SEQUENCE
    assert head_in([type(tagger.model).__name__]) is TOKEN and head_in(["BertForMaskedLM"]) is None
    assert head_in(None) is None
    assert final_linear(tagger.model) is tagger.model.classifier


@torch.no_grad()
def test_a_trace_is_what_transformers_gives(tagger: Loaded, inputs: dict[str, Tensor]) -> None:
    """Every token has its logits: no layer depends on the first token alone."""
    expected = plainly(tagger.model, inputs)
    for layers in ((), (2,), range(5)):
        shown = trace(tagger.model, inputs, layers)
        assert torch.equal(shown.logits, expected.logits) and shown.logits.shape == (3, 9, 5)
        for layer in layers:
            real = inputs["attention_mask"].bool()
            assert torch.equal(shown.stack().hidden[layer][real], expected.hidden_states[layer][real])
    shown = trace(tagger.model, inputs, Wanted(query=[1, 4], key=[1, 4], value=[4]))
    assert torch.equal(shown.logits, expected.logits)
    assert shown.stack().query[4].shape == shown.stack().value[4].shape == (3, 9, 32)
    assert torch.equal(shown.targets, inputs["labels"])
    assert trace(tagger.model, {name: one for name, one in inputs.items() if name != "labels"}).targets is None
    assert trace(tagger.model, inputs, [2], logits=False).logits.shape == (3, 0)


def test_a_token_has_no_feature_of_a_text(tagger: Loaded, inputs: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="only a classifier of texts has a feature"):
        trace(tagger.model, inputs, Wanted(feature=[4]))


def test_a_classifier_of_texts_still_has_no_targets(make: Any, inputs: dict[str, Tensor], tagger: Loaded) -> None:
    assert trace(make(kind_of(tagger)), inputs).targets is None


@torch.no_grad()
def test_a_trained_one_is_loaded_as_it_was_saved(
    tagger: Loaded, inputs: dict[str, Tensor], folder: Callable[..., str], token_model: Callable[..., Any]
) -> None:
    model = token_model(kind_of(tagger), vocab_size=VOCABULARY)
    name = folder(model)
    for loaded in (load_token_classifier(name), load_head(name), load_token_classifier(name, tags=TAGS)):
        assert loaded.missing == frozenset() and list(loaded.model.config.id2label.values()) == list(TAGS)
        assert torch.equal(trace(loaded.model, inputs).logits, trace(model, inputs).logits)
        assert fingerprint(loaded) == weights_fingerprint(model)
    assert describe(name)["labels"] == list(TAGS)
    with pytest.raises(UserError, match="no trained classification head"):
        load_classifier(name)


def test_other_tags_get_a_new_head(tagger: Loaded, folder: Callable[..., str], token_model: Callable[..., Any]) -> None:
    """As many tags of other names, or in another order, are not what the trained head predicts."""
    name = folder(token_model(kind_of(tagger), vocab_size=VOCABULARY))
    for tags in (("O", "B-LOC", "I-LOC", "B-PER", "I-PER"), ("O", "NOUN")):
        torch.manual_seed(5)
        loaded = load_token_classifier(name, tags=tags)
        assert loaded.missing == {"classifier.weight", "classifier.bias"}
        assert tuple(loaded.model.config.id2label[index] for index in range(len(tags))) == tags
        assert loaded.model.config.label2id == {tag: index for index, tag in enumerate(tags)}
        assert loaded.model.classifier.weight.shape == (len(tags), 32) and not loaded.model.classifier.bias.any()
        torch.manual_seed(5)
        again = load_token_classifier(name, tags=tags)
        assert torch.equal(loaded.model.classifier.weight, again.model.classifier.weight)


@pytest.mark.parametrize("head", ["none", "texts"])
def test_a_base_gets_a_new_head(
    tagger: Loaded, folder: Callable[..., str], head: str, token_model: Callable[..., Any]
) -> None:
    """Also where a classifier of as many texts has weights of the same name."""
    config = token_model(kind_of(tagger), vocab_size=VOCABULARY).config
    config.architectures = None
    auto = AutoModel if head == "none" else AutoModelForSequenceClassification
    model = auto.from_config(config)
    name = folder(model)
    loaded = load_token_classifier(name, tags=TAGS)
    missing = {"classifier.weight", "classifier.bias"}
    if config.model_type == "modernbert" and head == "none":
        missing |= {"head.dense.weight", "head.dense.bias", "head.norm.weight"}
    assert loaded.missing == missing
    held = dict(model.state_dict())
    if "classifier.weight" in held:
        assert not torch.equal(loaded.model.classifier.weight, held["classifier.weight"])
    with pytest.raises(UserError, match=r"no trained token classification head; .*fine-tune it first"):
        load_token_classifier(name)


@torch.no_grad()
@pytest.mark.parametrize("layers", [4, 2])
def test_a_student_copies_all_but_the_classifier(tagger: Loaded, inputs: dict[str, Tensor], layers: int) -> None:
    wanted = dataclasses.replace(sizes(tagger.model.config), layers=layers)
    if tagger.model.config.model_type == "albert":
        wanted = dataclasses.replace(wanted, layers=4)
    made = build(teacher=tagger, source=tagger, wanted=wanted, init="even")
    student = made.model.eval()
    assert head_type(student) is TOKEN and student.config.id2label == tagger.model.config.id2label
    assert made.origin[0].startswith(f"copied from {tagger.name}: ") and "pooler" not in " ".join(made.origin)
    assert made.origin[1] == "new (random): classifier"
    assert not torch.equal(student.classifier.weight, tagger.model.classifier.weight)
    said = reuse_head(student, tagger, freeze=True)
    assert said == "classifier replaced by the teacher's, frozen"
    assert torch.equal(student.classifier.weight, tagger.model.classifier.weight)
    assert not student.classifier.weight.requires_grad
    if wanted.layers == 4:
        assert torch.equal(trace(student, inputs).logits, trace(tagger.model, inputs).logits)


def test_a_narrower_student_reuses_the_classifier_behind_a_projector(
    tagger: Loaded, inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    """Its logits are those of the plain checkpoint it folds into, which transformers loads by itself."""
    wanted = student_sizes(StudentShape(width=16, heads=2), tagger.model.config, tagger.name)
    importance = measure(tagger.model, [inputs])
    student = build(teacher=tagger, source=tagger, wanted=wanted, init="even", importance=importance).model.eval()
    head = choose_head(student.config, 16, tagger)
    assert head == Head(reuse="linear", projector="linear", width=32)
    said = reuse_head(student, tagger, head, freeze=True)
    assert said == (
        "classifier replaced by the teacher's, frozen, behind a new linear projector 16 -> 32 that follows the "
        "student's own last layer; the projector is folded into the head on export"
    )
    assert head_of(student) == head and not is_custom(student)
    trace(student, inputs).logits.square().sum().backward()
    assert student.classifier.projector.weight.grad.any() and student.classifier.linear.weight.grad is None
    with torch.no_grad():
        expected = trace(student, inputs).logits
        torch.testing.assert_close(trace(folded(student), inputs).logits, expected, rtol=0, atol=1e-5)
        export(student, tagger.tokenizer, tmp_path / "student", "card")
        plain = AutoModelForTokenClassification.from_pretrained(tmp_path / "student").eval()
        torch.testing.assert_close(plainly(plain, inputs).logits, expected, rtol=0, atol=1e-5)
    assert exported_parameters(student) == sum(one.numel() for one in plain.parameters())
    assert list(plain.config.id2label.values()) == list(TAGS)


def test_a_head_that_does_not_fold_comes_back_from_its_folder(
    tagger: Loaded,
    inputs: dict[str, Tensor],
    tmp_path: Path,
    folder: Callable[..., str],
    token_model: Callable[..., Any],
) -> None:
    teacher = load_token_classifier(folder(token_model(kind_of(tagger), vocab_size=VOCABULARY)))
    wanted = student_sizes(StudentShape(width=16, heads=2), teacher.model.config, teacher.name)
    student = build(teacher=teacher, source=teacher, wanted=wanted, init="random").model.eval()
    head = choose_head(student.config, 16, teacher, projector="mlp", allow_custom=True)
    reuse_head(student, teacher, head, freeze=False)
    assert is_custom(student)
    export(student, teacher.tokenizer, tmp_path / "custom", "card")
    again = load_student(tmp_path / "custom")
    with torch.no_grad():
        assert torch.equal(trace(again, inputs).logits, trace(student, inputs).logits)
    assert type(load_encoder(str(tmp_path / "custom")).model) is type(student.base_model)
    with pytest.raises(UserError, match="custom head for token classification, which is not what is needed here"):
        load_classifier(str(tmp_path / "custom"))


def test_no_pooler_is_reused(tagger: Loaded) -> None:
    with pytest.raises(UserError) as caught:
        choose_head(tagger.model.config, 32, tagger, reuse="pooler+linear")
    assert caught.value.lines == (
        "--reuse pooler+linear: a model that classifies tokens has no pooler; use --reuse linear, or --head fresh",
    )
    assert choose_head(tagger.model.config, 32, tagger) == Head(reuse="linear", projector=None, width=32)


@torch.no_grad()
def test_a_student_of_a_checkpoint_of_any_head(
    tagger: Loaded, make: Any, inputs: dict[str, Tensor], folder: Callable[..., str], token_model: Callable[..., Any]
) -> None:
    """A base, or a classifier of texts: the layers are its own, the head is a new one for the teacher's tags."""
    teacher = load_token_classifier(folder(token_model(kind_of(tagger), vocab_size=VOCABULARY), "teacher"))
    base = make(kind_of(tagger), vocab_size=VOCABULARY)
    other = load_encoder(folder(base, "base"), words=True)
    made = build_from_checkpoint(teacher=teacher, checkpoint=other, layers=None)
    own = f"prediction head (not in {other.name}), " if tagger.model.config.model_type == "modernbert" else ""
    assert f"new (random): {own}classifier" in made.origin
    assert head_type(made.model) is TOKEN and list(made.model.config.id2label.values()) == list(TAGS)
    ours, theirs = (trace(model.eval(), inputs, range(5)) for model in (made.model, base))
    assert ours.logits.shape == (3, 9, 5)
    for layer in range(4):
        assert torch.equal(ours.stack().hidden[layer], theirs.stack().hidden[layer])


def test_a_plain_student_is_exported(tagger: Loaded, inputs: dict[str, Tensor], tmp_path: Path) -> None:
    student = build(teacher=tagger, source=tagger, wanted=sizes(tagger.model.config), init="even").model.eval()
    export(student, tagger.tokenizer, tmp_path / "student", "card")
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "student").eval()
    assert type(again) is type(student) and again.config.architectures == [type(student).__name__]
    with torch.no_grad():
        assert torch.equal(plainly(again, inputs).logits, trace(student, inputs).logits)


def test_what_matters_most_is_measured(tagger: Loaded, inputs: dict[str, Tensor]) -> None:
    """Padding changes nothing, labels among the inputs neither."""
    found = measure(tagger.model, [inputs])
    assert found.texts == 3 and len(found.influence["encoder"]) == 4
    single = measure(
        tagger.model,
        [{name: one[row : row + 1, :size] for name, one in inputs.items()} for row, size in enumerate((9, 5, 2))],
    )
    torch.testing.assert_close(single.width, found.width, rtol=1e-4, atol=1e-5)
    assert layer_means(tagger.model, [inputs])["encoder"].shape == (5, 3, 32)
