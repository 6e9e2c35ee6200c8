"""A student that starts as another checkpoint, of the teacher's family or of another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.load_model import Loaded, check_same_tokenizer, load_classifier, load_encoder
from stillery.models.student import build_from_checkpoint
from stillery.models.trace import trace

VOCABULARY = 30522


@pytest.fixture
def teacher_folder(make: Any, save: Any) -> Path:
    labels = {0: "negative", 1: "positive"}
    return save("bert", make("bert", vocab_size=VOCABULARY, id2label=labels, label2id={"negative": 0, "positive": 1}))


@pytest.fixture
def distilbert(make: Any, save: Any) -> Path:
    """A DistilBERT without a head, as it comes from pretraining."""
    return save("distilbert", make("distilbert", vocab_size=VOCABULARY, n_layers=2, dim=24).base_model)


def test_bert_teaches_distilbert(teacher_folder: Path, distilbert: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    teacher, checkpoint = load_classifier(str(teacher_folder)), load_encoder(str(distilbert))
    student = build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=2)
    assert student.model.config.model_type == "distilbert"
    assert student.model.config.id2label == {0: "negative", 1: "positive"}
    assert student.origin == (
        f"copied from {distilbert}: embeddings; layers 1, 2 as 1..2",
        f"new (random): pooler (not in {distilbert}), classifier",
    )
    inputs = dict(tokenizer(["one fine film", "no"], ["or", "two"], padding=True, return_tensors="pt"))
    assert inputs["token_type_ids"].any()
    with torch.no_grad():
        shown = trace(student.model.eval(), inputs, [0, 1, 2])
        taught = trace(teacher.model, inputs, [4])
        inputs.pop("token_type_ids")
        expected = AutoModel.from_pretrained(distilbert)(**inputs).last_hidden_state
    assert torch.equal(shown.encoder.hidden[2], expected)
    assert shown.logits.shape == taught.logits.shape
    assert shown.encoder.hidden[2].shape[:2] == taught.encoder.hidden[4].shape[:2]


def test_a_checkpoint_of_each_family_starts_as_it_is(
    teacher: Loaded, make: Any, tokenizer: PreTrainedTokenizerBase, batch: dict[str, Any]
) -> None:
    model = make(teacher.name.removeprefix("teacher-"), seed=5).base_model
    checkpoint = Loaded(model=model, tokenizer=tokenizer, name="checkpoint", missing=frozenset())
    student = build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=None)
    with torch.no_grad():
        accepted = {name: value for name, value in batch.items() if name != "token_type_ids"}
        shown = trace(student.model.eval(), accepted, [4]).encoder.hidden[4]
        assert torch.equal(shown, model(**accepted).last_hidden_state)
    assert ("pooler" in student.origin[0]) == (teacher.model.config.model_type in ("bert", "albert"))


def test_other_depths_are_refused(teacher_folder: Path, distilbert: Path) -> None:
    teacher, checkpoint = load_classifier(str(teacher_folder)), load_encoder(str(distilbert))
    with pytest.raises(UserError, match=r"--layers 3: .* has 2; leave --layers out") as caught:
        build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=3)
    assert len(caught.value.lines) == 1


def test_a_checkpoint_deeper_than_the_teacher_is_refused(teacher_folder: Path, make: Any, save: Any) -> None:
    deep = save("deep", make("distilbert", vocab_size=VOCABULARY, n_layers=5).base_model)
    teacher, checkpoint = load_classifier(str(teacher_folder)), load_encoder(str(deep))
    with pytest.raises(UserError, match="has 5 layers, the teacher only 4: a student cannot be deeper"):
        build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=None)


def test_another_vocabulary_gives_the_student_a_tokenizer_of_its_own(
    teacher_folder: Path, make: Any, save: Any
) -> None:
    other = save("other", make("distilbert", vocab_size=VOCABULARY + 1).base_model)
    checkpoint = load_encoder(str(other))
    checkpoint.tokenizer.add_tokens(["stillery"])
    checkpoint.tokenizer.save_pretrained(other)
    teacher, checkpoint = load_classifier(str(teacher_folder)), load_encoder(str(other))
    student = build_from_checkpoint(teacher=teacher, checkpoint=checkpoint, layers=None)
    assert student.tokenizer is checkpoint.tokenizer and student.model.config.vocab_size == VOCABULARY + 1
    assert student.difference is not None and "(30523 tokens) differ in 1 entries" in student.difference
    with pytest.raises(UserError, match=r"\(30522 tokens\) and .* \(30523 tokens\) differ in 1 entries") as caught:
        check_same_tokenizer(teacher, checkpoint)
    assert len(caught.value.lines) == 1


def test_the_same_vocabulary_split_differently_is_refused(teacher_folder: Path, distilbert: Path) -> None:
    path = distilbert / "tokenizer.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    described["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(described), encoding="utf-8")
    config = json.loads((distilbert / "tokenizer_config.json").read_text(encoding="utf-8"))
    (distilbert / "tokenizer_config.json").write_text(json.dumps(config | {"do_lower_case": False}), encoding="utf-8")
    teacher, checkpoint = load_classifier(str(teacher_folder)), load_encoder(str(distilbert))
    with pytest.raises(UserError, match="split text differently"):
        check_same_tokenizer(teacher, checkpoint)
