"""What one process keeps from run to run where it does many: data, what teachers answer, what shapes cost.

Nothing is kept unless `kept_warm` says so: a run alone works everything out for itself. What is kept is never changed
by a run: examples and answers are read only. Models are not kept, since training moves and offloads them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["kept_warm", "warm"]

Value = TypeVar("Value")

_MOST = 16
_kept: OrderedDict[Hashable, Any] | None = None


@contextmanager
def kept_warm() -> Iterator[None]:
    """Keep what runs inside the block have in common; the least recently used goes where there is too much."""
    global _kept
    before, _kept = _kept, OrderedDict()
    try:
        yield
    finally:
        _kept = before


def warm(key: Hashable, make: Callable[[], Value]) -> Value:
    """What was made for this key by an earlier run of the process, where that is kept, else made now."""
    if _kept is None:
        return make()
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > _MOST:
        _kept.popitem(last=False)
    found: Value = _kept[key]
    return found
