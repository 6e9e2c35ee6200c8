"""Seeds of a step: another for every step, and what is drawn after them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stillery.train.seeds import seed_generators, step_seed


def test_every_step_micro_batch_and_process_has_a_seed_of_its_own() -> None:
    seeds = {step_seed(a, b, c, d) for a in range(3) for b in range(3) for c in range(3) for d in range(3)}
    assert len(seeds) == 81
    assert step_seed(1, 2, 3, 4) == step_seed(1, 2, 3, 4)


def test_what_is_drawn_is_what_torch_draws_after_seeding_everything() -> None:
    torch.manual_seed(7)
    expected = torch.rand(5)
    torch.rand(3)
    seed_generators(7, torch.device("cpu"))
    torch.testing.assert_close(torch.rand(5), expected, rtol=0, atol=0)


def test_the_device_that_is_trained_on_is_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    two = [SimpleNamespace(manual_seed=lambda seed, place=place: seen.append((place, seed))) for place in range(2)]
    monkeypatch.setattr(torch.cuda, "default_generators", two)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    seed_generators(7, torch.device("cuda", 1))
    seed_generators(8, torch.device("cuda"))
    assert seen == [(1, 7), (0, 8)]
    monkeypatch.setattr(torch, "manual_seed", seen.append)
    seed_generators(9, torch.device("meta"))
    assert seen[-1] == 9
