"""The settings of a search and their defaults, in a module that loads nothing: signatures are made of them."""

from __future__ import annotations

from typing import Final

from stillery.jobs.config.settings import ConditionSettings, DataSettings, MethodSettings
from stillery.train.settings import Storing, Training

__all__ = ["GROUPS", "HOLDOUT", "METHOD", "NOT_HERE", "WITHIN"]

GROUPS: Final = (DataSettings, ConditionSettings, MethodSettings, Training, Storing)
"""The settings of the students' training."""

NOT_HERE: Final = (
    "unlabelled", "stacks", "cross_attention", "drop_start", "sequence_level", "on_policy"
)  # fmt: skip
"""Settings of the groups that do not go with a search, or only with models that generate text."""

WITHIN = 1.0
HOLDOUT = 0.1
"""The share of the training split that chooses, unless another one is given."""

METHOD = "kd"
"""The method of the students: none is shown to be better than others (docs/results/glue.md), and this one needs the
teacher's predictions alone, which are made once for all students."""
