"""The size of a run's steps in examples: the product of batch size, accumulation and number of processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from stillery.errors import UserError
from stillery.jobs.config.settings import Distill, Finetune

__all__ = ["CUT", "check_division", "for_processes", "in_words", "step_size"]

Run = TypeVar("Run", bound=Finetune | Distill)

CUT = ("batch_size", "accumulate")
"""The settings that divide one process's share of a step into micro-batches."""


def for_processes(run: Run, processes: int) -> Run:
    """Return the run for a number of processes; raise UserError if its run file was written for another number."""
    if run.processes in (None, processes):
        return dataclasses.replace(run, processes=processes)
    training = run.training
    together = training.batch_size * run.processes
    raise UserError(
        f"the run file is for {_count(run.processes)} with batch size {training.batch_size}, but "
        f"{_count(processes)} {'is' if processes == 1 else 'are'} running: for the same steps of "
        f"{together * training.accumulate} examples give {_cure(together, training.accumulate, processes)} beside it"
    )


def check_division(out: Path, before: Mapping[str, Any], now: Mapping[str, Any], *, by_batch: bool) -> None:
    """Refuse to resume with steps of another size; `before` and `now` are two run files of one run.

    A recipe whose losses depend on the batch (`by_batch`) needs batches of the same size too. A file without a number
    of processes is taken to be for the current number.
    """
    batch, _, processes = _division(now, now)
    batch_before, accumulate_before, processes_before = _division(before, now)
    together = batch_before * processes_before
    size, size_before = step_size(now, now), step_size(before, now)
    if size == size_before and (batch * processes == together or not by_batch):
        return
    cure = _cure(together, accumulate_before, processes)
    if size == size_before:
        raise UserError(
            f"--out {out} holds this run with {in_words(before)}, and its method depends on how a batch is composed: "
            f"give {cure}"
        )
    raise UserError(
        f"--out {out} holds this run with steps of {size_before} examples ({in_words(before)}), and these would be "
        f"of {size}: give {cure}"
    )


def step_size(values: Mapping[str, Any], otherwise: Mapping[str, Any]) -> int:
    """Return the number of examples per step of a run file; `otherwise` has the processes if it does not."""
    batch, accumulate, processes = _division(values, otherwise)
    return batch * accumulate * processes


def in_words(values: Mapping[str, Any]) -> str:
    """Describe how a run file's steps are divided.

    >>> in_words({"batch_size": 8, "accumulate": 2, "processes": 2})
    'batch size 8, 2 times, in 2 processes'
    """
    batch, accumulate, processes = _division(values, values)
    times = f", {accumulate} times," if accumulate > 1 else ""
    return f"batch size {batch}{times} in {_count(processes)}"


def _division(values: Mapping[str, Any], otherwise: Mapping[str, Any]) -> tuple[int, int, int]:
    processes = values.get("processes", otherwise.get("processes", 1))
    return int(values["batch_size"]), int(values["accumulate"]), int(processes)


def _count(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"


def _cure(together: int, accumulate: int, processes: int) -> str:
    """Return the options for `together` examples per micro-batch over all processes, `accumulate` times a step."""
    if together % processes:
        return f"a number of processes that divides {together}"
    return f"--batch-size {together // processes} --accumulate {accumulate}"
