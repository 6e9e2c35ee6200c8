"""Fingerprints of a run's data and models, kept in its run file to detect changes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import tokenizers
import transformers
from transformers import PreTrainedTokenizerBase

from stillery.data.tokens.token_cache import described, quick_description
from stillery.jobs.chosen_recipe import recipe_fingerprint
from stillery.jobs.config.settings import StudentSettings
from stillery.jobs.warm import warm
from stillery.models.fingerprint import weights_fingerprint
from stillery.models.load_model import Loaded, fingerprint
from stillery.models.option_words import STARTS

if TYPE_CHECKING:
    from stillery.jobs.prepare import Context

__all__ = ["data_fingerprint", "distill_fingerprints", "model_fingerprints"]

# Set by where a model was read from or how it was loaded, not by what it computes.
_NO_MATTER = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")


def data_fingerprint(splits: Any) -> str:
    """Return a fingerprint of all splits."""
    return "-".join(one.fingerprint[:16] for one in (splits.train, splits.dev, splits.test) if one is not None)


def model_fingerprints(name: str, loaded: Loaded) -> dict[str, str]:
    """Return the fingerprints of a model: weights, configuration (heads, activation, labels, ...) and tokenizer.

    The last two end with the versions they hold for: another version may describe the same files differently.
    """
    config = {key: value for key, value in loaded.model.config.to_diff_dict().items() if key not in _NO_MATTER}
    versions = f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}"
    found = {name: fingerprint(loaded), f"{name}_config": f"{_digest(config)} {versions}"}
    words = _tokenizer_digest(loaded.tokenizer)
    return found if words is None else found | {f"{name}_tokenizer": f"{words} {versions}"}


def _tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the digest of a tokenizer's description, None if it has none; computed once for several runs of it."""

    def computed() -> str | None:
        words = described(tokenizer)
        return None if words is None else _digest(words)

    quick = quick_description(tokenizer)
    return computed() if quick is None else warm(("tokenizer", quick), computed)


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]


def distill_fingerprints(context: Context, settings: StudentSettings) -> dict[str, str]:
    """Return a distillation's fingerprints: data, teachers and, where given, the user's recipe and initial weights.

    `settings` are the student's with `init` resolved.
    """
    assert context.read is not None and context.model is not None and context.student is not None
    method = context.run.method
    prints = {"data": data_fingerprint(context.read.splits), **model_fingerprints("teacher", context.model)}
    if context.layers_teacher is not None:
        prints |= model_fingerprints("ild_teacher", context.layers_teacher)
    if context.texts is not None:
        prints["ild_data"] = context.texts.fingerprint[:16]
    if method.recipe is not None:
        assert context.recipe is not None
        prints["recipe"] = recipe_fingerprint(context.recipe, method.recipe)
    if settings.init_from is not None or settings.init not in STARTS:
        prints["init"] = weights_fingerprint(context.student.model)
    return prints
