"""Li et al. (2020), BERT-EMD: Many-to-Many Layer Mapping for BERT Compression with Earth Mover's Distance."""

from __future__ import annotations

from functools import partial

from stillery.declare import Code, Group, Inferred, Paper
from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent, transport
from stillery.parts import represent_relations as relations
from stillery.parts.represent import Normalise
from stillery.recipe import Match, Recipe

__all__ = ["bert_emd"]

GROUP = Group.SEVERAL


def bert_emd(
    *,
    hard_weight: Code[float] = 0.0,
    soft_weight: Code[float] = 1.0,
    temperature: Code[float] = 1.0,
    layer_weight: Code[float] = 0.005,
    reweighed: Paper[bool] = True,
    separate: Code[bool] = False,
    always_project: Code[bool] = True,
    normalise: Inferred[Normalise] = "none",
) -> Recipe:
    """All student layers match all teacher layers, weighted by optimal transport.

    Pairs are weighted by the earth mover's distance, for states and for attention. The layers' weights start equal;
    after each step a layer's weight is divided by the cost of its flow (`reweighed`), and states and attention share
    the mean of their weights unless `separate`. Transport is solved on each batch, over all processes together, so
    gradient accumulation changes it. The released code's temperature of that update has no effect and is left out.
    `normalise` normalises the states (see docs/methods/generation.md).
    """
    flow = partial(transport.Transport, plan=transport.transport_plan, reweighed=reweighed, shared=not separate)
    maps = partial(project.to_teacher, bias=True, shared=True, always=always_project)
    states = represent.token_states(normalise)
    hidden = Match(
        name="hidden", represent=states, pair=transport.all_to_all, project=maps, distance=distance.mse, flow=flow,
        weight=layer_weight,
    )  # fmt: skip
    attention = Match(
        name="attention", represent=relations.attention, pair=transport.all_to_all, distance=distance.mse, flow=flow,
        weight=layer_weight,
    )  # fmt: skip
    embedding = Match(
        name="embedding", represent=states, pair=pair.embedding, project=maps, distance=distance.mse,
        weight=layer_weight,
    )  # fmt: skip
    return joint(
        hidden, attention, embedding, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature
    )
