"""Hyperparameters of the papers, by name: `--preset NAME`. Options given beside a preset override it.

Teachers, tasks and student sizes are left to the user. Values come from the papers; where a paper gives a grid, the
value that its text or tables report as best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stillery.errors import UserError, nearest

__all__ = ["PRESETS", "Preset", "preset"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings of a preset, their source, and the job they are for."""

    source: str
    settings: dict[str, Any]
    job: str = "distill"


def _teacher(source: str, lr: float, epochs: int, batch_size: int, **more: Any) -> Preset:
    settings = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "max_length": 128, **more}
    return Preset(source=source, settings=settings, job="finetune")


def _layer_selection_teacher(task: str, lr: float) -> Preset:
    source = f"layer selection's teacher, {task.upper()}: 3 epochs, batch 32, no warm-up, no weight decay"
    return _teacher(source, lr, 3, 32, warmup=0.0, weight_decay=0.0)


def _layer_selection(task: str, lr: float, epochs: int) -> Preset:
    return Preset(
        source=f"layer selection, {task.upper()} (released scripts: batch 32, no warm-up, no weight decay)",
        settings={"method": "layer-forward", "init": "even", "epochs": epochs, "lr": lr, "batch_size": 32,
                  "warmup": 0.0, "weight_decay": 0.0},
    )  # fmt: skip


def _ild_rtc(layers: int, alpha: float, beta: float, lr: float) -> Preset:
    return Preset(
        source=f"ILD-RTC, Table {3 if layers == 6 else 4} ({layers} layers); 4 epochs, batch 8, T = 10",
        settings={"method": "ild-rtc", "layers": layers, "epochs": 4, "batch_size": 8, "lr": lr, "temperature": 10.0,
                  "hard_weight": alpha, "init": "first", "head": "reuse", "options": {"layer_weight": beta}},
    )  # fmt: skip


_ADAFACTOR = "with Adafactor; here it is AdamW at that rate"
# The scripts' warm-ups of 100 and 500 steps as shares of their runs: DART has 62,659 pairs; 100,000 of WMT16 are used.
_DART = {"weight_decay": 0.0, "beams": 5}
_WMT16 = {"weight_decay": 0.0, "beams": 4, "early_stopping": True, "samples": 100_000}

_WRITING: dict[str, Preset] = {
    "layer-selection-teacher-dart": _teacher(
        "layer selection's teacher, BART on DART (released scripts): 16 epochs, batch 16, lr 1e-5, 5 beams",
        1e-5, 16, 16, warmup=0.0016, **_DART,
    ),
    "layer-selection-dart": Preset(
        source="layer selection, BART on DART (released scripts): 18 epochs, batch 8, frozen embeddings, 5 beams",
        settings={"method": "layer-forward", "init": "even", "epochs": 18, "lr": 1e-4, "batch_size": 8,
                  "warmup": 0.0007, "max_length": 128, "max_target_length": 128, "temperature": 1.0,
                  "freeze_embeddings": True, **_DART},
    ),
    "layer-selection-teacher-wmt16-en-ro": _teacher(
        "layer selection's teacher, T5 on 100,000 pairs of WMT16 (released scripts): 9 epochs, batch 8, lr 5e-4 "
        f"{_ADAFACTOR}",
        5e-4, 9, 8, warmup=0.0044, **_WMT16,
    ),
    "layer-selection-wmt16-en-ro": Preset(
        source="layer selection, T5 on 100,000 pairs of WMT16 (released scripts): 40 epochs, batch 8, T = 2, lr 1e-4 "
        f"{_ADAFACTOR}; of 12 layers 1, 7 and 12 are copied there, here evenly spaced ones",
        settings={"method": "layer-forward", "init": "even", "epochs": 40, "lr": 1e-4, "batch_size": 8, "warmup": 0.001,
                  "temperature": 2.0, "freeze_embeddings": True, "drop_start": True, "options": {"normalise": "joint"},
                  **_WMT16},
    ),
    "cr-ild-t5-teacher": _teacher(
        "CR-ILD, appendix F.2: T5 on a task of GLUE, 10 epochs, batch 8, lr 1e-3; it follows Raffel et al., who train "
        "with Adafactor at a constant rate, here it is AdamW",
        1e-3, 10, 8,
    ),
    **{
        f"cr-ild-t5-{task}": Preset(
            source=f"CR-ILD, appendix F, T5 on {task.upper()}: the decoder's last self attention (squared error, as "
            f"TinyBERT), w_CR {weight}, then labels; lr, batch and epochs are its teacher's, the students' and the "
            "number of relation heads not given",
            settings={"method": "cr-ild", "epochs": 10, "lr": 1e-3, "batch_size": 8, "hard_weight": 1.0,
                      "stacks": "decoder",
                      "options": {"soft_weight": 0.0, "hidden_weight": 0.0, "hidden_consistency": False,
                                  "attention": "mse", "consistency_weight": weight, "relation_heads": 16,
                                  "least_steps": 1}},
        )
        for task, weight in (("mrpc", 0.2), ("rte", 0.3))
    },
}  # fmt: skip
"""Presets for models that generate text."""


