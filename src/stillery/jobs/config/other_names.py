"""Names of settings in other libraries: the equivalent setting here, or the reason that there is none."""

from __future__ import annotations

from collections.abc import Iterable

from stillery.errors import nearest

__all__ = ["OTHER_NAMES", "REASONS", "not_a_setting"]

OTHER_NAMES = {
    "adam_weight_decay": "weight_decay",
    "batch": "batch_size",
    "checkpoint": "model",
    "dataset": "data",
    "dataset_name": "task",
    "early_stopping_patience": "patience",
    "eval_batch_size": "batch_size",
    "eval_steps": "eval_every",
    "gradient_accumulation": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "hidden_size": "width",
    "label_column": "label",
    "labels": "label",
    "learning_rate": "lr",
    "logging_steps": "log_every",
    "max_grad_norm": "clip",
    "max_seq_length": "max_length",
    "mixed_precision": "precision",
    "model_name": "model",
    "model_name_or_path": "model",
    "n_epochs": "epochs",
    "num_attention_heads": "heads",
    "num_beams": "beams",
    "num_epochs": "epochs",
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "num_train_epochs": "epochs",
    "output": "out",
    "output_dir": "out",
    "output_folder": "out",
    "overwrite_output_dir": "overwrite",
    "per_device_train_batch_size": "batch_size",
    "per_device_eval_batch_size": "batch_size",
    "per_gpu_train_batch_size": "batch_size",
    "random_seed": "seed",
    "random_state": "seed",
    "report_to": "track",
    "resume_from_checkpoint": "resume",
    "save_steps": "checkpoint_every",
    "student_layers": "layers",
    "target_column": "label",
    "teacher_model": "teacher",
    "text_column": "text",
    "train_batch_size": "batch_size",
    "warmup_ratio": "warmup",
    "wd": "weight_decay",
}
"""The equivalent setting for a name of another library; its values mean the same."""

_SPLITS = "give all splits as data, a folder with train, dev and test files, or in Python {'train': ..., 'dev': ...}"
REASONS = {
    "args": "settings are given one by one",
    "bf16": 'say precision "bf16"',
    "callbacks": "in Python give on_step or on_score, functions that see the numbers and may stop the run",
    "compute_metrics": "in Python give metric, a function of labels and predictions",
    "data_collator": "the kind of model decides how examples become batches",
    "device": "the GPU is used where there is one; CUDA_VISIBLE_DEVICES says which",
    "eval_data": _SPLITS,
    "eval_dataset": _SPLITS,
    "evaluation_strategy": "eval_every is a number of steps; left out, the dev split is scored once per epoch",
    "eval_strategy": "eval_every is a number of steps; left out, the dev split is scored once per epoch",
    "fp16": 'say precision "fp16"',
    "load_best_model_at_end": 'say keep "best", which is the default, or keep "last"',
    "lr_scheduler_type": "the learning rate rises over the share of steps that warmup says, then falls to 0",
    "metric_for_best_model": "the first metric decides; in Python metric gives another",
    "optim": "AdamW is always used",
    "optimizer": "AdamW is always used",
    "optimizers": "AdamW is always used",
    "overwrite": "a run file never replaces a run by itself; give it where the job is started",
    "save_strategy": "checkpoint_every is a number of steps",
    "student": "layers, width and init say what the student is; init may be a checkpoint folder",
    "test_data": _SPLITS,
    "test_dataset": _SPLITS,
    "tokenizer": "a model's folder holds its tokenizer; in Python it is given beside a model in memory",
    "train_data": _SPLITS,
    "train_dataset": _SPLITS,
    "train_file": _SPLITS,
    "validation_data": _SPLITS,
    "validation_file": _SPLITS,
    "warmup_steps": "warmup is a share of the steps, such as 0.1",
}
"""Advice for names of other libraries that have no equivalent setting, or one with another kind of value."""


def not_a_setting(name: str, known: Iterable[str], shown: str | None = None) -> str:
    """Return the error message for an unknown setting: its name here, what to do instead, or the nearest name.

    `known` are the existing settings, `shown` is the spelling of the name in the message.

    >>> not_a_setting("learning_rate", ["lr", "layers"])
    'learning_rate is not a setting: it is called lr here'
    >>> not_a_setting("fp16", ["precision"])
    'fp16 is not a setting: say precision "fp16"'
    >>> not_a_setting("layer", ["lr", "layers"])
    "layer is not a setting: did you mean 'layers'?"
    """
    known = list(known)
    here = OTHER_NAMES.get(name)
    if here is not None and (here in known or here in ("out", "resume", "overwrite")):
        hint = f"it is called {here} here"
    else:
        hint = REASONS.get(name) or nearest(name, known)
    return f"{shown or name} is not a setting: {hint}"
