"""What is fetched from a GPU is waited for when it is read, and what is on the host is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stillery.train.cuda import transfer as fetch
from stillery.train.cuda.transfer import Fetched


def test_what_is_on_the_host_is_there() -> None:
    one = torch.arange(3.0)
    fetched = Fetched([one])
    assert fetched.arrived and fetched.read()[0] is one


def test_what_another_device_has_comes_at_once() -> None:
    sent: list[str] = []
    elsewhere = SimpleNamespace(is_cuda=False, cpu=lambda: sent.append("cpu") or torch.ones(2))
    fetched = Fetched([elsewhere])
    assert sent == ["cpu"] and fetched.arrived and fetched.read()[0].tolist() == [1.0, 1.0]


def test_what_is_on_its_way_is_read_when_it_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for a GPU: its tensors are sent as zeros, and the numbers come when somebody waits."""
    there: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    waited: list[str] = []

    class Event:
        def record(self) -> None:
            waited.append("recorded")

        def query(self) -> bool:
            return "waited" in waited

        def synchronize(self) -> None:
            waited.append("waited")
            for sent, tensor in there.values():
                sent.copy_(tensor)

    def send(tensor: SimpleNamespace) -> torch.Tensor:
        waited.append("sent")
        there[id(tensor)] = torch.zeros_like(tensor.values), tensor.values
        return there[id(tensor)][0]

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(fetch, "_sent", send)
    tensors = [SimpleNamespace(is_cuda=True, values=torch.full((2,), number)) for number in (1.0, 2.0)]
    fetched = Fetched(tensors)
    assert waited == ["sent", "sent", "recorded"] and not fetched.arrived
    assert [one.tolist() for one in fetched.read()] == [[1.0, 1.0], [2.0, 2.0]]
    assert fetched.arrived
