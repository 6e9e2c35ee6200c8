"""The seeds of a step: everything random in a step is a function of the step."""

from __future__ import annotations

import numpy as np
import torch

from stillery.train.cuda.stream import number_of

__all__ = ["seed_generators", "step_seed"]


def step_seed(seed: int, step: int, micro_batch: int, process: int) -> int:
    """The seed of dropout in one forward pass, so that nothing random depends on what ran before."""
    return int(np.random.SeedSequence([seed, step, micro_batch, process]).generate_state(1, np.uint32)[0])


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of the device that is trained on, as `torch.manual_seed` seeds all there are.

    `torch.manual_seed` formats a stack trace for every kind of device that is not in use, which takes the host longer
    than starting a recorded step.
    """
    if device.type not in ("cpu", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[number_of(device)].manual_seed(seed)
