"""Jobs in turns, each in a process of its own: on a GPU what a process did before changes how fast it is."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Sequence
from typing import Any

Prepare = Callable[[Any], Callable[[], Any]]


def in_turns(prepare: Prepare, jobs: Sequence[Any], together: int) -> list[Any]:
    """What each job gives: so many at a time are prepared at once, then one after the other does what that gave."""
    found: list[Any] = []
    for start in range(0, len(jobs), together):
        found += _at_once(prepare, jobs[start : start + together])
    return found


def _at_once(prepare: Prepare, jobs: Sequence[Any]) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(len(jobs)), context.Queue()
    turns = [context.Event() for _ in range(len(jobs) + 1)]
    processes = [
        context.Process(target=_work, args=(prepare, job, number, ready, turns, results))
        for number, job in enumerate(jobs)
    ]
    for process in processes:
        process.start()
    turns[0].set()
    found: dict[int, Any] = {}
    try:
        while len(found) < len(jobs):
            # Before the queue is looked into: who has ended has put its answer there.
            ended = {number for number, process in enumerate(processes) if process.exitcode is not None}
            try:
                number, answer = results.get(timeout=1)
                found[number] = answer
            except queue.Empty:
                if ended - found.keys():
                    raise SystemExit("a run failed; what it said is above") from None
    finally:
        for process in processes:
            process.join(timeout=5 if len(found) == len(jobs) else 0)
            process.kill()
    return [found[number] for number in range(len(jobs))]


def _work(prepare: Prepare, job: Any, number: int, ready: Any, turns: Any, results: Any) -> None:
    run = prepare(job)
    ready.wait()
    turns[number].wait()
    results.put((number, run()))
    turns[number + 1].set()
