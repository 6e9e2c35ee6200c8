"""Loading of models, tokenizers and configurations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillery.errors import UserError
from stillery.models.custom_head import MARK, is_custom_folder, read_custom
from stillery.models.family import FAMILIES, family_of, kind_of
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.folder_checks import check_files, check_sizes
from stillery.models.head_type import SEQUENCE, TOKEN, head_in, head_type
from stillery.models.hub import fetch_weights
from stillery.models.model_folder import check_weights, model_folder
from stillery.models.projected_head import final_linear
from stillery.models.quantised import as_float32, reading_options
from stillery.models.quiet import quiet, reading_weights
from stillery.models.same_tokenizer import tokenizer_difference
from stillery.models.stack_layout import GENERATORS
from stillery.models.wrong_model import untrained_head
from stillery.progress import detail

__all__ = [
    "Loaded",
    "check_same_tokenizer",
    "fingerprint",
    "load_classifier",
    "load_encoder",
    "load_generator",
    "load_head",
    "load_token_classifier",
    "load_tokenizer",
    "model_kind",
    "read_config",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A model in float32, its tokenizer, the name it was loaded by, and the weights that the checkpoint lacks."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    missing: frozenset[str]


def _not_loaded(name: str, what: str, error: Exception) -> UserError:
    if isinstance(error, UnpicklingError):
        # torch's own message advises executing the file's contents.
        return UserError(
            f"{name}: its .bin weights are damaged, or hold more than weights, which could run code and is not read; "
            "use a copy with model.safetensors, or one you trust that was saved again with save_pretrained"
        )
    if isinstance(error, SafetensorError):
        what += " (truncated or damaged?)"
    reason = " ".join(str(error).split())[:200]
    if not isinstance(error, (OSError, ValueError, SafetensorError)):
        reason = f"{type(error).__name__}: {reason}"
    return UserError(f"{name}: cannot read {what}: {reason}")


# Damaged or hand-written files make transformers and tokenizers raise nearly any exception (KeyError, TypeError,
# ZeroDivisionError, bare Exception), so every exception while reading files is reported as an error of the files.

_AS_WE_CALL = {
    "return_dict": True, "output_hidden_states": False, "output_attentions": False, "chunk_size_feed_forward": 0,
}  # fmt: skip
"""Settings of how a model is called, not of what it computes: what a checkpoint says of them is not taken over."""


_SMALL = 100
"""A vocabulary with fewer tokens than this may be special tokens only."""


def _config(folder: str, name: str) -> PreTrainedConfig:
    check_files(folder, name)
    try:
        with quiet():
            config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        raise _not_loaded(name, "the model's config.json", error) from None
    for setting, value in _AS_WE_CALL.items():
        if hasattr(config, setting):
            setattr(config, setting, value)
    return config


def read_config(name: str) -> PreTrainedConfig:
    """Load the configuration of a model."""
    return _config(model_folder(name), name)


def model_kind(name: str) -> str:
    """Return the kind of a model from its configuration: `encoder` (classifiers), `encoder-decoder` or `decoder`."""
    return kind_of(read_config(name), name)


def load_tokenizer(name: str, *, pad_with_end: bool = False, words: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model; with `pad_with_end` the end token replaces a missing padding token.

    With `words` its inputs are sentences split into words: a byte-level tokenizer (RoBERTa's) then prefixes each word
    with a space, without which it would tokenise a sentence as a single word.
    """
    folder = model_folder(name)
    check_files(folder, name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if words and _joins_words(tokenizer):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, add_prefix_space=True)
    except Exception as error:
        raise _not_loaded(name, "the tokenizer", error) from None
    if pad_with_end and tokenizer.pad_token_id is None and tokenizer.eos_token_id is not None:
        tokenizer.pad_token = tokenizer.eos_token
        detail(f"{name}: its tokenizer has no padding token; texts are padded with its end token {tokenizer.eos_token}")
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or tokenizer.pad_token_id is None:
        raise UserError(f"{name}: its tokenizer has no padding token, so texts cannot be batched")
    # Without tokenizer files transformers creates a tokenizer with special tokens only. A large vocabulary is not
    # listed, which takes long.
    if len(tokenizer) < _SMALL and set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(f"{name}: no tokenizer beside the model; save the tokenizer in the same folder")
    return tokenizer


