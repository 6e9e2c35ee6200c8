"""Export of an encoder with a head to an ONNX file, for batches of any size and length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillery.deploy.extra import without_messages
from stillery.errors import UserError
from stillery.models.model_inputs import accepted_inputs

__all__ = ["INPUTS", "write_onnx"]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""The possible inputs of an exported model, each [batch, length]; families without segments lack the last."""

_OPSET = 18
_TOO_LARGE = 1_900_000_000
"""A protobuf file holds at most 2 GiB; the weights of a larger model go to a file beside it."""


class _Logits(nn.Module):
    """A model that returns its logits alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the logits of a batch."""
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            given["token_type_ids"] = token_type_ids
        logits: Tensor = self.model(**given).logits
        return logits


def write_onnx(model: PreTrainedModel, path: Path, name: str, names: Sequence[str] = INPUTS) -> None:
    """Write a model to an ONNX file whose inputs are batches of any size and length, and whose output is `logits`.

    The inputs are those of `names` that the model takes.

    The graph is traced on a batch with padding, so that the attention mask is always applied, whatever the values. A
    model that torch.export cannot trace is refused with its reason.
    """
    inputs = {key: tensor for key, tensor in _example(model).items() if key in names}
    axes = {0: "batch", 1: "length"}
    training = model.training
    model.eval()
    try:
        with without_messages(), torch.no_grad():
            program = torch.onnx.export(
                _Logits(model),
                tuple(inputs.values()),
                dynamo=True,
                opset_version=_OPSET,
                input_names=list(inputs),
                output_names=["logits"],
                dynamic_shapes=tuple(axes for _ in inputs),
                verbose=False,
            )
            assert program is not None
            size = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
            program.save(str(path), external_data=size > _TOO_LARGE)
    except Exception as error:
        # torch.export raises nearly any exception for code that it cannot trace.
        reason = " ".join(str(error.__cause__ or error).split())[:150]
        raise UserError(
            f"{name}: torch.export cannot trace this {model.config.model_type} model, so it is not exported "
            f"({type(error).__name__}: {reason})"
        ) from None
    finally:
        model.train(training)
    _drop_notes(path)


def _example(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return a made-up batch with padding, with the inputs that the model takes, on its device."""
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    pad = model.config.pad_token_id or 0
    ids = torch.full_like(mask, 1 if pad == 0 else 0) * mask + pad * (1 - mask)
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    accepted = accepted_inputs(model, {key: tensor.to(model.device) for key, tensor in batch.items()})
    return {key: accepted[key] for key in INPUTS if key in accepted}


def _drop_notes(path: Path) -> None:
    """Remove the exporter's notes from a file: stack traces, which hold paths of this machine, and inner shapes.

    Recorded shapes of weights that were transposed later are wrong, and stop the quantiser; onnxruntime infers them.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    del model.graph.value_info[:]
    for noted in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.functions):
        del noted.metadata_props[:]
    for weight in model.graph.initializer:
        del weight.metadata_props[:]
    onnx.save(model, str(path))
