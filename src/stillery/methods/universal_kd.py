"""Wu et al. (2021), Universal-KD: Attention-based Output-Grounded Intermediate Layer Knowledge Distillation."""

from __future__ import annotations

import dataclasses
from functools import partial

from stillery.declare import Group, Inferred, ThirdParty
from stillery.methods._stages import joint
from stillery.parts import distance, pair, pseudo, represent
from stillery.recipe import LEAST_STEPS, Match, Recipe, Stage

__all__ = ["universal_kd"]

GROUP = Group.SEVERAL


def universal_kd(
    *,
    hard_weight: Inferred[float] = 0.5,
    soft_weight: Inferred[float | None] = None,
    temperature: Inferred[float] = 2.0,
    layer_weight: Inferred[float] = 1.0,
    pseudo_temperature: Inferred[float] = 1.0,
    heads_share: Inferred[float] = 1.0,
    layer_share: ThirdParty[float] = 16.0,
    prediction_share: ThirdParty[float] = 4.0,
    least_steps: Inferred[int] = LEAST_STEPS,
) -> Recipe:
    """Matches the predictions of pseudo classifiers on the layers, not hidden states.

    First the teacher's pseudo classifiers are fitted to the labels, the teacher frozen. Then the prediction of each
    student layer 1..M-1 matches that of the teacher's layers 1..N-1, weighted by attention. Then come labels and
    predictions. Known from descriptions only, which give 1 : 16 : 4 for the steps; in a short run the last stage has at
    least `least_steps`, or three quarters.
    """
    predictions = Match(
        name="pseudo_predictions", represent=represent.pool, pair=pair.every_layer, distance=distance.mse,
        criterion=partial(pseudo.PseudoClassifiers, temperature=pseudo_temperature), shared="pseudo",
        weight=layer_weight,
    )  # fmt: skip
    fit = dataclasses.replace(predictions, name=pseudo.FIT, weight=1.0)
    training = joint(hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature).stages[0]
    return Recipe(
        stages=(
            Stage(name="heads", matches=(fit,), hard_weight=0.0, share=heads_share),
            Stage(name="layers", matches=(predictions,), hard_weight=0.0, share=layer_share),
            Stage(name="prediction", prediction=training.prediction, hard_weight=hard_weight, share=prediction_share,
                  least_steps=least_steps),
        ),
    )  # fmt: skip
