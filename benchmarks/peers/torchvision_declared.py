"""torchvision imported, with or without its compiled operators, which nobody calls here.

Built with CUDA it cannot load them beside a torch without CUDA, and its import then stops at the two it describes. They
are declared for it.
"""

from __future__ import annotations

import torch

try:
    import torchvision
except RuntimeError:
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    import torchvision  # noqa: F401
