"""An exported model that is called like the checkpoint it was made from, run by onnxruntime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from stillery.deploy.extra import check_installed
from stillery.errors import UserError

__all__ = ["OnnxModel", "all_threads", "on_one_thread", "session"]


def all_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session(file: Path, *, threads: int | None = None) -> Any:
    """Open an ONNX file in onnxruntime on the CPU, by default with all threads."""
    check_installed(write=False)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or all_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Threads that wait actively after a run would slow whatever this process does next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime has a class of exception for each status, none with a base of its own.
        raise UserError(f"{file}: onnxruntime cannot read it: {' '.join(str(error).split())[:150]}") from None


class OnnxModel(nn.Module):
    """An ONNX file behind the interface of a transformers model: tensors in, an output with `logits` out.

    It has a configuration but no weights that torch knows of; it can be scored, not trained.
    """

    def __init__(self, file: Path, config: PreTrainedConfig, *, threads: int | None = None) -> None:
        super().__init__()
        self.file, self.config = file, config
        self.session = session(file, threads=threads)
        self.names = [one.name for one in self.session.get_inputs()]
        # The device of a model is that of its parameters.
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)

    @property
    def megabytes(self) -> float:
        """The size of the file, with its external data, in 10^6 bytes."""
        return sum(part.stat().st_size for part in self.file.parent.glob(f"{self.file.name}*")) / 1e6

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> SequenceClassifierOutput:
        """Return the logits of a batch."""
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        feeds = {name: _array(given[name], input_ids) for name in self.names}
        (logits,) = self.session.run(["logits"], feeds)
        return SequenceClassifierOutput(logits=torch.from_numpy(logits).to(input_ids.device))  # type: ignore[arg-type]


def on_one_thread(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model, of an ONNX file one that runs on one thread; torch's models follow torch's own setting."""
    if not isinstance(model, OnnxModel):
        return model
    return cast(PreTrainedModel, OnnxModel(model.file, model.config, threads=1))


def _array(tensor: Tensor | None, like: Tensor) -> NDArray[np.int64]:
    chosen = torch.zeros_like(like) if tensor is None else tensor
    array: NDArray[np.int64] = chosen.cpu().numpy().astype(np.int64, copy=False)
    return array
