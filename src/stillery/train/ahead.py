"""Prepare what the next steps need in a thread, while a device is busy with this one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(prepare: Callable[[int], T], steps: Iterable[int], depth: int) -> Generator[T, None, None]:
    """What `prepare` gives for each step, in order, up to `depth` of them made before they are asked for.

    With a depth of 0 each is made when it is asked for. What `prepare` raises is raised where its step is taken.
    """
    if not depth:
        yield from map(prepare, steps)
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
    waiting: deque[Future[T]] = deque()
    try:
        for step in steps:
            waiting.append(pool.submit(prepare, step))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
