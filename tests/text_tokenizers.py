"""Small word tokenizers that frame texts as those of T5, BART, GPT-2 and Llama do."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
FRAMES = {"t5": "$A </s>", "bart": "<s> $A </s>", "gpt2": None, "llama": "<s> $A"}


def word_tokenizer(family: str, longest: int = 1000, more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Words w0 to w99, a line break and a few others, and `more`, are one token each; spaces are none."""
    words = [*SPECIAL, "\n", ":", "translate", "answer", *(f"w{number}" for number in range(100)), *more]
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Split(" ", "removed")
    frame = FRAMES[family]
    if frame is not None:
        backend.post_processor = TemplateProcessing(single=frame, special_tokens=[("<s>", 1), ("</s>", 2)])
    # GPT-2 has no token for padding.
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    special |= {} if family == "gpt2" else {"pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=longest, **special)
