"""stillery: intermediate-layer knowledge distillation of Transformer language models.

from stillery import distill, finetune

teacher = finetune(model="minilm-l6", data=reviews)
run = distill(teacher=teacher, data=reviews, method="layer-forward", layers=3)
run, run.model, run.predictions

Every function takes files or what is in memory: a DataFrame, a `datasets.Dataset`, a list of dicts.
"""

from __future__ import annotations

from stillery.api.calls import analysis, compare, diagnose, distill, evaluate, finetune, predict, report, score, shrink
from stillery.train.callbacks import STOP

__all__ = [
    "STOP", "analysis", "compare", "diagnose", "distill", "evaluate", "finetune", "predict", "report", "score",
    "shrink",
]  # fmt: skip
