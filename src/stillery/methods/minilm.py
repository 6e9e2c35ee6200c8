"""Wang et al. (2020, 2021), MiniLM: Deep Self-Attention Distillation; MiniLMv2: Multi-Head Relation Distillation."""

from __future__ import annotations

from stillery.declare import Group, Inferred, Paper
from stillery.methods._stages import layers_then_prediction
from stillery.parts import distance, pair
from stillery.parts import represent_relations as relations
from stillery.recipe import LEAST_STEPS, Match, Recipe, Representation

__all__ = ["minilm", "minilm_v2"]

GROUP = Group.ATTENTION


def _last(what: Representation, weight: float) -> Match:
    """KL(teacher || student) of the last layer's maps, mean over heads and real tokens."""
    return Match(
        name=what.name.split("(")[0],
        represent=what,
        pair=pair.last_layer,
        distance=distance.kl,
        reduction="batchmean",
        weight=weight,
    )


def minilm(
    *,
    hard_weight: Inferred[float] = 0.5,
    soft_weight: Inferred[float | None] = None,
    temperature: Inferred[float] = 2.0,
    layer_share: Inferred[float] = 5.0,
    least_steps: Inferred[int] = LEAST_STEPS,
    attention_weight: Paper[float] = 1.0,
    value_weight: Paper[float] = 1.0,
) -> Recipe:
    """The last layer's attention and value relations; then predictions.

    Attention is eq. 7, value relations eq. 9. Both models need the same number of heads. Padded tokens are masked out;
    known third-party code does not mask value relations.
    """
    return layers_then_prediction(
        _last(relations.attention, attention_weight), _last(relations.value_relations, value_weight),
        hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature,
        layer_share=layer_share, least_steps=least_steps,
    )  # fmt: skip


def minilm_v2(
    *,
    hard_weight: Inferred[float] = 0.5,
    soft_weight: Inferred[float | None] = None,
    temperature: Inferred[float] = 2.0,
    layer_share: Inferred[float] = 5.0,
    least_steps: Inferred[int] = LEAST_STEPS,
    query_weight: Paper[float] = 1.0,
    key_weight: Paper[float] = 1.0,
    value_weight: Paper[float] = 1.0,
    relation_heads: Inferred[int | None] = None,
) -> Recipe:
    """Query, key and value relations of the last layer; then predictions.

    Relations are eq. 4. The states of all heads are concatenated and split into `relation_heads`, by default the
    teacher's number, so that student and teacher may have different numbers of heads.
    """
    weights = {
        relations.query_relations: query_weight,
        relations.key_relations: key_weight,
        relations.value_relations: value_weight,
    }
    matches = [_last(relations.with_relation_heads(what, relation_heads), weight) for what, weight in weights.items()]
    return layers_then_prediction(
        *matches,
        hard_weight=hard_weight,
        soft_weight=soft_weight,
        temperature=temperature,
        layer_share=layer_share,
        least_steps=least_steps,
    )
