"""Neutral generation settings: no penalties, no truncated distribution.

transformers takes settings that are not passed to `generate` from the model's own generation_config, and that of a
published checkpoint may penalise repetition or truncate the distribution. So all of them are set explicitly.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NEUTRAL_GENERATION", "NEUTRAL_SAMPLING"]

NEUTRAL_GENERATION: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": (0, 1.0),
    "max_time": float("inf"),
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
    "use_cache": True,
}
"""Generation of one text per prompt, without penalties or a time limit."""

NEUTRAL_SAMPLING: dict[str, Any] = {
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0
}  # fmt: skip
"""Sampling from the model's full distribution, without truncation."""
