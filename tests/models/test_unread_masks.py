"""A model's attention masks are made without the host looking into them: on a GPU that would make it wait."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from stillery.models.attention import unread_masks
from stillery.models.load_model import Loaded
from stillery.models.trace import trace


class _Looks(TorchDispatchMode):
    """Counts how often the host reads a number of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ == "_local_scalar_dense"
        return func(*args, **(kwargs or {}))


def _looks(model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[int, Tensor]:
    with torch.no_grad(), _Looks() as looks:
        logits = trace(model, inputs).logits
    return looks.count, logits


def test_no_classifier_is_waited_for(teacher: Loaded, batch: dict[str, Tensor]) -> None:
    whole = batch | {"attention_mask": torch.ones_like(batch["attention_mask"])}
    for inputs in (batch, whole):
        _, plainly = _looks(teacher.model, inputs)
        with unread_masks("cpu"):
            looks, logits = _looks(teacher.model, inputs)
        assert looks == 0
        torch.testing.assert_close(logits, plainly)


def test_no_model_that_writes_text_is_waited_for(writer: Loaded, texts: dict[str, Tensor]) -> None:
    whole = texts | {"attention_mask": torch.ones_like(texts["attention_mask"])}
    for inputs in (texts, whole):
        _, plainly = _looks(writer.model, inputs)
        with unread_masks("cpu"):
            looks, logits = _looks(writer.model, inputs)
        assert looks == 0
        scored = inputs["attention_mask"].bool() if "labels" not in inputs else inputs["labels"] != -100
        torch.testing.assert_close(logits[scored], plainly[scored])


def test_masks_elsewhere_are_made_as_ever(make: Any) -> None:
    model, inputs = make("bert"), {"input_ids": torch.ones(2, 5, dtype=torch.long)}
    inputs["attention_mask"] = torch.ones(2, 5, dtype=torch.long)
    before = dict(ALL_MASK_ATTENTION_FUNCTIONS), dict(ALL_MASK_ATTENTION_FUNCTIONS._local_mapping)
    with unread_masks(), unread_masks("cuda"):
        assert _looks(model, inputs)[0] > 0, "this test has its masks on a CPU, and transformers looks there"
    assert (dict(ALL_MASK_ATTENTION_FUNCTIONS), ALL_MASK_ATTENTION_FUNCTIONS._local_mapping) == before
