"""The order of an epoch is a pure function of its arguments and shows each example once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.data.tokens.batches import Batch, in_order, micro_batches, windows
from stillery.parts.mix import draw

sizes = st.lists(st.integers(1, 100), max_size=300).map(lambda values: np.array(values, dtype=np.int64))


@settings(max_examples=80, deadline=None)
@given(sizes, st.integers(-1, 3), st.integers(0, 2), st.integers(0, 3), st.integers(1, 40))
def test_each_example_once_and_pure(lengths, seed, stage, epoch, window):
    order = windows(lengths, seed=seed, stage=stage, epoch=epoch, window=window)
    again = windows(lengths.copy(), seed=seed, stage=stage, epoch=epoch, window=window)
    assert [step.tolist() for step in order] == [step.tolist() for step in again]
    assert sorted(np.concatenate([*order, np.array([], dtype=np.int64)]).tolist()) == list(range(len(lengths)))
    assert all(len(step) == window for step in order[:-1])
    assert len(order) == -(-len(lengths) // window)


def test_epochs_stages_and_seeds_differ():
    lengths = np.arange(200) % 30
    settings = [{"seed": s, "stage": g, "epoch": e} for s in (0, 1) for g in (0, 1) for e in (0, 1)]
    orders = {str([step.tolist() for step in windows(lengths, window=8, **kind)]) for kind in settings}
    assert len(orders) == 8


def test_lengths_are_alike_inside_a_window_and_mixed_over_the_epoch():
    lengths = np.random.default_rng(0).integers(5, 100, size=6400)
    order = windows(lengths, seed=0, stage=0, epoch=0, window=32)
    assert np.mean([np.ptp(lengths[step]) for step in order]) < 5
    first, second = (np.mean([lengths[step].mean() for step in half]) for half in (order[:100], order[100:]))
    assert abs(first - second) < 10


def shared_out(count: int, batch_size: int, processes: int, partner: list[int] | None = None) -> list[list[list[int]]]:
    """The places of each process's micro-batches."""
    return [
        [places.tolist() for places in micro_batches(count, batch_size, process, processes, partner)]
        for process in range(processes)
    ]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 70), st.integers(1, 40), st.integers(1, 5))
def test_micro_batches_share_out_a_window(count, batch_size, processes):
    shares = shared_out(count, batch_size, processes)
    seen = [place for share in shares for batch in share for place in batch]
    assert sorted(seen) == list(range(count))
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) <= batch_size for share in shares for batch in share)
    if count >= processes and batch_size > 1:
        assert all(len(batch) for share in shares for batch in share)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 70), st.integers(1, 10), st.integers(1, 5))
def test_what_processes_look_at_together_is_what_one_would(count, batch_size, processes):
    """The micro-batches of several processes, put together, are those of one whose batches are so much larger."""
    shares = shared_out(count, batch_size, processes)
    together = [sorted(place for batch in each for place in batch) for each in zip(*shares, strict=True)]
    assert together == shared_out(count, batch_size * processes, 1)[0]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 70), st.integers(1, 10), st.integers(1, 5), st.sampled_from(("random", "reverse")))
def test_micro_batches_keep_partners_together(count, half, processes, pairing):
    _, partner = draw(count, 1.0, pairing, (count, half))
    shares = shared_out(count, 2 * half, processes, partner)
    assert sorted(place for share in shares for batch in share for place in batch) == list(range(count))
    assert len({len(share) for share in shares}) == 1
    for batch in (batch for share in shares for batch in share):
        assert len(batch) <= 2 * half and batch == sorted(batch)
        assert {partner[place] for place in batch} == set(batch)
    # Cut nowhere, it is the window as it is.
    assert shared_out(count, 2 * count + 1, 1, partner)[0] == ([list(range(count))] if count else [])


def test_accumulation_sees_the_same_examples():
    assert shared_out(32, 32, 1) == [[list(range(32))]]
    assert shared_out(32, 8, 1) == [[list(range(start, start + 8)) for start in range(0, 32, 8)]]


@given(sizes, st.integers(1, 40))
def test_in_order(lengths, batch_size):
    batches = in_order(lengths, batch_size)
    whole = np.concatenate([*batches, np.array([], dtype=np.int64)])
    assert sorted(whole.tolist()) == list(range(len(lengths)))
    assert (np.diff(lengths[whole]) <= 0).all()
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_a_pinned_batch_has_all_its_tensors_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in: there is no pinned memory without a GPU."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 10)
    ids, labels = torch.tensor([[1, 2]]), torch.tensor([3])
    batch = Batch(index=np.array([0]), ids=("a",), inputs={"input_ids": ids, "attention_mask": ids * 2}, labels=labels)
    pinned = batch.pinned()
    assert {name: tensor.tolist() for name, tensor in pinned.inputs.items()} == {
        "input_ids": [[11, 12]], "attention_mask": [[12, 14]],
    }  # fmt: skip
    assert pinned.labels is not None and pinned.labels.tolist() == [13]
    assert replace(batch, labels=None).pinned().labels is None
