"""The order of an epoch is a pure function of its arguments and shows each example once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillery.data.batches import Batch, in_order, micro_batches, windows

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


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 70), st.integers(1, 40), st.integers(1, 5))
def test_micro_batches_share_out_a_window(count, batch_size, processes):
    window = np.random.default_rng(count).permutation(count)
    shares = [micro_batches(window, batch_size, process, processes) for process in range(processes)]
    seen = [int(example) for share in shares for batch in share for example in batch]
    assert sorted(seen) == list(range(count))
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) <= batch_size for share in shares for batch in share)
    if count >= processes and batch_size > 1:
        assert all(len(batch) for share in shares for batch in share)


def test_accumulation_sees_the_same_examples():
    window = np.arange(32)[::-1]
    assert [batch.tolist() for batch in micro_batches(window, 32)] == [window.tolist()]
    assert np.concatenate(micro_batches(window, 8)).tolist() == window.tolist()
    assert [len(batch) for batch in micro_batches(window, 8)] == [8] * 4


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