def _joins_words(tokenizer: Any) -> bool:
    """Return whether a tokenizer marks the start of a word by a preceding space, and does not add one itself."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    found = json.loads(backend.to_str())["pre_tokenizer"] or {}
    steps = found.get("pretokenizers", [found])
    return any(step.get("type") == "ByteLevel" and not step["add_prefix_space"] for step in steps)


def _read(auto_class: Any, name: str, folder: str, config: PreTrainedConfig) -> tuple[PreTrainedModel, set[str]]:
    """Load a model from its files; return it and the names of weights that are missing or of another size."""
    fetch_weights(name)
    if is_custom_folder(folder):
        model, missing = read_custom(config, folder, name)
        own = head_type(model)
        if auto_class is own.auto:
            return model, missing
        if auto_class is not AutoModel:
            raise UserError(f"{name}: it has a custom head for {own.words}, which is not what is needed here")
        encoder: Any = model.base_model
        return encoder, {key.removeprefix(f"{model.base_model_prefix}.") for key in missing}
    if any(one.startswith(MARK) for one in config.architectures or []):
        raise UserError(
            f"{name}: it has a custom head and cannot be read from here; give the whole folder of its export"
        )
    check_weights(folder, name)
    options = reading_options(config, name)
    with reading_weights():
        model, info = auto_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            # From a .bin file, which is a pickle, only tensors are read; no code is executed.
            weights_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    if options:
        model = as_float32(model)
    return model, set(info["missing_keys"]) | {key[0] for key in info["mismatched_keys"]}


def _load(auto_class: Any, name: str, folder: str, config: PreTrainedConfig, *, words: bool = False) -> Loaded:
    kind = kind_of(config, name)
    try:
        with quiet():
            check_sizes(config, folder, name, auto_class)
    except UserError:
        raise
    except Exception as error:
        raise _not_loaded(name, "the model", error) from None
    tokenizer = load_tokenizer(name, pad_with_end=kind == "decoder", words=words)
    tokens = max(tokenizer.get_vocab().values()) + 1
    if tokens > config.vocab_size:
        raise UserError(f"{name}: its tokenizer has {tokens} tokens, the model's vocabulary only {config.vocab_size}")
    try:
        with quiet():
            model, missing = _read(auto_class, name, folder, config)
    except UserError:
        raise
    except Exception as error:
        raise _not_loaded(name, "the model", error) from None
    body = list(missing)
    if kind == "encoder":
        family = family_of(config, name)
        body = [key for key in missing if family.in_body(key.removeprefix(f"{model.base_model_prefix}."))]
    if body:
        raise UserError(
            f"{name}: its weights are not those of its config.json: {len(body)} tensors are absent or of other sizes, "
            f"such as {min(body)}"
        )
    # The alignment of memory-mapped tensors depends on the file, and the last bit of a product on the alignment. Copies
    # are aligned, so that the same weights give the same results from any file.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    return Loaded(model=model, tokenizer=tokenizer, name=name, missing=frozenset(missing))


def load_classifier(name: str, *, labels: int | None = None) -> Loaded:
    """Load a sequence classifier; without `labels`, raise UserError for a checkpoint without a trained head.

    With `labels` it gets this number of outputs, and a new head if the checkpoint has none of that size.
    """
    folder = model_folder(name)
    config = _config(folder, name)
    # Called first, because its error also lists the models that generate text.
    kind_of(config, name)
    family_of(config, name)
    architectures = config.architectures
    if labels is not None:
        config.num_labels = labels
        config.problem_type = None
    loaded = _load(SEQUENCE.auto, name, folder, config)
    # Heads of ModernBERT for texts and for tokens hold weights of the same names.
    if labels is None and (loaded.missing or head_in(architectures) is TOKEN):
        raise UserError(untrained_head(architectures, folder, name, SEQUENCE))
    # The weights of a token classification head have the same names.
    return _with_new_classifier(loaded) if labels is not None and head_in(architectures) is TOKEN else loaded


def load_token_classifier(name: str, *, tags: Sequence[str] | None = None) -> Loaded:
    """Load a token classifier; without `tags`, raise UserError for a checkpoint without a trained head.

    With `tags` it has an output for each of them, in this order. The head of the checkpoint is kept if its outputs are
    these tags, otherwise a new one is initialised from the current random state.
    """
    folder = model_folder(name)
    config = _config(folder, name)
    kind_of(config, name)
    family_of(config, name)
    trained = head_in(config.architectures) is TOKEN
    if tags is not None and not 2 <= len(set(tags)) == len(tags):
        raise ValueError("token classification needs two tags or more, each of them once")
    if tags is None and not trained:
        raise UserError(untrained_head(config.architectures, folder, name, TOKEN))
    if tags is None:
        loaded = _load(TOKEN.auto, name, folder, config, words=True)
        if loaded.missing:
            raise UserError(
                f"{name}: its token classification head is not in its weights, or not of the size its config.json "
                "says; export it again"
            )
        return loaded
    kept = trained and [name for _, name in sorted((config.id2label or {}).items())] == list(tags)
    config.id2label, config.label2id = dict(enumerate(tags)), {tag: index for index, tag in enumerate(tags)}
    config.problem_type = None
    loaded = _load(TOKEN.auto, name, folder, config, words=True)
    return loaded if kept else _with_new_classifier(loaded)


def _with_new_classifier(loaded: Loaded) -> Loaded:
    """Reinitialise the final linear layer of a classifier, and list its weights as missing."""
    classifier = final_linear(loaded.model)
    with torch.no_grad():
        classifier.weight.normal_(std=getattr(loaded.model.config, "initializer_range", 0.02))
        classifier.bias.zero_()
    own = set(classifier.parameters())
    new = {name for name, parameter in loaded.model.named_parameters() if parameter in own}
    return replace(loaded, missing=loaded.missing | new)


def load_head(name: str) -> Loaded:
    """Load a sequence or token classifier, as the checkpoint is, with its trained head."""
    read = load_token_classifier if head_in(read_config(name).architectures) is TOKEN else load_classifier
    return read(name)


def load_encoder(name: str, *, words: bool = False) -> Loaded:
    """Load an encoder without its head; with `words` for sentences split into words."""
    folder = model_folder(name)
    config = _config(folder, name)
    family_of(config, name)
    return _load(AutoModel, name, folder, config, words=words)


_OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def load_generator(name: str) -> Loaded:
    """Load a text generator, an encoder-decoder or a decoder as its configuration specifies.

    Without a padding token, the tokenizer and generation pad with the end token.
    """
    folder = model_folder(name)
    config = _config(folder, name)
    kind, known = kind_of(config, name), ", ".join(GENERATORS)
    heads = [each for each in config.architectures or [] if each.endswith(_OTHER_HEADS)]
    if config.model_type in FAMILIES or heads:
        what = f"a {config.model_type} model" + (f" ({heads[0]})" if heads else "")
        raise UserError(
            f"{name}: {what} is a classifier, here a model that generates text is needed; use one of: {known}"
        )
    loaded = _load(AutoModelForSeq2SeqLM if kind == "encoder-decoder" else AutoModelForCausalLM, name, folder, config)
    generation = loaded.model.generation_config
    assert generation is not None
    if generation.pad_token_id is None:
        generation.pad_token_id = loaded.tokenizer.pad_token_id
    _unset_what_has_no_effect(generation)
    return loaded


def _unset_what_has_no_effect(generation: GenerationConfig) -> None:
    """Unset generation settings that have no effect, such as a temperature without sampling.

    transformers loads such settings but refuses to save them, so a student could not be exported.
    """
    try:
        with quiet():
            generation.validate(strict=True)
    except ValueError as error:
        for setting in re.findall(r"^- `(\w+)`:", str(error), flags=re.MULTILINE):
            setattr(generation, setting, None)


def check_same_tokenizer(teacher: Loaded, student: Loaded) -> None:
    """Raise UserError for models whose tokenizers produce different tokens for the same text."""
    difference = tokenizer_difference(teacher, student)
    if difference is not None:
        raise UserError(f"{difference}: layers can only be matched token by token; use models with one vocabulary")


def fingerprint(loaded: Loaded) -> str:
    """Return the fingerprint of a model: a hash of its weights, without those missing in the checkpoint."""
    return weights_fingerprint(loaded.model, loaded.missing)
