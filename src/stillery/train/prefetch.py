"""Work in a second thread: prefetching what comes next, or consuming what was made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["consume", "prefetch"]

T = TypeVar("T")


def prefetch(prepare: Callable[[int], T], steps: Iterable[int], depth: int) -> Generator[T, None, None]:
    """What `prepare` gives for each step, in order, up to `depth` of them prepared by a thread in advance.

    With a depth of 0 each is prepared when it is asked for. What `prepare` raises is raised where its step is taken.
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
    """Use what is made, in order, in a thread that is at most `depth` behind; False as soon as a use gives that.

    With a depth of 0 each is used before the next is made. What `use` raises is raised here; where making raises, what
    was made before is used first. Each is released by the thread that made it: while that thread records a CUDA graph,
    pinned memory released by another would become part of the graph.
    """
    if not depth:
        return all(map(use, made))
    pool = ThreadPoolExecutor(1, thread_name_prefix="consume")
    waiting: deque[tuple[list[T], Future[None]]] = deque()
    ended = False

    def use_held(held: list[T]) -> None:
        nonlocal ended
        # After a use that failed nothing more is used.
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
            # An interrupted wait still waits for the use under way, and for no more.
            ended = True
            pool.shutdown()
            raise
        finally:
            for held, _ in waiting:
                held.clear()
