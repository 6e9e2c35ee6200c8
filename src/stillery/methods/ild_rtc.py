"""Intermediate-Layer Distillation with a Reused Teacher Classifier (ILD-RTC), and the methods it is compared with."""

from __future__ import annotations

from functools import partial
from typing import Literal

from stillery.declare import Grid, Group, Inferred, Paper
from stillery.methods._stages import joint
from stillery.parts import distance, pair, project, represent
from stillery.recipe import Match, Pair, Recipe, Stage

__all__ = ["ild_rtc", "ild_top", "simkd"]

GROUP = Group.CLASSIFIER


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
    hard_weight: Grid[float] = 0.5,
    soft_weight: Paper[float | None] = None,
    temperature: Paper[float] = 10.0,
    square: Inferred[bool] = True,
    layer_weight: Grid[float] = 100.0,
    include_last: Paper[bool] = False,
) -> Recipe:
    """As pkd, with the teacher's classifier reused in the student.

    a CE + (1 - a) KL + b L_layer: `hard_weight` is a, `layer_weight` b. Student layer m of 1..M-1 is matched with
    teacher layer floor(N / M) m; `include_last` adds the last pair. The student is initialised with the teacher's first
    M layers. `--head reuse-frozen` does not train the classifier; at another width `--reuse linear` puts it behind a
    projector that follows the student's own pooler.
    """
    match = _layers(partial(pair.skip, include_last=include_last), layer_weight)
    return joint(
        match, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, square=square,
        init="first", head="reuse",
    )  # fmt: skip


def ild_top(
    *,
    hard_weight: Grid[float] = 0.5,
    soft_weight: Paper[float | None] = None,
    temperature: Paper[float] = 10.0,
    layer_weight: Grid[float] = 100.0,
    include_last: Paper[bool] = False,
) -> Recipe:
    """As ild-rtc with the teacher's last layers and a classifier of the student's own.

    ILD-RTC's Table 9: student layers 1..M-1 are matched with N-M+1..N-1; `include_last` adds (M, N).
    """
    match = _layers(partial(pair.top, include_last=include_last), layer_weight)
    return joint(
        match, hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, init="first"
    )  # fmt: skip


def simkd(*, layer_weight: Paper[float] = 1.0, feature: Inferred[Literal["cls", "pooled"]] = "cls") -> Recipe:
    """Matches the input of the teacher's classifier only, which is reused and frozen.

    SimKD (Chen et al., 2022). The feature is the input of the reused classifier. That is the last layer's [CLS] state
    where pooler and linear classifier are reused, the default at the teacher's width. Where the linear classifier alone
    is reused (`--reuse linear`), as at another width, use `feature=pooled`: its input, by which the head's projector is
    trained too.
    """
    match = Match(
        name="feature",
        represent=represent.cls if feature == "cls" else represent.feature,
        pair=pair.last_layer,
        project=project.to_teacher if feature == "cls" else None,
        distance=distance.mse,
        weight=layer_weight,
    )
    return Recipe(stages=(Stage(hard_weight=0.0, matches=(match,)),), head="reuse-frozen")
