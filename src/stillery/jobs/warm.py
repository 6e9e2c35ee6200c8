"""In-process cache shared by several runs: data, teacher predictions, costs measured per model shape.

Nothing is cached outside of `kept_warm`: a single run computes everything itself. Cached values are never changed by a
run: examples and predictions are read-only. Models are not cached, since training moves and offloads them.
"""

from __future__ import annotations

import gc
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
    """Cache values shared by the runs inside the block; the least recently used are evicted."""
    global _kept
    before, _kept = _kept, OrderedDict()
    # A full garbage collection looks at every object of the libraries, a third of a second; none of them is garbage.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _kept = before


def warm(key: Hashable, make: Callable[[], Value]) -> Value:
    """Return the value cached for this key by an earlier run of the process, or make it now."""
    if _kept is None:
        return make()
    if key not in _kept:
        _kept[key] = make()
    _kept.move_to_end(key)
    while len(_kept) > _MOST:
        _kept.popitem(last=False)
    found: Value = _kept[key]
    return found
