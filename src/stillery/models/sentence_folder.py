"""The files by which sentence-transformers describes an embedding model: `modules.json` and a folder per module.

They are read in the forms of all its versions, and written in the older one, which every version reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from stillery.errors import UserError
from stillery.models.embedder import ACTIVATIONS, Dense, Layout, SentenceEmbedder
from stillery.models.folder_checks import check_files
from stillery.models.option_words import POOLINGS
from stillery.small_files import read_json

__all__ = ["describes_embedder", "read_dense", "read_layout", "write_modules"]

_MODULES, _SETTINGS, _LENGTH = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
_FLAGS = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
"""The kinds of pooling by the names of older versions' flags."""


def describes_embedder(folder: Path) -> bool:
    """Return whether a folder is one of sentence-transformers, with an encoder at its top."""
    return (folder / _MODULES).is_file() and (folder / "config.json").is_file()


def read_layout(folder: Path, name: str) -> Layout | None:
    """Read what follows the encoder; None for a plain encoder, without `modules.json`."""
    modules = _modules(folder, name)
    if modules is None:
        return None
    kinds = [kind for kind, _ in modules]
    middle = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or set(middle) - {"Dense"}:
        raise UserError(
            f"{name}: its modules are {', '.join(kinds)}; supported are Transformer, Pooling, any number of Dense, and "
            "Normalize last"
        )
    settings, lengths = (_json(folder / file, name, need=False) for file in (_SETTINGS, _LENGTH))
    if lengths.get("do_lower_case"):
        raise UserError(f"{name}: {_LENGTH} sets do_lower_case, which is not supported; use an uncased tokenizer")
    length = lengths.get("max_seq_length")
    prompts = settings.get("prompts") or {}
    return Layout(
        pooling=_pooling(_json(modules[1][1] / "config.json", name), name),
        normalise=kinds[-1] == "Normalize",
        max_length=length if type(length) is int and length > 0 else None,
        prompts=(tuple((str(key), str(text)) for key, text in prompts.items()), settings.get("default_prompt_name")),
        stated=True,
    )


def read_dense(folder: Path, name: str) -> tuple[Dense, ...]:
    """Read the dense modules of a folder, with their weights."""
    return tuple(_dense(place, name) for kind, place in _modules(folder, name) or () if kind == "Dense")


def write_modules(model: SentenceEmbedder, folder: Path) -> None:
    """Write the files that describe an embedder, and its dense modules, beside its encoder."""
    layout, width = model.layout, int(model.config.hidden_size)
    modules = [("Transformer", "")]
    flags = {flag: mode in layout.pooling for flag, mode in _FLAGS.items() if mode in POOLINGS}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width} | flags)
    modules.append(("Pooling", "1_Pooling"))
    dense: list[Any] = list(model.dense)
    for one in dense:
        place = f"{len(modules)}_Dense"
        linear = one.linear
        described = {"in_features": linear.in_features, "out_features": linear.out_features,
                     "bias": linear.bias is not None, "activation_function": one.activation_name}  # fmt: skip
        _write(folder / place / "config.json", described)
        weights = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in one.state_dict().items()}
        save_file(weights, folder / place / "model.safetensors", metadata={"format": "pt"})
        modules.append(("Dense", place))
    if layout.normalise:
        place = f"{len(modules)}_Normalize"
        _write(folder / place / "config.json", {})
        modules.append(("Normalize", place))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(modules)
    ]
    _write(folder / _MODULES, listed)
    length = {} if layout.max_length is None else {"max_seq_length": layout.max_length}
    _write(folder / _LENGTH, length | {"do_lower_case": False})
    prompts, default = layout.prompts
    settings = {"prompts": dict(prompts), "default_prompt_name": default, "similarity_fn_name": "cosine"}
    _write(folder / _SETTINGS, settings | {"__version__": {}})


def _modules(folder: Path, name: str) -> list[tuple[str, Path]] | None:
    """Return the class and the folder of each module; None without `modules.json`."""
    if not (folder / _MODULES).is_file():
        return None
    try:
        listed = read_json(folder / _MODULES)
        found = [(str(one["type"]).rpartition(".")[2], folder / str(one["path"])) for one in listed]
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    if not found:
        raise UserError(f"{name}: its {_MODULES} does not list the modules of a sentence-transformers model")
    for _, place in found:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{name}: its {_MODULES} points outside of the folder; it is not read")
        if place.is_dir():
            check_files(place, name)
    return found


def _pooling(config: dict[str, Any], name: str) -> tuple[str, ...]:
    stated = config.get("pooling_mode")
    modes = [stated] if isinstance(stated, str) else list(stated or [])
    modes = modes or [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
    unknown = [mode for mode in modes if mode not in POOLINGS]
    if unknown:
        raise UserError(f"{name}: its pooling {unknown[0]!r} is not supported; supported are {', '.join(POOLINGS)}")
    return tuple(modes)


def _dense(place: Path, name: str) -> Dense:
    config = _json(place / "config.json", name)
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if activation not in ACTIVATIONS:
        known = ", ".join(one.rpartition(".")[2] for one in ACTIVATIONS)
        raise UserError(f"{name}: the activation {activation} of {place.name} is not supported; supported are {known}")
    try:
        if (place / "model.safetensors").is_file():
            weights = load_file(place / "model.safetensors")
        else:
            weights = torch.load(place / "pytorch_model.bin", map_location="cpu", weights_only=True)
        if tuple(weights["linear.weight"].shape) != (int(config["out_features"]), int(config["in_features"])):
            raise ValueError("its weights are not of the sizes in its config.json")
        made = Dense(
            int(config["in_features"]), int(config["out_features"]), bias=bool(config.get("bias", True)),
            activation=activation,
        )  # fmt: skip
        made.load_state_dict({key: tensor.float() for key, tensor in weights.items()})
    except Exception as error:
        # Damaged files make torch and safetensors raise nearly any exception.
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{name}: cannot read {place.name}: {reason}") from None
    return made


def _json(path: Path, name: str, *, need: bool = True) -> dict[str, Any]:
    try:
        found = read_json(path)
    except FileNotFoundError:
        if not need:
            return {}
        raise UserError(f"{name}: {path.parent.name}/{path.name} is missing; copy the model again") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{name}: cannot read {path.name} ({error}); copy the model again") from None
    return found if isinstance(found, dict) else {}


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
