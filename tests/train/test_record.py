"""What is recorded for a GPU, with a stand-in that does the work again where a graph is replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from stillery.train.cuda import capture as record
from stillery.train.cuda.capture import Repeated
from stillery.train.cuda.memory import free_cached
from stillery.train.teacher_cache.order import FillOrder
from stillery.verbosity import Verbosity, verbosity_as

CPU = torch.device("cpu")


class Graph:
    """Does the work anew, on the tensors that it was recorded on, into those that it gave."""

    def __init__(self, work: Callable[[], Sequence[Tensor]], writes: Sequence[Tensor]) -> None:
        self.work, self.writes = work, writes

    def replay(self) -> None:
        for there, new in zip(self.writes, self.work(), strict=True):
            there.copy_(new)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The pools of all that is recorded."""
    found: list[object] = []

    def recorded(work: Callable[[], Sequence[Tensor]], pool: object, device: torch.device) -> tuple[Graph, object]:
        found.append(pool)
        # What is recorded is not done yet.
        writes = [torch.full_like(one, torch.nan) for one in work()]
        return Graph(work, writes), writes

    monkeypatch.setattr(record, "recorded", recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    return found


def doubled(given: Mapping[str, Tensor]) -> list[Tensor]:
    return [2 * given["a"] + given["b"].sum(), given["b"] + 1]


def inputs(rows: int, seed: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {"a": torch.rand(rows, 3, generator=random), "b": torch.rand(2, generator=random)}


def test_the_second_of_a_shape_is_recorded_and_each_gives_what_the_work_gives(recordings: list[object]) -> None:
    repeated = Repeated(doubled, CPU, "doubling")
    counts = []
    for seed, rows in enumerate([4, 4, 4, 5, 4, 5, 5, 6]):
        given = inputs(rows, seed)
        kept = {name: tensor.clone() for name, tensor in given.items()}
        found = repeated(given)
        assert all(torch.equal(one, other) for one, other in zip(found, doubled(kept), strict=True))
        assert all(torch.equal(given[name], kept[name]) for name in given), "what was given stays as it is"
        counts.append(len(recordings))
    assert counts == [0, 1, 1, 1, 1, 2, 2, 2]
    assert len(set(map(id, recordings))) == 1, "all graphs share one memory"


@pytest.mark.parametrize(
    "error", [RuntimeError("it waits\nfor the GPU"), torch.cuda.OutOfMemoryError("no memory"), KeyError("x")]
)
def test_what_cannot_be_recorded_goes_on_as_it_is(
    error: Exception, recordings: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repeated = Repeated(doubled, CPU, "doubling")
    repeated(inputs(3, 0))
    repeated(inputs(3, 1))
    tried: list[int] = []

    def recorded(*_: object) -> None:
        tried.append(1)
        raise error

    monkeypatch.setattr(record, "recorded", recorded)
    freed: list[int] = []
    monkeypatch.setattr(record, "free_cached", lambda: freed.append(len(repeated.graphs)))
    for seed, rows in enumerate([4, 4, 4, 5, 5, 3]):
        given = inputs(rows, seed)
        with verbosity_as(Verbosity.VERBOSE):
            found = repeated(given)
        assert all(torch.equal(one, other) for one, other in zip(found, doubled(given), strict=True))
    assert tried == [1] and freed == [0], "tried once, and what was recorded before holds no memory"
    said = f"CUDA graphs: off for doubling, which cannot be recorded ({str(error).splitlines()[0]})"
    assert capsys.readouterr().err.count(said) == 1


def test_few_graphs_are_kept(recordings: list[object]) -> None:
    repeated = Repeated(doubled, CPU, "doubling")
    for seed, rows in enumerate([4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]):
        repeated(inputs(rows, seed))
    assert len(recordings) == 6 and len(repeated.graphs) == record.MOST
    given = inputs(4, 99)
    assert torch.equal(repeated(given)[0], doubled(given)[0]), "one that was forgotten is recorded again"
    assert len(recordings) == 7


def test_inputs_of_other_names_are_another_kind(recordings: list[object]) -> None:
    repeated = Repeated(lambda given: [2 * tensor for tensor in given.values()], CPU, "doubling")
    for name in ("a", "b", "a", "b"):
        given = {name: torch.rand(3)}
        assert torch.equal(repeated(given)[0], 2 * given[name])
    assert len(recordings) == 2


def test_memory_that_torch_refuses_to_free_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty_cache() -> None:
        raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    free_cached()


def test_batches_of_a_gpus_store_have_few_shapes_and_fill_their_blocks() -> None:
    lengths = np.random.default_rng(0).integers(3, 65, 20_000)
    order = FillOrder(lengths, tokens=2048, size=1024, pad_to=8)
    shapes: Counter[tuple[int, int]] = Counter()
    for block in range(len(order.example_ends)):
        batches = order.batches(block)
        assert np.array_equal(np.concatenate(batches), order.block(block))
        for index in batches:
            longest = -(-int(lengths[index].max()) // 8) * 8
            assert len(index) * longest <= 2048
            shapes[len(index), longest] += 1
    assert sum(shapes.values()) > 400 and len(shapes) < 30, "a shape comes again a dozen times"
    # On a CPU, where nothing is padded for it, as many examples as there is room for.
    plain = FillOrder(lengths, tokens=2048, size=1024)
    assert len(plain.batches(0)[0]) == 2048 // 64
    assert len(plain.batches(19)[0]) == 2048 // int(lengths[plain.batches(19)[0]].max())
