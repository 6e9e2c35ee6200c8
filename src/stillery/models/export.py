"""Write a student as a plain checkpoint folder, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillery.atomic import atomic_folder
from stillery.models.quiet import quiet

__all__ = ["export"]


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, card: str) -> None:
    """Write config, safetensors weights, tokenizer and model card, so that transformers loads it by itself."""
    with quiet(), atomic_folder(folder) as part:
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "README.md").write_text(card, encoding="utf-8")
