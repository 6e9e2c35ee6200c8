"""Intermediate-Layer Distillation with a Reused Teacher Classifier (ILD-RTC), and what it is compared with."""

from __future__ import annotations

from functools import partial

from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Pair, Recipe, Stage

__all__ = ["ild_rtc", "ild_top", "simkd"]


def _layers(which: Pair, weight: float) -> Match:
    """L_layer (eq. 1): normalised [CLS] states, mean over batch, layers and width, as PKD's grid of beta implies."""
    return Match(
        name="layers",
        represent=represent.cls,
        pair=which,
        project=project.to_teacher,
        distance=distance.normalised_mse,
        reduction="mean",
        over_pairs="mean",
        weight=weight,
    )


def ild_rtc(
    *,
    hard_weight: float = 0.5,
    soft_weight: float | None = None,
    temperature: float = 10.0,
    square: bool = True,
    layer_weight: float = 100.0,
    include_last: bool = False,
) -> Recipe:
    """ILD-RTC: a CE + (1 - a) KL + b L_layer on a student that starts with the teacher's classifier.

    `hard_weight` is a, `layer_weight` b. Student layers 1..M-1 meet floor(N / M) m; `include_last` adds the last pair.
    The student starts as the teacher's first M layers. `--head reuse-frozen` keeps the classifier as it is.
    """
    match = _layers(partial(pair.skip, include_last=include_last), layer_weight)
    return joint(
        match, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, square=square,
        init="first", head="reuse",
    )  # fmt: skip


def ild_top(
    *,
    hard_weight: float = 0.5,
    soft_weight: float | None = None,
    temperature: float = 10.0,
    layer_weight: float = 100.0,
    include_last: bool = False,
) -> Recipe:
    """Matching to the teacher's last layers (ILD-RTC's Table 9): 1..M-1 to N-M+1..N-1; `include_last` adds (M, N)."""
    match = _layers(partial(pair.top, include_last=include_last), layer_weight)
    return joint(
        match, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, init="first"
    )  # fmt: skip


def simkd(*, layer_weight: float = 1.0) -> Recipe:
    """SimKD (Chen et al., 2022): only the last [CLS] feature is matched, and the teacher's frozen classifier used."""
    feature = Match(
        name="feature",
        represent=represent.cls,
        pair=pair.last_layer,
        project=project.to_teacher,
        distance=distance.mse,
        weight=layer_weight,
    )
    return Recipe(stages=(Stage(hard_weight=0.0, matches=(feature,)),), init="first", head="reuse-frozen")
