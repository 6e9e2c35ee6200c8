"""The floor: transformers' Trainer fine-tunes the same student on the labels alone, without a teacher."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import Any

from job import PADDED, Examples, Job, Watch, carry_out, models, version_of
from transformers import Trainer, TrainerCallback, TrainingArguments


class _Epochs(TrainerCallback):
    def __init__(self, watch: Watch) -> None:
        self.watch, self.before = watch, 0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.watch.start()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.watch.epoch_ends(state.global_step - self.before)
        self.before = state.global_step


def _grouped() -> dict[str, Any]:
    """Batches of like length, by the name that the installed version has for it."""
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    named = {"train_sampling_strategy": "group_by_length"}
    return named if "train_sampling_strategy" in known else {"group_by_length": True}


def train(job: Job) -> dict[str, Any]:
    examples, watch = Examples(job), Watch(job)
    width = PADDED if job.padding == str(PADDED) else None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=job.epochs,
            per_device_train_batch_size=job.batch_size,
            learning_rate=job.lr,
            weight_decay=0.01,
            warmup_steps=0,
            bf16=job.precision == "bf16",
            use_cpu=job.device == "cpu",
            **(_grouped() if job.padding == "grouped" else {}),
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(
            model=models(job)[1],
            args=arguments,
            train_dataset=examples,
            data_collator=lambda rows: examples.collate(rows, width),
            callbacks=[_Epochs(watch)],
        )
        trainer.train()
    return watch.answer(versions={"transformers": version_of("transformers")})


if __name__ == "__main__":
    carry_out(train)
