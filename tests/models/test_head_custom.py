"""Heads that no plain model can hold: they load with stillery, and with nothing else by accident."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.describe import describe
from stillery.models.export import export
from stillery.models.family import sizes
from stillery.models.head import choose_head, load_student, reuse_head
from stillery.models.load_model import Loaded, load_classifier, load_encoder
from stillery.models.projected_head import Head, exported_parameters, folded, head_of, is_custom
from stillery.models.student import build
from stillery.models.trace import trace

# Width of the student, what is reused, and the projector; the teacher's width is 32.
CUSTOM = [(16, "pooler+linear", "linear"), (16, "pooler+linear", "mlp"), (32, "pooler+linear", "mlp"),
          (16, "linear", "mlp"), (32, "linear", "mlp")]  # fmt: skip


def custom(make: Any, tokenizer: Any, name: str, width: int, reuse: str, projector: str) -> Any:
    teacher = Loaded(model=make(name, vocab_size=30522), tokenizer=tokenizer, name="t", missing=frozenset())
    wanted = dataclasses.replace(sizes(teacher.model.config), layers=2, width=width)
    model = build(teacher=teacher, source=teacher, wanted=wanted, init="first").model.eval()
    head = choose_head(teacher.model.config, width, teacher, reuse=reuse, projector=projector, allow_custom=True)
    assert head == Head(reuse=reuse, projector=projector, width=32)
    said = reuse_head(model, teacher, head, freeze=True)
    assert f"new {projector} projector {width} -> 32" in said and "import load_student" in said
    assert is_custom(model) and head_of(model) == head and folded(model) is model
    return model


@pytest.fixture
def saved(make: Any, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> Path:
    export(custom(make, tokenizer, "bert", 32, "linear", "mlp"), tokenizer, tmp_path / "student", "card")
    return tmp_path / "student"


def test_every_case_of_every_family_loads_with_stillery_and_not_without(
    teacher: Loaded, make: Any, batch: dict[str, Tensor], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    name = teacher.name.removeprefix("teacher-")
    for number, case in enumerate(CUSTOM):
        model, folder = custom(make, tokenizer, name, *case), tmp_path / str(number)
        export(model, tokenizer, folder, "card")
        with torch.no_grad():
            expected = trace(model, batch).logits
        again = load_student(folder)
        with torch.no_grad():
            assert torch.equal(trace(again, batch).logits, expected)
        assert not again.training and head_of(again) == head_of(model)
        assert sum(tensor.numel() for tensor in again.parameters()) == exported_parameters(model)
        for plain in (AutoModelForSequenceClassification, AutoModel, type(model)):
            with pytest.raises(OSError, match=r"no file named model\.safetensors"):
                plain.from_pretrained(folder, ignore_mismatched_sizes=True)


def test_the_folder_says_what_it_is(saved: Path) -> None:
    assert {"config.json", "head.json", "student.safetensors", "README.md", "tokenizer.json"} <= {
        file.name for file in saved.iterdir()
    }
    described = json.loads((saved / "head.json").read_text())
    assert (described["reuse"], described["projector"], described["width"]) == ("linear", "mlp", 32)
    assert "from stillery.models.head import load_student" in described["load"]
    config = AutoConfig.from_pretrained(saved)
    assert config.architectures == ["StilleryCustomHead"] and config.model_type == "bert"


def test_a_custom_student_is_a_teacher_and_a_source(
    saved: Path, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    loaded = load_classifier(str(saved))
    assert not loaded.missing
    assert describe(str(saved))["parameters"] == sum(tensor.numel() for tensor in loaded.model.parameters())
    # Of a custom head the linear classifier is reused, and the rest refused.
    head = choose_head(loaded.model.config, 32, loaded)
    assert head == Head(reuse="linear", projector=None, width=32)
    with pytest.raises(UserError, match="is a custom one, its pooler does not stand alone; use --reuse linear"):
        choose_head(loaded.model.config, 32, loaded, reuse="pooler+linear")
    for source in (loaded, load_encoder(str(saved))):
        made = build(teacher=loaded, source=source, wanted=sizes(loaded.model.config), init="even")
        assert "layers 1, 2 as 1..2" in made.origin[0]
        reuse_head(made.model, loaded, head, freeze=True)
        assert torch.equal(made.model.classifier.weight, loaded.model.classifier.linear.weight)
        export(made.model, tokenizer, tmp_path / "next", "card")
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "next")
        assert plain.config.architectures == ["BertForSequenceClassification"]


def test_other_labels_give_a_new_classifier(saved: Path) -> None:
    loaded = load_classifier(str(saved), labels=5)
    assert loaded.missing == {"classifier.linear.weight", "classifier.linear.bias"}
    assert loaded.model.classifier.linear.out_features == 5


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "head.json").write_text("{"), "its head.json does not describe a head"),
        (lambda folder: (folder / "head.json").write_text('{"reuse": "all"}'), "its head.json does not describe"),
        (lambda folder: (folder / "head.json").unlink(), "it has a custom head and cannot be read from here"),
        (lambda folder: (folder / "student.safetensors").unlink(), "no student.safetensors in this folder"),
        (lambda folder: (folder / "student.safetensors").write_bytes(b"no"), "truncated or damaged"),
        (lambda folder: _without(folder, "classifier.projector.0.weight"), "no trained classification head"),
        (lambda folder: _without(folder, "bert.encoder.layer.0.output.dense.weight"), "not those of its config.json"),
    ],
)
def test_a_damaged_folder_is_one_line(saved: Path, damage: Any, words: str) -> None:
    damage(saved)
    with pytest.raises(UserError) as caught:
        load_classifier(str(saved))
    assert len(caught.value.lines) == 1 and words in caught.value.lines[0]


def _without(folder: Path, name: str) -> None:
    tensors = load_file(folder / "student.safetensors")
    del tensors[name]
    save_file(tensors, folder / "student.safetensors")


def test_its_weights_are_as_readable_as_the_files_beside_them(saved: Path) -> None:
    assert len({file.stat().st_mode for file in saved.iterdir()}) == 1