_TASKS = ("sst2", "mrpc", "qqp", "mnli", "qnli", "rte")
_TABLE_3 = zip(
    _TASKS, (0.2, 0.5, 0.5, 0.2, 0.7, 0.5), (10, 500, 500, 100, 1000, 1000), (1e-5, 5e-5, 1e-5, 1e-5, 2e-5, 5e-5),
    strict=True,
)  # fmt: skip
_TABLE_4 = zip(
    _TASKS, (0.2, 0.5, 0.5, 0.5, 0.2, 0.5), (1000, 500, 10, 1000, 1000, 10), (2e-5, 1e-5, 2e-5, 2e-5, 2e-5, 1e-5),
    strict=True,
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    "layer-selection-mnli": _layer_selection("mnli", 1e-5, 10),
    "layer-selection-qqp": _layer_selection("qqp", 2e-5, 10),
    "layer-selection-qnli": _layer_selection("qnli", 2e-5, 10),
    "layer-selection-sst2": _layer_selection("sst2", 2e-5, 20),
    **{f"ild-rtc-6-{task}": _ild_rtc(6, alpha, float(beta), lr) for task, alpha, beta, lr in _TABLE_3},
    **{f"ild-rtc-4-{task}": _ild_rtc(4, alpha, float(beta), lr) for task, alpha, beta, lr in _TABLE_4},
    "rail-kd-paper": Preset(
        source="RAIL-KD: 40 epochs, lr of {1e-5, 2e-5, 5e-5, 4e-6}, batch of {8, 16, 32}, thirds, width 128",
        settings={"method": "rail-kd", "init": "even", "epochs": 40, "lr": 2e-5, "batch_size": 32,
                  "options": {"projection_start": "literal", "frozen_teacher": False}},
    ),
    "rail-kd-concat-paper": Preset(
        source="RAIL-KD, concatenated, as rail-kd-paper",
        settings={"method": "rail-kd-concat", "init": "even", "epochs": 40, "lr": 2e-5, "batch_size": 32,
                  "options": {"projection_start": "literal", "frozen_teacher": False}},
    ),
    "pkd-paper": Preset(
        source="PKD: 4 epochs, batch 32, alpha of {.2, .5, .7}, T of {5, 10, 20}, beta of {10, 100, 500, 1000}",
        settings={"method": "pkd", "epochs": 4, "batch_size": 32, "lr": 2e-5, "temperature": 10.0, "hard_weight": 0.5,
                  "init": "first", "options": {"layer_weight": 100.0}},
    ),
    "tinybert-paper": Preset(
        source="TinyBERT's released task distillation: 10 epochs of layers, then 3 of predictions, batch 32",
        settings={"method": "tinybert", "init": "even", "epochs": 13, "batch_size": 32, "lr": 5e-5,
                  "options": {"layer_share": 10 / 3, "least_steps": 1}},
    ),
    "cr-ild-d1": Preset(
        source="CR-ILD, appendix D.1: 20 epochs of layers at lr 5e-5, then 4 of predictions, batch 32, T = 2",
        settings={"method": "cr-ild", "epochs": 24, "batch_size": 32, "lr": 5e-5, "temperature": 2.0, "init": "first",
                  "options": {"layer_share": 5.0, "least_steps": 1}},
    ),
    **{
        f"layer-selection-teacher-{task}": _layer_selection_teacher(task, lr)
        for task, lr in (("mnli", 2e-5), ("qqp", 2e-5), ("qnli", 5e-5), ("sst2", 5e-5))
    },
    "cr-ild-teacher": _teacher("CR-ILD, appendix D.1: teacher of 3 epochs, batch 32, lr 2e-5", 2e-5, 3, 32),
    "cr-ild-teacher-released": _teacher("CR-ILD's released code: teacher of 4 epochs, batch 16, lr 2e-5", 2e-5, 4, 16),
    "cr-ild-teacher-1k": _teacher(
        "CR-ILD's released code on 1,000 samples: teacher of 20 epochs, batch 16, lr 2e-5", 2e-5, 20, 16, samples=1000
    ),
    "rail-kd-teacher": _teacher(
        "RAIL-KD does not state its teacher's settings: values of its students' grid, early stopping on dev",
        2e-5, 10, 32, patience=3,
    ),
    **_WRITING,
    "bert-emd-released": Preset(
        source="BERT-EMD's released script: 10 epochs, batch 32, lr 5e-5, no hard labels",
        settings={"method": "bert-emd", "epochs": 10, "batch_size": 32, "lr": 5e-5},
    ),
}  # fmt: skip


def preset(name: str, job: str) -> Preset:
    """Return the preset of that name for a job, finetune or distill; raise UserError if there is none."""
    fits = {key: value for key, value in PRESETS.items() if value.job == job}
    if name not in fits:
        wrong = f"is for stillery {PRESETS[name].job}" if name in PRESETS else "is unknown"
        raise UserError(f"the preset {name!r} {wrong}; for {job}: {nearest(name, fits)}")
    return fits[name]
