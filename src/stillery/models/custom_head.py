"""Checkpoint folders of models with a custom head, for which transformers has no class.

They hold a plain `config.json`, the weights as `student.safetensors` and the head as `head.json`. `model.safetensors`
is deliberately absent: transformers then fails to load the folder, instead of adding a random head.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig, PreTrainedModel

from stillery.errors import UserError
from stillery.models.head_type import SEQUENCE, head_in, head_type
from stillery.models.option_words import PROJECTORS, REUSES
from stillery.models.projected_head import Head, head_of, insert
from stillery.small_files import read_json

__all__ = ["HOW_TO_LOAD", "MARK", "is_custom_folder", "read_custom", "write_custom"]

MARK = "StilleryCustomHead"
"""The value of `architectures` in config.json; for a token classification head its type is appended."""

HOW_TO_LOAD = "from stillery.models.head import load_student"

_HEAD, _WEIGHTS = "head.json", "student.safetensors"


def is_custom_folder(folder: str) -> bool:
    """Return whether a folder holds a model with a custom head."""
    return (Path(folder) / _HEAD).is_file()


def write_custom(model: PreTrainedModel, folder: Path) -> None:
    """Save config, weights and head of a model with a custom head."""
    head = head_of(model)
    assert head is not None
    config = copy.deepcopy(model.config)
    config.architectures = [MARK + (head_type(model).ending if head_type(model).by_token else "")]
    config.save_pretrained(folder)
    save_file({name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}, folder / _WEIGHTS)
    described = asdict(head) | {"load": f"{HOW_TO_LOAD}; model = load_student(folder)"}
    (folder / _HEAD).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _read_head(folder: Path, name: str) -> Head:
    try:
        read = read_json(folder / _HEAD)
        head = Head(reuse=read["reuse"], projector=read["projector"], width=read["width"])
        good = head.reuse in REUSES and head.projector in PROJECTORS and type(head.width) is int and head.width > 0
    except (OSError, ValueError, KeyError, TypeError):
        good = False
    if not good:
        raise UserError(f"{name}: its {_HEAD} does not describe a head; export the student again")
    return head


def read_custom(config: PreTrainedConfig, folder: str, name: str) -> tuple[PreTrainedModel, set[str]]:
    """Load a model with a custom head; return it and the names of weights that are missing or of another size."""
    head = _read_head(Path(folder), name)
    if not (Path(folder) / _WEIGHTS).is_file():
        raise UserError(f"{name}: no {_WEIGHTS} in this folder, so it holds no weights")
    held = load_file(Path(folder) / _WEIGHTS)
    auto = (head_in(config.architectures) or SEQUENCE).auto
    config.architectures = None
    model: PreTrainedModel = auto.from_config(config, dtype=torch.float32)
    insert(model, head)
    wanted = model.state_dict()
    found = {key: held[key] for key, own in wanted.items() if key in held and held[key].shape == own.shape}
    model.load_state_dict(found, strict=False)
    return model.eval(), wanted.keys() - found.keys()
