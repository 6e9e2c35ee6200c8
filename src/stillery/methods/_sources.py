"""Where each default of each method comes from; the values themselves are the defaults of the methods' functions.

- `paper`: stated in the paper;
- `grid`: one value of the grid the paper searched;
- `code`: from the released code, where the paper is silent or plainly a misprint;
- `third party`: from others' code or descriptions, where neither paper nor released code was to be had;
- `inferred`: chosen here, with a reason in the method's docstring or in docs/methods.md.
"""

from __future__ import annotations

__all__ = ["SOURCES"]

_LAYER_SELECTION = {
    "hard_weight": "code", "soft_weight": "code", "temperature": "code", "layer_weight": "code", "embedding": "code",
    "released": "inferred", "normalise": "inferred", "raw_last": "inferred",
}  # fmt: skip
_RAIL = {
    "hard_weight": "paper", "soft_weight": "paper", "temperature": "inferred", "layer_weight": "paper",
    "width": "paper", "projection_start": "inferred", "frozen_teacher": "inferred", "unmasked": "inferred",
}  # fmt: skip
_ILD = {
    "hard_weight": "code", "soft_weight": "code", "temperature": "code", "layer_share": "paper",
    "least_steps": "inferred", "attention": "paper", "states": "paper",
    "attention_weight": "paper", "hidden_weight": "paper", "always_project": "paper",
    "relation_heads": "inferred", "normalise": "inferred",
}  # fmt: skip

SOURCES: dict[str, dict[str, str]] = {
    "none": {"hard_weight": "inferred"},
    "kd": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred", "square": "paper"},
    "pkd": {"layers": "paper", "hard_weight": "grid", "soft_weight": "paper", "temperature": "grid", "square": "code",
            "layer_weight": "grid", "normalise": "paper"},
    "layer-forward": _LAYER_SELECTION,
    "layer-reverse": _LAYER_SELECTION,
    "layer-all-to-one": _LAYER_SELECTION,
    "layer-random": _LAYER_SELECTION,
    "rail-kd": _RAIL | {"shared": "inferred"},
    "rail-kd-concat": _RAIL,
    "alp-kd": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred",
               "layer_weight": "third party", "states": "third party", "scale": "third party", "detach": "third party"},
    "ckd-combine": {"hard_weight": "code", "soft_weight": "code", "temperature": "inferred", "layer_weight": "code",
                    "partition": "code", "states": "inferred"},
    "codir": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred",
              "layer_weight": "inferred", "negatives": "third party", "contrast_temperature": "third party",
              "width": "third party"},
    "distilbert": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "code",
                   "layer_weight": "inferred"},
    "ild-rtc": {"hard_weight": "grid", "soft_weight": "paper", "temperature": "paper", "square": "inferred",
                "layer_weight": "grid", "include_last": "paper"},
    "ild-top": {"hard_weight": "grid", "soft_weight": "paper", "temperature": "paper", "layer_weight": "grid",
                "include_last": "paper"},
    "simkd": {"layer_weight": "paper", "feature": "inferred"},
    "universal-kd": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred",
                     "layer_weight": "inferred", "pseudo_temperature": "inferred", "heads_share": "inferred",
                     "layer_share": "third party", "prediction_share": "third party",
                     "least_steps": "inferred"},
    "tinybert": {"hard_weight": "code", "soft_weight": "code", "temperature": "code", "layer_share": "inferred",
                 "least_steps": "inferred",
                 "attention_weight": "code", "hidden_weight": "code", "always_project": "paper",
                 "released": "inferred", "normalise": "inferred"},
    "minilm": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred",
               "layer_share": "inferred", "least_steps": "inferred", "attention_weight": "paper",
               "value_weight": "paper"},
    "minilm-v2": {"hard_weight": "inferred", "soft_weight": "inferred", "temperature": "inferred",
                  "layer_share": "inferred", "least_steps": "inferred", "query_weight": "paper",
                  "key_weight": "paper", "value_weight": "paper",
                  "relation_heads": "inferred"},
    "bert-emd": {"hard_weight": "code", "soft_weight": "code", "temperature": "code", "layer_weight": "code",
                 "reweighed": "paper", "separate": "code", "always_project": "code", "normalise": "inferred"},
    "ckd-context": {"hard_weight": "code", "soft_weight": "code", "temperature": "inferred", "word_weight": "inferred",
                    "layer_weight": "inferred", "angle_weight": "inferred"},
    "l-ild": _ILD,
    "u-ild": _ILD,
    "emd-ild": _ILD | {"reweighed": "code"},
    "cr-ild": _ILD | {"alpha": "paper", "consistency_weight": "code",
                      "hidden_consistency": "paper", "ramp": "paper", "ramp_steps": "inferred",
                      "pairing": "paper", "larger": "paper", "stop_gradient": "code", "kl_direction": "paper"},
}  # fmt: skip
"""Option to source, by method."""
