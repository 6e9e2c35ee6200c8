"""Python that uses an exported model without torch: onnxruntime, tokenizers and numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["onnx_usage"]

_OF_TOKENS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""The attribute of a token sequence of `tokenizers` for each input."""


def onnx_usage(
    file: str, inputs: Sequence[str], encode: str, shown: Sequence[str], *, names: bool, first: Sequence[str] = ()
) -> list[str]:
    """Return code that runs in the folder of an export.

    Args:
        file: the ONNX file.
        inputs: the names of its inputs.
        encode: the call of the tokenizer.
        shown: the lines that show the result, from `tokens` and `logits`.
        names: whether they use the `names` of labels.
        first: lines before the tokenizer's.
    """
    listed = [f'    "{name}": np.array([one.{_OF_TOKENS[name]} for one in tokens]),' for name in inputs]
    return [
        *(["import json", ""] if names else []),
        "import numpy as np",
        "import onnxruntime",
        "from tokenizers import Tokenizer",
        "",
        *(['names = json.load(open("config.json", encoding="utf-8"))["id2label"]'] if names else []),
        *first,
        f'tokens = Tokenizer.from_file("tokenizer.json").{encode}',
        "inputs = {",
        *listed,
        "}",
        f'(logits,) = onnxruntime.InferenceSession("{file}").run(["logits"], inputs)',
        *shown,
    ]
