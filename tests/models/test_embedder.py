"""Sentence embedders: pooling, padding, the files of sentence-transformers, and what follows a narrower encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.embedder import Dense, Layout, SentenceEmbedder, arrange, pooled
from stillery.models.load_embedder import load_embedder, with_pooling
from stillery.models.trace import trace

SHAPE = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 40, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0,
}  # fmt: skip


def encoder(kind: str = "bert", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **(SHAPE | changes))
    return AutoModel.from_config(config)


def embedder(layout: Layout | None = None, dense: tuple[Dense, ...] = (), **changes: Any) -> SentenceEmbedder:
    return SentenceEmbedder(encoder(**changes), layout or Layout(), dense).eval()


def batch(length: int) -> dict[str, torch.Tensor]:
    """Texts of 3 and 5 tokens, padded to a length."""
    ids, mask = torch.zeros(2, length, dtype=torch.long), torch.zeros(2, length, dtype=torch.long)
    for row, size in enumerate((3, 5)):
        ids[row, :size] = torch.arange(7, 7 + size)
        mask[row, :size] = 1
    return {"input_ids": ids, "attention_mask": mask}


def test_pooling_over_real_tokens() -> None:
    states = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pooled(states, mask, "cls").tolist() == [[1, -4]]
    assert pooled(states, mask, "max").tolist() == [[3, -2]]
    assert pooled(states, mask, "mean").tolist() == [[2, -3]]
    torch.testing.assert_close(pooled(states, mask, "mean_sqrt_len_tokens"), torch.tensor([[4.0, -6.0]]) / 2**0.5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert", "deberta-v2", "albert", "electra"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_padding_changes_no_embedding(kind: str, pooling: str) -> None:
    changes = {"embedding_size": 16} if kind in ("albert", "electra") else {}
    model = embedder(Layout(pooling=(pooling,), normalise=True), kind=kind, **changes)
    with torch.no_grad():
        short, long = (trace(model, batch(length)).logits for length in (5, 16))
    torch.testing.assert_close(short, long, atol=2e-6, rtol=0)
    torch.testing.assert_close(short.norm(dim=-1), torch.ones(2))


@pytest.mark.parametrize("layers", [(), (2,), (1, 2)])
def test_a_trace_keeps_the_embedding_whatever_layers_are_wanted(layers: tuple[int, ...]) -> None:
    """A classifier computes its last layer for the first token alone; an embedding reads all tokens."""
    model = embedder()
    with torch.no_grad():
        plain = model(**batch(6)).logits
        torch.testing.assert_close(trace(model, batch(6), layers).logits, plain)


def test_a_narrower_student_ends_in_a_dense_module() -> None:
    tanh = Dense(16, 6, activation="torch.nn.modules.activation.Tanh")
    for dense, activation in (((), "Identity"), ((tanh,), "Tanh")):
        teacher = embedder(Layout(pooling=("cls",), normalise=True), dense)
        student = embedder(hidden_size=8)
        line = arrange(student, teacher, seed=3)
        assert line is not None and "takes 8 dimensions to" in line
        with torch.no_grad():
            ours, theirs = (model(**batch(6)).logits for model in (student, teacher))
        assert ours.shape == theirs.shape and student.layout == teacher.layout
        (last,) = cast(Any, student.dense)
        assert last.activation_name.endswith(activation)
        again = embedder(hidden_size=8)
        arrange(again, teacher, seed=3)
        assert torch.equal(cast(Any, again.dense)[0].linear.weight, last.linear.weight)
    same = embedder()
    assert arrange(same, teacher, seed=3) == "dense modules of the teacher"
    assert torch.equal(cast(Any, same.dense)[0].linear.weight, tanh.linear.weight)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    """An encoder with its tokenizer, and a dense module in a folder of its own."""
    encoder(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for name in ("1_Pooling", "2_Dense"):
        (tmp_path / name).mkdir()
    save_file({"linear.weight": torch.randn(6, 16)}, tmp_path / "2_Dense" / "model.safetensors")
    return tmp_path


def describe(folder: Path, modules: str, pooling: dict[str, Any], **dense: Any) -> Path:
    places = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    listed = [
        {"type": f"sentence_transformers.models.{kind}", "path": places.get(kind, "x")} for kind in modules.split()
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    config = {"in_features": 16, "out_features": 6, "bias": False,
              "activation_function": "torch.nn.modules.activation.Tanh"} | dense  # fmt: skip
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("pooling", "found"),
    [
        ({"pooling_mode": "cls", "embedding_dimension": 16}, ("cls",)),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, ("max",)),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, ("cls", "mean")),
        ({"word_embedding_dimension": 16}, ("mean",)),
    ],
)
def test_folders_of_all_versions_are_read_and_written(
    folder: Path, pooling: dict[str, Any], found: tuple[str, ...], tmp_path: Path
) -> None:
    describe(folder, "Transformer Pooling Dense Normalize", pooling, in_features=16 * len(found))
    weight = torch.randn(6, 16 * len(found))
    save_file({"linear.weight": weight}, folder / "2_Dense" / "model.safetensors")
    loaded = load_embedder(str(folder))
    model = cast(SentenceEmbedder, loaded.model)
    assert (
        model.layout.pooling == found
        and model.layout.normalise
        and torch.equal(cast(Any, model.dense)[0].linear.weight, weight)
    )
    again = tmp_path / "again"
    model.save_pretrained(again)
    loaded.tokenizer.save_pretrained(again)
    other = load_embedder(str(again)).model
    with torch.no_grad():
        assert torch.equal(other(**batch(6)).logits, model(**batch(6)).logits)
    assert cast(SentenceEmbedder, other).layout == model.layout


@pytest.mark.parametrize(
    ("modules", "pooling", "dense", "said"),
    [
        ("Transformer Pooling LSTM", {}, {}, "its modules are Transformer, Pooling, LSTM; supported are Transformer"),
        ("Transformer Pooling Normalize Dense", {}, {}, "and Normalize last"),
        ("Transformer Pooling", {"pooling_mode": "lasttoken"}, {}, "its pooling 'lasttoken' is not supported"),
        ("Transformer Pooling Dense", {}, {"activation_function": "os.system"}, "the activation os.system of 2_Dense"),
        ("Transformer Pooling Dense", {}, {"in_features": 9}, "cannot read 2_Dense"),
    ],
)
def test_what_is_not_supported_is_said(
    folder: Path, modules: str, pooling: dict[str, Any], dense: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as error:
        load_embedder(str(describe(folder, modules, pooling, **dense)))
    (line,) = error.value.lines
    assert said in line


def test_pooling_is_a_choice_for_plain_encoders_alone(folder: Path) -> None:
    plain = with_pooling(load_embedder(str(folder)), "cls")
    assert cast(SentenceEmbedder, plain.model).layout.pooling == ("cls",)
    stated = load_embedder(str(describe(folder, "Transformer Pooling", {"pooling_mode": "max"})))
    assert with_pooling(stated, "max") is stated
    with pytest.raises(UserError, match="is max, by its files"):
        with_pooling(stated, "mean")
