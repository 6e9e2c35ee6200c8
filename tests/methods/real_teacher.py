"""What the tests on real layers share."""

from __future__ import annotations

from dataclasses import dataclass

from stillery.data.tokens.batches import Batch
from stillery.losses import Mixed
from stillery.models.family import Sizes
from stillery.models.load_model import Loaded
from stillery.models.wanted_outputs import Trace


@dataclass(frozen=True)
class RealTeacher:
    """A real teacher and what it showed of one batch, plain and mixed, all layers."""

    loaded: Loaded
    sizes: Sizes
    batch: Batch
    mixed: Mixed
    shown: dict[str, Trace]
