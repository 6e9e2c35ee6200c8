"""Eight processes at one teacher store, as a program of its own: `fillers.py TEACHER FOLDER`.

They are forked from one that has everything loaded, so that they truly start together. Each of three scenes has a cache
of its own in FOLDER: all begin at once; or the first has filled a block and is killed while others wait; or it is
stopped there, and continues when all others have ended. Prints a JSON line for each process of each.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from stillery.data.cache.folder import Cache
from stillery.data.tasks.load_task import load_task
from stillery.data.tokens.encode import tokenise
from stillery.models.load_model import Loaded, load_classifier
from stillery.progress import console
from stillery.train.loop import accelerator_for
from stillery.train.teacher import LiveTeacher
from stillery.train.teacher_cache.cache import TeacherCache
from stillery.train.teacher_cache.contents import CachedArray
from stillery.train.trainable import TrainingData

LOGITS, FIRST, MEAN = CachedArray("logits"), CachedArray("first"), CachedArray("mean")
KD, PKD, RAIL, LAYERS = (
    {LOGITS},
    {LOGITS, FIRST},
    {LOGITS, MEAN},
    {LOGITS, CachedArray("hidden", 2), CachedArray("hidden", 4)},
)
ARRAYS = [LAYERS, KD, PKD, RAIL, PKD | RAIL, LAYERS, {FIRST}, PKD]
WAIT = {"together": 60.0, "killed": 60.0, "stopped": 4.0}
BATCH_SECONDS = 0.03


def fill(scene: str, number: int, cache: Cache, teacher: Loaded, data: TrainingData, at: Callable[[], object]) -> None:
    """One process; it calls `at` when it has filled a block."""
    said = console.file = io.StringIO()
    store = TeacherCache(
        cache, LiveTeacher(teacher.model), data, frozenset(ARRAYS[number]),
        dtype="fp32", accelerator=accelerator_for("fp32"), run=f"run {number}",
    )  # fmt: skip
    block, seen = len(store.order.batches(0)), []

    def look(_: torch.nn.Module, __: tuple, given: dict) -> None:
        if len(seen) == block:
            at()
        seen.append(len(given["input_ids"]))
        time.sleep(BATCH_SECONDS)

    teacher.model.register_forward_pre_hook(look, with_kwargs=True)
    error = store.fill(10**9)
    found = {
        "scene": scene, "number": number, "process": os.getpid(), "error": error, "seen": sum(seen),
        "ended": time.time(), "said": said.getvalue(), "keys": [file.folder.name for file in store.files.values()],
    }  # fmt: skip
    # In one piece, so that no two lines are mixed.
    os.write(1, (json.dumps(found) + "\n").encode())


def play(scene: str, folder: Path, teacher: Loaded, data: TrainingData) -> None:
    cache = Cache(folder=folder / scene, limit=10**9, wait=WAIT[scene])
    go, all_go = os.pipe()
    there, arrive = os.pipe()

    def start(number: int, before: Callable[[], object], at: Callable[[], object]) -> int:
        process = os.fork()
        if not process:
            os.close(all_go)
            before()
            fill(scene, number, cache, teacher, data, at)
            os._exit(0)
        return process

    def hold() -> None:
        os.write(arrive, b".")
        os.read(go, 1)

    def nothing() -> None:
        pass

    def until_all_go() -> None:
        os.read(go, 1)

    if scene == "together":
        others = [start(number, until_all_go, nothing) for number in range(len(ARRAYS))]
    else:
        first = start(0, nothing, hold)
        os.read(there, 1)
        os.kill(first, signal.SIGSTOP)
        others = [start(number, until_all_go, nothing) for number in range(1, len(ARRAYS))]
    os.close(all_go)
    if scene == "killed":
        # Most of the others wait by then.
        time.sleep(2)
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    for other in others:
        assert os.waitpid(other, 0)[1] == 0
    if scene == "stopped":
        os.kill(first, signal.SIGCONT)
        assert os.waitpid(first, 0)[1] == 0


def main(home: str, folder: str) -> None:
    torch.set_num_threads(1)
    teacher = load_classifier(home)
    sentences = load_task("rotten-tomatoes").train.take(np.arange(0, 6600, 6))
    data = TrainingData(examples=sentences, tokens=tokenise(sentences, teacher.tokenizer, 16), pad_id=0)
    for scene in WAIT:
        play(scene, Path(folder), teacher, data)


if __name__ == "__main__":
    main(*sys.argv[1:])
