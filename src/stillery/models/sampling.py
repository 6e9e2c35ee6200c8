"""Settings of generation that change nothing.

What a caller of `generate` does not set is taken from the model's own generation_config, and a published checkpoint may
penalise repetition or cut its distribution: so whoever says how texts are to be written has to say all of it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["AS_THEY_ARE", "PLAINLY"]

PLAINLY: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": (0, 1.0),
    "max_time": float("inf"),
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "use_cache": True,
}
"""One text for each prompt, nothing penalised, no hurry."""

AS_THEY_ARE: dict[str, Any] = {
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0
}  # fmt: skip
"""Tokens drawn as likely as the model finds them."""
