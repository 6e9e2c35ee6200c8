"""A forward pass of a model that keeps the outputs needed by a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from transformers import PreTrainedModel

from stillery.losses import Mixed
from stillery.models.family import stacks_of
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Trace, Wanted
from stillery.train.step_plan import Needs, union

__all__ = ["outputs_of"]


def outputs_of(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    needs: Needs,
    mixed: Mixed | None = None,
    drop_start: bool = False,
    *,
    logits: bool = True,
    shorten: Callable[[Tensor], Tensor] | None = None,
) -> Trace:
    """Run a model on a batch, or on its mixed examples, and keep the needed outputs; the rest as for `trace`."""
    names = stacks_of(model.config)
    wanted: dict[str, Wanted] = {}
    for stack, of_stack in needs.items():
        wanted[stack or names[0]] = union(wanted.get(stack or names[0]), of_stack)
    return trace(
        model,
        mixed.inputs(inputs) if mixed else inputs,
        wanted,
        change=dict.fromkeys(names, mixed) if mixed else None,
        drop_start=drop_start,
        logits=logits,
        shorten=shorten,
    )
