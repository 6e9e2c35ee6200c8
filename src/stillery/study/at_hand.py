"""Which models and data a plan may count on: those that can be had, and the shapes of well-known ones that cannot."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from stillery.data.tasks.generation import GENERATION_TASKS
from stillery.data.tasks.glue import TASKS
from stillery.data.tasks.task_files import find, find_local
from stillery.errors import UserError
from stillery.models.load_model import read_config
from stillery.models.model_folder import local_folder

__all__ = ["config_of", "look_again", "model_is_here", "task_is_here"]

_T5_BASE = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12}
_ROBERTA = {"max_position_embeddings": 514, "vocab_size": 50265}
_KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "distilbert/distilbert-base-uncased": ("distilbert", {}),
    "distilbert/distilroberta-base": ("roberta", {**_ROBERTA, "num_hidden_layers": 6}),
    "facebook/bart-large": ("bart", {}),
    "FacebookAI/roberta-base": ("roberta", _ROBERTA),
    "FacebookAI/roberta-large": (
        "roberta",
        {**_ROBERTA, "num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16,
         "intermediate_size": 4096},
    ),
    "google-bert/bert-base-uncased": ("bert", {}),
    "google-t5/t5-base": ("t5", _T5_BASE),
    "google-t5/t5-small": ("t5", {}),
    "Qwen/Qwen3-8B": (
        "qwen3",
        {"num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 128, "intermediate_size": 12288},
    ),
}  # fmt: skip

_SMALL_BERT = re.compile(r"google/bert_uncased_L-(\d+)_H-(\d+)_A-(\d+)")


def look_again() -> None:
    """Forget what could be had: something may have been downloaded since."""
    for known in (model_is_here, task_is_here, config_of):
        known.cache_clear()


@lru_cache
def model_is_here(name: str) -> bool:
    """Return whether a model can be had: on this machine or from the hub; raise UserError for no possible name."""
    if local_folder(name) is not None:
        return True
    try:
        read_config(name)
    except UserError:
        return False
    return True


@lru_cache
def task_is_here(name: str, data_dir: str | None) -> bool:
    """Return whether the data of a task can be had: on this machine or from the hub."""
    place, task = None if data_dir is None else Path(data_dir), TASKS.get(name) or GENERATION_TASKS[name]
    if find_local(task, place) is not None:
        return True
    try:
        find(task, place)
    except UserError:
        return False
    return True


@lru_cache
def config_of(name: str) -> PreTrainedConfig | None:
    """Return a model's configuration: its own, or where the model is not at hand, a known one of these sizes.

    None stands for a model whose shape is not known here; what is wrong with it is reported where it is loaded.
    """
    try:
        return read_config(name)
    except UserError:
        pass
    if found := _SMALL_BERT.fullmatch(name):
        layers, width, heads = map(int, found.groups())
        return AutoConfig.for_model(
            "bert", num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width
        )
    family, sizes = _KNOWN.get(name, (None, {}))
    return None if family is None else AutoConfig.for_model(family, **sizes)
