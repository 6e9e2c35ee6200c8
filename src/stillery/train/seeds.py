"""Seeding of the random generators as a function of the step."""

from __future__ import annotations

import numpy as np
import torch

from stillery.train.cuda.stream import number_of

__all__ = ["seed_generators", "step_seed"]


def step_seed(seed: int, step: int, micro_batch: int, process: int) -> int:
    """Return the seed of dropout in one forward pass, which does not depend on earlier steps."""
    return int(np.random.SeedSequence([seed, step, micro_batch, process]).generate_state(1, np.uint32)[0])


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of the training device, as `torch.manual_seed` does for all devices.

    `torch.manual_seed` formats a stack trace for every unused device type, which takes the host longer than launching a
    recorded step.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[number_of(device)].manual_seed(seed)
