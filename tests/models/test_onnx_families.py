"""Every encoder family as ONNX: equal logits for any batch size and length, padded or not; int8 beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from stillery.deploy.onnx_export import write_onnx
from stillery.deploy.onnx_model import OnnxModel
from stillery.deploy.quantise import Setting, quantise
from stillery.errors import UserError
from stillery.models.family import FAMILIES, longest_input
from stillery.models.model_inputs import accepted_inputs

pytest.importorskip("onnxscript")

KINDS = [*FAMILIES, "deberta-v2-conv"]


def batch(model: Any, size: int, length: int, random: torch.Generator) -> dict[str, torch.Tensor]:
    """Random tokens, of which one row is whole and the others may be padded."""
    lengths = torch.randint(1, length + 1, (size, 1), generator=random)
    lengths[-1] = length
    mask = (torch.arange(length) < lengths).long()
    ids = torch.randint(5, 99, (size, length), generator=random)
    inputs = {
        "input_ids": ids * mask + (model.config.pad_token_id or 0) * (1 - mask),
        "attention_mask": mask,
        "token_type_ids": (torch.arange(length) >= lengths // 2).long() * mask,
    }
    return accepted_inputs(model, inputs)


def compare(model: Any, file: Path, sizes: list[tuple[int, int]], within: float) -> None:
    random, onnx = torch.Generator().manual_seed(0), OnnxModel(file, model.config)
    for size, length in sizes:
        inputs = batch(model, size, length, random)
        with torch.no_grad():
            apart = (onnx(**inputs).logits - model(**inputs).logits).abs()
        # Padding that sees nothing but padding, as in ModernBERT's local attention, has no defined state.
        apart = (apart[inputs["attention_mask"].bool()] if apart.dim() == 3 else apart).max()
        assert apart < within, (size, length, float(apart))


def shapes(model: Any) -> list[tuple[int, int]]:
    longest = min(longest_input(model.config), 40)
    return [*((3, length) for length in range(1, longest + 1)), *((size, 7) for size in range(1, 34))]


def test_relative_positions_are_exported_for_any_length(make: Any, tmp_path: Path) -> None:
    model = make("mpnet", num_hidden_layers=1, max_position_embeddings=42)
    write_onnx(model, tmp_path / "model.onnx", "mpnet")
    compare(model, tmp_path / "model.onnx", shapes(model), 1e-5)


class Branching(BertForSequenceClassification):
    """A model that decides by values, which torch.export cannot trace."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return super().forward(input_ids, attention_mask if input_ids.sum() > 3 else None)


def test_a_model_that_cannot_be_traced_is_refused(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    with pytest.raises(UserError, match=r"^mine: torch\.export cannot trace this bert model") as error:
        write_onnx(Branching(BertConfig(**sizes, vocab_size=99)), tmp_path / "model.onnx", "mine")
    assert len(error.value.lines) == 1 and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_family_has_equal_logits(name: str, tags: bool, make: Any, make_tagger: Any, tmp_path: Path) -> None:
    model = (make_tagger if tags else make)(name, max_position_embeddings=42)
    write_onnx(model, tmp_path / "model.onnx", name)
    compare(model, tmp_path / "model.onnx", shapes(model), 1e-5)
    for setting in (Setting(), Setting(per_channel=True, reduce_range=True)):
        quantise(tmp_path / "model.onnx", tmp_path / "int8.onnx", setting)
        assert (tmp_path / "int8.onnx").stat().st_size < (tmp_path / "model.onnx").stat().st_size
        compare(model, tmp_path / "int8.onnx", [(1, 1), (3, 9), (33, 20)], 0.5)
