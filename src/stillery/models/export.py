"""Write a student as a checkpoint folder, whole or not at all."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.atomic import atomic_folder
from stillery.models.custom_head import write_custom
from stillery.models.full_disk import saving
from stillery.models.kv_cache import deeper_than_its_past
from stillery.models.projected_head import folded, is_custom
from stillery.models.quiet import quiet

__all__ = ["export"]


def export(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, card: str, ends: Sequence[int] = ()
) -> None:
    """Write config, safetensors weights, tokenizer and model card, so that transformers loads it by itself.

    A model that writes text keeps how it generates, and stops at any of the tokens `ends`; one for which transformers
    keeps too little of what it wrote so far is told to keep nothing, which takes longer. A projector is folded into the
    head on a copy. A model whose head cannot fold is written so that only stillery loads it
    (`stillery.models.custom_head`).
    """
    with quiet(), saving(folder), atomic_folder(folder) as part:
        if is_custom(model):
            write_custom(model, part)
        else:
            folded(model).save_pretrained(part)
            if ends:
                generation = copy.deepcopy(model.generation_config)
                generation.eos_token_id = list(ends) if len(ends) > 1 else ends[0]
                generation.use_cache = False if deeper_than_its_past(model) else generation.use_cache
                generation.save_pretrained(part)
        for weights in part.glob("*.safetensors"):
            # safetensors lets nobody but the owner read what it writes, whatever the user's umask says.
            shutil.copymode(part / "config.json", weights)
        tokenizer.save_pretrained(part)
        (part / "README.md").write_text(card, encoding="utf-8")
