"""Checks of a model folder before transformers reads it: its files, the values of its configurations, its weights.

A model folder may come from somebody else. What would read a file outside of it, run for minutes, or allocate far more
memory than its weights take is an error in one line.
"""

from __future__ import annotations

import copy
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from stillery.errors import UserError
from stillery.models.family import kind_of, layout_of, stack_sizes
from stillery.models.wrong_model import is_adapter, not_a_model
from stillery.small_files import check_regular, read_json

__all__ = ["check_files", "check_sizes"]

_READ = (".json", ".safetensors", ".bin", ".txt", ".model", ".jinja", ".onnx", ".vocab", ".bpe", ".toml")
"""Suffixes of the files that are read from a model folder."""

_TOKENIZER, _LARGEST_TOKENIZER = "tokenizer.json", 2**28
_INDEXES = {"model.safetensors.index.json": ".safetensors", "pytorch_model.bin.index.json": ".bin"}
_SINGLE = ("model.safetensors", "student.safetensors")
_ADAPTER, _LARGEST_RANK = "adapter_config.json", 10_000
_LISTS_OF_NAMES = ("architectures", "model_input_names")
_LISTS_OF_FILES = ("configuration_files", "fast_tokenizer_files")

_MOST_LAYERS, _MOST_LABELS, _LARGEST_NUMBER = 10_000, 100_000, 10**12
_LARGEST_HEADER = 10**8
"""Bytes of a safetensors header; the library itself refuses more."""

_PACKED, _ROOM = 8, 10**8
"""Parameters that one number of the weights may hold, packed, and those a model has beyond: buffers, a head."""


def check_files(folder: str | Path, name: str, *, adapter: bool = False) -> None:
    """Raise UserError for files of a model folder that are not to be read, and for values no model has.

    With `adapter` the folder holds an adapter, which is merged with its base model.
    """
    place = Path(folder)
    if is_adapter(place) and not adapter:
        raise UserError(not_a_model(place, name))
    for file in _files(place, name):
        if file.suffix != ".json" or file.name in ("run.toml", _TOKENIZER):
            most = _LARGEST_TOKENIZER if file.name == _TOKENIZER else None
            if most is not None and file.stat().st_size > most:
                raise UserError(f"{name}: its {file.name} is larger than {most // 2**20} MB, so it is no tokenizer")
        elif file.name == _ADAPTER:
            _check_ranks(_object(file, name), name)
        elif file.name in ("config.json", "tokenizer_config.json", "generation_config.json"):
            _check_values(_object(file, name), file.name, name)
        elif file.name in _INDEXES:
            _check_index(file, name)


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Iterate over the files that may be read; raise UserError for a pipe or device, or a link out of the folder."""
    root = folder.resolve()
    with os.scandir(folder) as entries:
        found = sorted(entry.name for entry in entries if entry.name.endswith(_READ) and not entry.is_dir())
    for one in found:
        file = folder / one
        try:
            check_regular(file)
        except OSError as error:
            raise UserError(f"{name}: its {one} is {error.strerror or error}; copy the model again") from None
        target = file.resolve()
        # The hub's cache keeps files by their hash in `blobs`, and links to them.
        if not target.is_relative_to(root) and target.parent.name != "blobs":
            raise UserError(f"{name}: its {one} is a link to a file outside of the folder; copy the file into it")
        yield file


def _object(file: Path, name: str) -> dict[str, Any]:
    try:
        found = read_json(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: cannot read its {file.name} ({_reason(error)})") from None
    if not isinstance(found, dict):
        raise UserError(f"{name}: its {file.name} is not a JSON object")
    return found


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error}"
    if isinstance(error, ValueError) and "digits" in str(error):
        return "a number of too many digits"
    return str(getattr(error, "strerror", None) or error)


def _check_values(values: Mapping[str, Any], file: str, name: str) -> None:
    """Raise UserError for values that no model has, anywhere in a configuration."""
    where = f"{name}: its {file}"
    if "transformers_weights" in values:
        raise UserError(f"{where} names a file of weights of its own (transformers_weights), which is not read")
    for key in _LISTS_OF_FILES:
        if any(not isinstance(one, str) or Path(one).name != one for one in _listed(values.get(key))):
            raise UserError(f"{where} lists other files in {key} that are not names of files in this folder")
    for key in _LISTS_OF_NAMES:
        names = values.get(key)
        if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
            raise UserError(f"{where} says {key} = {str(names)[:40]}, not a list of names")
    longest = values.get("model_max_length", 1)
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, (int, float))):
        raise UserError(f"{where} says model_max_length = {str(longest)[:20]!r}, not a length")
    level: list[tuple[str, Any]] = list(values.items())
    while level:
        for key, value in level:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                wrong = _wrong_number(key, value, tokenizer=file == "tokenizer_config.json")
                if wrong:
                    raise UserError(f"{where} says {key} = {str(value)[:20]}, {wrong}")
            elif key in ("id2label", "label2id") and isinstance(value, (dict, list)) and len(value) > _MOST_LABELS:
                raise UserError(f"{where} has {len(value):,} labels in {key}; at most {_MOST_LABELS:,} are read")
        level = [
            (str(key), inner)
            for outer, value in level
            for key, inner in (value.items() if isinstance(value, dict) else ((outer, one) for one in _listed(value)))
        ]


def _check_ranks(values: Mapping[str, Any], name: str) -> None:
    """Raise UserError for an adapter whose matrices would not fit into memory."""
    patterns = values.get("rank_pattern")
    ranks = [values.get("r"), *(patterns.values() if isinstance(patterns, dict) else ())]
    for rank in ranks:
        if rank is not None and (type(rank) is not int or not 0 < rank <= _LARGEST_RANK):
            raise UserError(f"{name}: its {_ADAPTER} says a rank of {str(rank)[:20]}, which no adapter has")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _wrong_number(key: str, value: float, *, tokenizer: bool) -> str:
    """Return why no model has this number under this name; empty if one may."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    if tokenizer:
        # A tokenizer without a limit says 10^30.
        return "not a length" if key == "model_max_length" and (value < 1 or int(value) != value) else ""
    if (key.endswith(("layers", "n_layer")) and value > _MOST_LAYERS) or (key == "num_labels" and value > _MOST_LABELS):
        return f"more than {_MOST_LAYERS if 'layer' in key else _MOST_LABELS:,}"
    if key == "num_labels" and value < 1:
        return "not a number of labels"
    return f"beyond {_LARGEST_NUMBER:,}" if isinstance(value, int) and abs(value) > _LARGEST_NUMBER else ""


