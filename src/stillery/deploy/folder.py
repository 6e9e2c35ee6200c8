"""The files beside an ONNX model: its tokenizer with truncation and padding, its configuration and labels."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from stillery.errors import UserError
from stillery.models.quiet import quiet

__all__ = ["write_config", "write_tokenizer"]


def write_config(config: PreTrainedConfig, folder: Path) -> None:
    """Write config.json, which names the labels."""
    with quiet():
        config.save_pretrained(folder)


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path, max_length: int, name: str) -> None:
    """Write a tokenizer whose `tokenizer.json` truncates and pads, so that the `tokenizers` package alone reads texts.

    transformers sets both for each call, and so is not affected.
    """
    from tokenizers import Tokenizer

    with quiet():
        tokenizer.save_pretrained(folder)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(
            f"{name}: its tokenizer has no tokenizer.json (it is a slow one), which a model needs to run without "
            "transformers; save a fast tokenizer beside the model"
        )
    alone = Tokenizer.from_file(str(file))
    alone.enable_truncation(min(max_length, tokenizer.model_max_length), direction=tokenizer.truncation_side)
    alone.enable_padding(
        direction=tokenizer.padding_side,
        pad_id=int(tokenizer.pad_token_id),
        pad_type_id=int(tokenizer.pad_token_type_id),
        pad_token=str(tokenizer.pad_token),
    )
    alone.save(str(file))
