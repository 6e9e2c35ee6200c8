"""stillery: intermediate-layer knowledge distillation of Transformer language models.

from stillery import distill, finetune

teacher = finetune(model="minilm-l6", data=reviews)
run = distill(teacher=teacher, data=reviews, method="layer-forward", layers=3)
run, run.model, run.predictions

Every function takes files or what is in memory: a DataFrame, a `datasets.Dataset`, a list of dicts. `Distiller` and
`DistillationTrainer` bring a method into a training loop of your own, and into that of transformers.
"""

from __future__ import annotations

from typing import Any

from stillery.api.calls import (
    analysis,
    compare,
    diagnose,
    distill,
    evaluate,
    export,
    finetune,
    predict,
    report,
    score,
    shrink,
)
from stillery.train.callbacks import STOP

__all__ = [
    "STOP", "DistillationTrainer", "Distiller", "analysis", "compare", "diagnose", "distill", "evaluate", "export",
    "finetune", "predict", "report", "score", "shrink",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name == "Distiller":
        from stillery.api.loop.distiller import Distiller

        return Distiller
    if name == "DistillationTrainer":
        from stillery.api.loop.trainer import DistillationTrainer

        return DistillationTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
