"""Latency of several models on the same batches, timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.deploy.onnx_model import OnnxModel, all_threads
from stillery.models.model_inputs import accepted_inputs

__all__ = ["Latency", "in_turns", "speeds"]

Inputs = Mapping[str, Tensor]

_ROUNDS = 50
_FEWEST = 5
_SECONDS = 15.0
"""The time for which a batch size and number of threads is measured at most, if there are `_FEWEST` rounds by then."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds of one batch: the median, the 95th percentile, and how many were timed."""

    median: float
    p95: float
    batches: int

    def __str__(self) -> str:
        return f"{_ms(self.median)} / {_ms(self.p95)}"


def in_turns(runs: Sequence[Callable[[int], object]], batches: int) -> list[Latency]:
    """Return the latency of each of several functions, each called with the number of a batch.

    They take turns, so that a busy machine slows all of them. Each runs a batch once untimed, as the one before it has
    emptied the processor's caches, and then timed.
    """
    times: list[list[float]] = [[] for _ in runs]
    began = perf_counter()
    for turn in range(_ROUNDS):
        if turn >= _FEWEST and perf_counter() - began > _SECONDS:
            break
        for run, own in zip(runs, times, strict=True):
            run(turn % batches)
            start = perf_counter()
            run(turn % batches)
            own.append(1000 * (perf_counter() - start))
    return [Latency(median=float(np.median(own)), p95=float(np.percentile(own, 95)), batches=len(own)) for own in times]


def speeds(
    checkpoint: PreTrainedModel, files: Sequence[Path], batches: Mapping[int, Sequence[Inputs]]
) -> dict[tuple[int, int], list[Latency]]:
    """Return the latency of a checkpoint and of ONNX files made from it, by batch size and number of threads.

    Threads are one, and all cores where there are several. `batches` are the inputs by batch size.
    """
    found = {}
    before = torch.get_num_threads()
    checkpoint.eval()
    try:
        for threads in sorted({1, all_threads()}):
            torch.set_num_threads(threads)
            models = [checkpoint, *(OnnxModel(file, checkpoint.config, threads=threads) for file in files)]
            with torch.inference_mode():
                for size, own in batches.items():
                    ready = [accepted_inputs(checkpoint, one) for one in own]
                    runs = [partial(_run, model, ready) for model in models]
                    found[size, threads] = in_turns(runs, len(ready))
    finally:
        torch.set_num_threads(before)
    return found


def _run(model: torch.nn.Module, batches: Sequence[Inputs], place: int) -> None:
    model(**batches[place])


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
