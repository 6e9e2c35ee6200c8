"""Jiao et al. (2020), TinyBERT: Distilling BERT for Natural Language Understanding (its task-specific stage)."""

from __future__ import annotations

from functools import partial

from stillery.declare import Code, Group, Inferred, Paper
from stillery.methods._stages import layers_then_prediction
from stillery.parts import distance, pair, project, represent
from stillery.parts import represent_relations as relations
from stillery.parts.represent import Normalise
from stillery.recipe import LEAST_STEPS, Match, Recipe

__all__ = ["tinybert"]

GROUP = Group.ATTENTION


def tinybert(
    *,
    hard_weight: Code[float] = 0.0,
    soft_weight: Code[float] = 1.0,
    temperature: Code[float] = 1.0,
    layer_share: Inferred[float] = 5.0,
    least_steps: Inferred[int] = LEAST_STEPS,
    attention_weight: Code[float] = 1.0,
    hidden_weight: Code[float] = 1.0,
    always_project: Paper[bool] = True,
    released: Inferred[bool] = False,
    normalise: Inferred[Normalise] = "none",
) -> Recipe:
    """Attention scores and states of evenly spaced layers; then predictions.

    Attention scores (eq. 7), hidden states and embedding (eqs. 8, 9), then predictions (eq. 10). One learned map W_h,
    with bias, projects the student's states to the teacher's width, at equal widths too unless `always_project=False`.
    `released` includes padding as the released code does. `normalise` normalises the states (see
    docs/methods/generation.md). Without general distillation and data augmentation.
    """
    attention = Match(
        name="attention",
        represent=relations.attention,
        pair=pair.uniform,
        distance=distance.released_attention_mse if released else distance.mse,
        weight=attention_weight,
    )
    hidden = Match(
        name="hidden",
        represent=represent.unmasked_tokens if released else represent.token_states(normalise),
        pair=partial(pair.uniform, embedding=True),
        project=partial(project.to_teacher, bias=True, shared=True, always=always_project),
        distance=distance.mse,
        weight=hidden_weight,
    )
    return layers_then_prediction(
        attention,
        hidden,
        hard_weight=hard_weight,
        soft_weight=soft_weight,
        temperature=temperature,
        layer_share=layer_share,
        least_steps=least_steps,
        # The paper's students were distilled in general before. From first layers, pulling each one to a layer twice
        # as deep ended in one answer for all examples (docs/results/methods.md).
        init="even",
        init_measured=True,
    )
