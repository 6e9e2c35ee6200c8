"""Atomic export of a student as a checkpoint."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.atomic import atomic_files
from stillery.models.custom_head import write_custom
from stillery.models.full_disk import saving
from stillery.models.kv_cache import cache_is_too_shallow
from stillery.models.projected_head import folded, is_custom
from stillery.models.quiet import quiet

__all__ = ["export"]


def export(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, card: str, ends: Sequence[int] = ()
) -> None:
    """Write config, safetensors weights, tokenizer and model card of a student, so that transformers alone loads it.

    Other files in the folder are kept; `config.json` is written last, and a folder without it is no model. A model that
    generates text keeps its generation config, with `ends` as its end tokens; where transformers creates a KV cache
    with too few layers, caching is disabled, which is slower. A projector is folded into the head on a copy. A model
    whose head cannot be folded is saved in a format that only stillery loads (`stillery.models.custom_head`).
    """
    with quiet(), saving(folder), atomic_files(folder, last="config.json") as part:
        if is_custom(model):
            write_custom(model, part)
        else:
            folded(model).save_pretrained(part)
            if ends:
                generation = copy.deepcopy(model.generation_config)
                generation.eos_token_id = list(ends) if len(ends) > 1 else ends[0]
                generation.use_cache = False if cache_is_too_shallow(model) else generation.use_cache
                generation.save_pretrained(part)
        for weights in part.glob("*.safetensors"):
            # safetensors makes its files readable by the owner only, regardless of the umask.
            shutil.copymode(part / "config.json", weights)
        tokenizer.save_pretrained(part)
        (part / "README.md").write_text(card, encoding="utf-8")
