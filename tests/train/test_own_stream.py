"""All that a process computes on a GPU is on one stream, which waits for what was before and is waited for after."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from stillery.train.cuda import stream
from stillery.train.cuda.stream import own_stream


def test_a_cpu_has_none() -> None:
    with own_stream(torch.device("cpu")):
        pass


def test_it_is_always_the_same_and_nothing_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for a GPU."""
    happened: list[tuple[str, str]] = []

    class Stream:
        def __init__(self, name: object) -> None:
            self.name = f"{name}"
            happened.append(("made", self.name))

        def wait_stream(self, other: Stream) -> None:
            happened.append((self.name, f"waits for {other.name}"))

    @contextmanager
    def on(one: Stream):
        happened.append(("on", one.name))
        yield
        happened.append(("off", one.name))

    around = Stream("default")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda number: around)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    stream._stream_of.cache_clear()
    happened.clear()
    once = [("3", "waits for default"), ("on", "3"), ("off", "3"), ("default", "waits for 3")]
    for device in ("cuda", "cuda:3"):
        with own_stream(torch.device(device)):
            pass
    assert happened == [("made", "3"), *once, *once]
    happened.clear()
    with pytest.raises(KeyboardInterrupt), own_stream(torch.device("cuda:1")):
        raise KeyboardInterrupt
    assert happened == [("made", "1"), ("1", "waits for default"), ("on", "1"), ("default", "waits for 1")]
    stream._stream_of.cache_clear()
