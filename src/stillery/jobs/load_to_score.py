"""Loading of models that are scored: checkpoints, and exports of them as ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from transformers import PreTrainedModel

from stillery.deploy.onnx_model import OnnxModel
from stillery.errors import UserError
from stillery.jobs.config.settings import DataSettings
from stillery.jobs.kinds.base import Kind
from stillery.models.head_type import head_in
from stillery.models.load_model import Loaded, load_tokenizer, read_config
from stillery.models.model_folder import is_onnx

__all__ = ["load_to_score"]


def load_to_score(kind: Kind, name: str, data: DataSettings | None = None) -> Loaded:
    """Load a trained model, as the data settings have it; of an export the file of that name, else `model.onnx`."""
    path = Path(name).expanduser()
    if path.suffix != ".onnx" and not is_onnx(path):
        loaded = kind.load(name)
        return loaded if data is None else kind.as_set(loaded, data)
    file = path if path.suffix == ".onnx" else path / "model.onnx"
    config = read_config(name)
    if kind.exporting is None:
        raise UserError(f"{name}: an ONNX file of a model for {kind.name}, which is not one of stillery export")
    head = head_in(config.architectures)
    tokenizer = load_tokenizer(name, words=head is not None and head.by_token)
    model = cast(PreTrainedModel, OnnxModel(file, config))
    return Loaded(model=model, tokenizer=tokenizer, name=name, missing=frozenset())
