"""Settings of training and of the teacher cache, shared by all methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stillery.setting import Panel, setting

__all__ = ["PRECISIONS", "Storing", "Training"]

PRECISIONS = ("auto", "fp32", "bf16", "fp16")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training options; all methods are compared at the defaults."""

    panel: ClassVar[Panel] = Panel.TRAINING

    epochs: int = setting(5, "Passes over the training split, all stages together.", least=1, panel=Panel.FIRST)
    max_steps: int | None = setting(None, "Stop after this many optimiser steps, whatever --epochs says.", least=1)
    batch_size: int = setting(32, "Examples per forward pass and process.", least=1)
    accumulate: int = setting(
        1,
        "Forward passes per optimiser step; 4 x 8 trains like 1 x 32, unless a method compares examples of a batch.",
        least=1,
    )
    lr: float = setting(5e-5, "Peak learning rate of AdamW.", above=0, panel=Panel.FIRST)
    warmup: float = setting(0.1, "Share of a stage's steps over which the learning rate rises.", least=0, most=1)
    weight_decay: float = setting(0.01, "Weight decay, not applied to biases and norms.", least=0)
    clip: float = setting(1.0, "Gradient norm to clip to, projections included; 0 turns it off.", least=0)
    precision: str = setting(
        "auto",
        "Number format: auto is fp32 on a CPU, bf16 on a GPU that has it.",
        choices=PRECISIONS,
        panel=Panel.SPEED,
    )
    eval_every: int | None = setting(None, "Score the dev split every N steps.  [default: once per epoch]", least=1)
    checkpoint_every: int = setting(500, "Save a checkpoint to resume from every N steps.", least=1, panel=Panel.OUTPUT)
    checkpoint_seconds: float | None = setting(
        None,
        "Save one too at most N seconds after the last, and sooner where that takes a twentieth of the time.",
        above=0,
        panel=Panel.OUTPUT,
    )
    snapshot_every: int | None = setting(
        None, "Keep the student's weights every N steps, and after each stage, in snapshots/, for `stillery analyse`.",
        least=1, panel=Panel.OUTPUT,
    )  # fmt: skip
    keep: str = setting(
        "best", "Keep the weights that are best on the dev split, or the last ones.", choices=("best", "last")
    )
    metric: str | None = setting(
        None, "Metric of a classifier that decides which weights are best.  [default: the task's first metric]"
    )
    dev_samples: int | None = setting(
        None, "Score this many dev examples while training; the score at the end is of all of them.", least=1
    )
    class_weights: str | None = setting(
        None,
        "Weigh the labels' loss of a class by how rare it is: examples / (classes x examples of it).",
        choices=("balanced",),
    )
    patience: int | None = setting(
        None, "Stop after this many scorings of the dev split without a gain.  [default: never]", least=1
    )
    seed: int = setting(0, "Seed of initialisation, order, dropout and random pairings.", least=0, most=2**32 - 1)
    graph: str = setting(
        "auto",
        "Replay steps as CUDA graphs: auto does on a GPU where a step repeats, on also says why where it cannot.",
        choices=("auto", "on", "off"),
        panel=Panel.SPEED,
    )
    log_every: int = setting(20, "Write the loss terms to the log every N steps.", least=1, panel=Panel.OUTPUT)
    grad_norms: bool = setting(False, "Log the gradient norm of each loss term too.", panel=Panel.OUTPUT)
    guards: bool = setting(
        True,
        "Warn of a loss that explodes, a dominant loss term, projections that lose rank, constant predictions.",
        panel=Panel.OUTPUT,
    )
    track: str | None = setting(
        None,
        "Send the log to trackers too: tensorboard, mlflow, wandb, trackio, or several of them with commas.",
        panel=Panel.OUTPUT,
    )
    tensorboard: bool = setting(False, "The same as --track tensorboard.", panel=Panel.OUTPUT)

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names of the requested trackers."""
        names = [name.strip() for name in (self.track or "").split(",")]
        return tuple(dict.fromkeys([*(["tensorboard"] if self.tensorboard else []), *filter(None, names)]))


@dataclass(frozen=True, kw_only=True)
class Storing:
    """Options of the teacher cache, which keeps a teacher's outputs on disk so that it runs once, not every epoch."""

    panel: ClassVar[Panel] = Panel.SPEED

    cache: str = setting(
        "auto",
        "Cache the outputs of a classifier's teacher on disk: auto does where that saves time, on also caches queries, "
        "keys and values.",
        choices=("auto", "on", "off"),
    )
    cache_limit: float = setting(20.0, "Maximum size in GB, of all runs together.", above=0)
    cache_dtype: str = setting(
        "auto", "Its number format: auto is fp32 in a run in fp32, else fp16; logits are fp32.", choices=PRECISIONS
    )
