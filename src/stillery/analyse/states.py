"""Hidden states of models, batch by batch, for analyses of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stillery.data.tokens.batches import Batch
from stillery.errors import UserError
from stillery.evaluation.inference_mode import device_of, evaluating
from stillery.models.family import kind_of, sizes, stacks_of
from stillery.models.trace import trace
from stillery.models.wanted_outputs import Wanted
from stillery.progress import bar

__all__ = ["POOLS", "States", "hidden_states", "pooled", "reading", "stack_named"]

POOLS = ("first", "mean")
"""How the states of a text are made one vector: that of the first token, or their mean."""


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """The hidden states of a batch, [layers + 1, batch, tokens, width], embedding output first, and their mask."""

    hidden: Tensor
    mask: Tensor


@torch.no_grad()
def hidden_states(model: PreTrainedModel, batch: Batch, stack: str, *, teacher: bool = False) -> States:
    """Return the hidden states of every layer of a stack.

    The last one is taken before the norm that some families have after the last layer, so that all are on one scale.
    """
    inputs = {
        name: tensor.to(device_of(model))
        for name, tensor in (batch.teacher_inputs if teacher else batch.inputs).items()
    }
    layers = range(sizes(model.config, stack).layers + 1)
    of = trace(model, inputs, {stack: Wanted(hidden=layers, raw_last=True)}, logits=False).stack(stack)
    hidden = torch.stack([of.hidden[layer] for layer in layers]).float()
    return States(hidden=hidden, mask=of.mask.bool())


def pooled(states: States, pool: str) -> Tensor:
    """Return one vector of each text and layer, [layers + 1, batch, width], in double precision."""
    hidden = states.hidden.double()
    if pool == "first":
        # Padding may be on the left.
        first = states.mask.long().argmax(1)
        return hidden[:, torch.arange(hidden.shape[1], device=hidden.device), first]
    real = states.mask.unsqueeze(-1)
    return hidden.where(real, 0.0).sum(2) / real.sum(1).clamp_min(1)


def stack_named(stack: str | None, *models: PreTrainedModel) -> str:
    """Return the stack to look at: the one named, else the first; every model must have it."""
    names = stacks_of(models[0].config)
    for model in models:
        if stack is not None and stack not in stacks_of(model.config):
            kind = kind_of(model.config)
            raise UserError(f"--stack {stack}: a {model.config.model_type} model ({kind}) has none; leave it out")
    return stack or names[0]


@contextmanager
def reading(
    description: str, batches: Sequence[Batch] | Iterable[Batch], total: int, *models: PreTrainedModel
) -> Iterator[Iterator[Batch]]:
    """Yield the batches with a progress bar of examples, with the models in eval mode and without gradients."""

    def shown() -> Iterator[Batch]:
        with bar(description, total) as progress:
            for batch in batches:
                yield batch
                progress.advance(len(batch))

    with evaluating(*models), torch.no_grad():
        yield shown()