def _check_index(file: Path, name: str) -> None:
    """Raise UserError for an index of weights that names anything but weight files of the same folder."""
    found = _object(file, name).get("weight_map")
    if not isinstance(found, dict) or not found or not all(isinstance(one, str) for one in found.values()):
        raise UserError(f"{name}: its {file.name} has no weight_map from tensors to files; copy the model again")
    for one in sorted(set(found.values())):
        if Path(one).name != one or "\\" in one:
            raise UserError(f"{name}: its {file.name} points outside of the folder ({one[:80]!r}); it is not read")
        if not one.endswith(_INDEXES[file.name]):
            raise UserError(
                f"{name}: its {file.name} points to {one[:80]!r}, which is no {_INDEXES[file.name]} file; it is not "
                "read"
            )


def check_sizes(config: PreTrainedConfig, folder: str, name: str, auto_class: Any) -> None:
    """Raise UserError for a configuration of sizes that no model has, or of a model far larger than its weights."""
    for stack, said in stack_sizes(config).items():
        of = "" if kind_of(config) == "encoder" else f" in its {stack}"
        if said.layers < 1:
            raise UserError(f"{name}: its config.json says {said.layers} layers{of}, so there is no model to load")
        wrong = {"width": said.width, "attention heads": said.heads, "inner width": said.inner}
        for what, number in wrong.items():
            if not isinstance(number, int) or number < 1:
                raise UserError(f"{name}: its config.json says {number} as {what}{of}, so there is no model to load")
    tensors = _tensors(Path(folder), name)
    if tensors is None:
        return
    layers = sum(said.layers for said in stack_sizes(config).values())
    if layers > len(tensors) and not layout_of(config).shared:
        raise UserError(
            f"{name}: its config.json says {layers:,} layers, its weights are {len(tensors)} tensors; copy the model "
            "again"
        )
    width = next(iter(stack_sizes(config).values())).width
    held = sum(map(math.prod, tensors.values()))
    most = _PACKED * held + (config.num_labels or 1) * width + _ROOM
    # Some models make their position embeddings one by one, so these are compared before a model is made.
    described = 0 if layout_of(config).rotary else (getattr(config, "max_position_embeddings", None) or 0) * width
    if described <= most:
        described = _parameters(config, auto_class)
    if described > most:
        raise UserError(
            f"{name}: its config.json describes a model of {described:,} parameters, its weights hold {held:,}; copy "
            "the model again"
        )


def _parameters(config: PreTrainedConfig, auto_class: Any) -> int:
    """Return the number of parameters and other values of a model, without allocating them."""
    # The initial values of a head are drawn later, from the random state as it is now.
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = auto_class.from_config(copy.deepcopy(config))
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _tensors(folder: Path, name: str) -> dict[str, list[int]] | None:
    """Return the shapes of all tensors in a folder's safetensors files; None for other weights."""
    single = next((folder / one for one in _SINGLE if (folder / one).is_file()), None)
    files = [single] if single else sorted(folder.glob("model-*.safetensors"))
    found: dict[str, list[int]] = {}
    for file in files:
        try:
            found |= _shapes(file)
        except (OSError, ValueError, RecursionError, KeyError, TypeError, struct.error):
            raise UserError(
                f"{name}: the header of its {file.name} is not that of a safetensors file (truncated or damaged?); "
                "copy the model again"
            ) from None
    return found if files else None


def _shapes(file: Path) -> dict[str, list[int]]:
    with file.open("rb") as opened:
        (size,) = struct.unpack("<Q", opened.read(8))
        if size > _LARGEST_HEADER:
            raise ValueError("the header is too long")
        header = json.loads(opened.read(size))
    shapes = {key: value["shape"] for key, value in header.items() if key != "__metadata__"}
    if any(type(one) is not int or one < 0 for shape in shapes.values() for one in shape):
        raise ValueError("not a shape")
    return shapes
