"""Checkpoints with quantised weights, which are read as float32 weights of the same values."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.errors import UserError

__all__ = ["as_float32", "quantised_by", "reading_options"]

_PACKAGES = {"bitsandbytes": "bitsandbytes", "torchao": "torchao"}
"""Methods whose weights can be turned into float32, and the packages that read them."""


def quantised_by(config: PreTrainedConfig) -> str | None:
    """Return the method by which a checkpoint's weights are quantised, such as `bitsandbytes`; None if they are not."""
    found: Any = getattr(config, "quantization_config", None)
    if found is None:
        return None
    named = found.get("quant_method") if isinstance(found, Mapping) else getattr(found, "quant_method", None)
    return str(getattr(named, "value", named))


def reading_options(config: PreTrainedConfig, name: str) -> dict[str, Any]:
    """Return the further arguments to load a checkpoint; raise UserError for quantised weights that cannot be read."""
    method = quantised_by(config)
    if method is None:
        return {}
    cure = "give the model that it was made from, before it was quantised"
    if method not in _PACKAGES:
        raise UserError(f"{name}: its weights are quantised ({method}), which is not read here; {cure}")
    package = _PACKAGES[method]
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"{name}: its weights are quantised by {method}, which is not installed: pip install {package}, or {cure}"
        )
    return {"device_map": {"": "cpu"}}


def as_float32(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model whose quantised weights are float32 weights of the same values."""
    if quantised_by(model.config) == "bitsandbytes":
        model = model.dequantize()
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            # Of torchao's tensors only the class is special.
            if type(weight.data) is not torch.Tensor or type(weight) is not torch.nn.Parameter:
                plain = weight.dequantize() if hasattr(weight, "dequantize") else weight
                setattr(module, name, torch.nn.Parameter(plain.detach().to(torch.float32)))
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for name, value in (("hf_quantizer", None), ("is_quantized", False)):
        setattr(model, name, value)
    whole: PreTrainedModel = model.float()
    return whole
