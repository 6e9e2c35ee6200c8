"""Adapters, such as LoRA's, merged with their base model into a folder of this process."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from stillery.errors import UserError
from stillery.models.folder_checks import check_files, check_sizes
from stillery.models.hub import fetch_weights
from stillery.models.model_folder import check_weights, model_folder
from stillery.models.quiet import quiet, reading_weights
from stillery.progress import say
from stillery.small_files import read_json

__all__ = ["merged"]

_TASKS: dict[str, Any] = {
    "SEQ_CLS": AutoModelForSequenceClassification,
    "TOKEN_CLS": AutoModelForTokenClassification,
    "CAUSAL_LM": AutoModelForCausalLM,
    "SEQ_2_SEQ_LM": AutoModelForSeq2SeqLM,
}
_WEIGHTS = "adapter_model.safetensors"
_HEAD = re.compile(r"\.(?:classifier|score)(?:\.out_proj)?\.weight")
"""The weight of a head that was trained with the adapter; it has a row for each label."""


def merged(folder: Path, described: dict[str, Any], name: str) -> str:
    """Merge an adapter with its base model; return a folder with the whole model, which is removed at the end.

    Args:
        folder: the adapter's folder.
        described: its `adapter_config.json`.
        name: its name in errors.
    """
    base, task = described["base_model_name_or_path"], described.get("task_type")
    if task not in _TASKS:
        raise UserError(f"{name}: an adapter for {task}, which is no task of stillery ({', '.join(_TASKS)})")
    try:
        source = model_folder(base)
    except UserError as error:
        raise UserError(f"{name}: an adapter of {base}, which is needed beside it: {error.lines[0]}") from None
    # Weights that were changed since are merged again.
    state = tuple(
        sorted((str(file), file.stat().st_mtime_ns) for at in (folder, Path(source)) for file in at.iterdir())
    )
    return _merged(folder, base, source, str(task), name, state)


def _check_size(source: str, base: str, auto_class: Any) -> None:
    """Raise UserError for a base model that is not as large as its configuration says."""
    try:
        with quiet():
            check_sizes(AutoConfig.from_pretrained(source, trust_remote_code=False), source, base, auto_class)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{base}: cannot read the model: {' '.join(str(error).split())[:150]}") from None


@cache
def _merged(folder: Path, base: str, source: str, task: str, name: str, state: tuple[tuple[str, int], ...]) -> str:
    fetch_weights(base)
    check_weights(source, base)
    check_files(folder, name, adapter=True)
    check_files(source, base)
    _check_size(source, base, _TASKS[task])
    place = Path(tempfile.mkdtemp(prefix="stillery-merged-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        with quiet(), reading_weights():
            tokenizer = AutoTokenizer.from_pretrained(_tokenizer_of(folder, source), trust_remote_code=False)
            tokenizer.save_pretrained(place)
            _whole(folder, source, task).save_pretrained(place)
    except Exception as error:
        # Damaged files, and adapters of another model, make peft and transformers raise nearly any exception.
        reason = " ".join(str(error).split())[:150]
        raise UserError(f"{name}: cannot be merged with {base} ({type(error).__name__}: {reason})") from None
    say(f"{name}: an adapter of {base}, merged with it")
    return str(place)


def _whole(folder: Path, source: str, task: str) -> PreTrainedModel:
    """Return the base model with the adapter's changes in its weights, and the head that was trained with it."""
    from peft import PeftModel

    labels = _labels(folder)
    options: dict[str, Any] = {} if labels is None else {"num_labels": labels, "ignore_mismatched_sizes": True}
    model = _TASKS[task].from_pretrained(
        source, dtype=torch.float32, weights_only=True, trust_remote_code=False, **options
    )
    with_adapter: Any = PeftModel.from_pretrained(model, str(folder))
    whole: PreTrainedModel = with_adapter.merge_and_unload()
    names = _names(folder)
    if names is not None and len(names) == whole.config.num_labels:
        whole.config.id2label, whole.config.label2id = names, {label: place for place, label in names.items()}
    return whole


def _labels(folder: Path) -> int | None:
    """Return the number of labels of the head that is stored with an adapter, if there is one."""
    if not (folder / _WEIGHTS).is_file():
        return None
    with safe_open(folder / _WEIGHTS, framework="pt") as file:
        heads = [file.get_slice(key).get_shape()[0] for key in file.keys() if _HEAD.search(key)]  # noqa: SIM118
    return heads[0] if heads else None


def _names(folder: Path) -> dict[int, str] | None:
    """Return the names of the labels, of a config.json that is stored beside an adapter."""
    try:
        found = read_json(folder / "config.json")["id2label"]
        return {int(place): str(label) for place, label in found.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _tokenizer_of(folder: Path, source: str) -> str:
    return str(folder) if (folder / "tokenizer_config.json").is_file() else source
