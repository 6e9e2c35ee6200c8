"""Prefetching and consuming items in a second thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["consume", "prefetch"]

T = TypeVar("T")


def prefetch(prepare: Callable[[int], T], steps: Iterable[int], depth: int) -> Generator[T, None, None]:
    """Yield `prepare(step)` for each step, in order; a thread prepares up to `depth` of them in advance.

    With a depth of 0 each is prepared on demand. An exception of `prepare` is raised when its step is reached.
    """
    if not depth:
        yield from map(prepare, steps)
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
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


def consume(made: Iterable[T], use: Callable[[T], bool], depth: int) -> bool:
    """Call `use` on each item, in order, in a thread at most `depth` items behind; False as soon as a call returns it.

    With a depth of 0 each item is used before the next is made. Exceptions of `use` are raised here; if making an item
    raises, earlier items are used first. Items are released by the thread that made them: while that thread records a
    CUDA graph, pinned memory released by another would become part of the graph.
    """
    if not depth:
        return all(map(use, made))
    pool = ThreadPoolExecutor(1, thread_name_prefix="consume")
    waiting: deque[tuple[list[T], Future[None]]] = deque()
    ended = False

    def use_held(held: list[T]) -> None:
        nonlocal ended
        # After a failure no further items are used.
        if ended:
            return
        try:
            good = use(held[0])
        except BaseException:
            ended = True
            raise
        ended = not good

    def used(most: int) -> bool:
        while waiting and (ended or len(waiting) > most):
            held, future = waiting[0]
            future.result()
            waiting.popleft()
            held.clear()
        return not ended

    try:
        for one in made:
            held = [one]
            waiting.append((held, pool.submit(use_held, held)))
            if not used(depth):
                return False
        return used(0)
    finally:
        try:
            pool.shutdown()
        except BaseException:
            # After an interrupt wait for the current call of `use` only.
            ended = True
            pool.shutdown()
            raise
        finally:
            for held, _ in waiting:
                held.clear()
