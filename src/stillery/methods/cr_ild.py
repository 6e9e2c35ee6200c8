"""Ko et al. (2023), Revisiting Intermediate Layer Distillation for Compressing Language Models (CR-ILD)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Literal

from stillery.declare import Code, Group, Inferred, Paper
from stillery.methods._stages import layers_then_prediction
from stillery.parts import distance, pair, project, represent, schedule, transport
from stillery.parts.represent import Normalise
from stillery.recipe import LEAST_STEPS, Match, Mixing, Pair, Recipe, Representation, Schedule

__all__ = ["cr_ild", "emd_ild", "l_ild", "u_ild"]

GROUP = Group.ATTENTION

Attention = Literal["kl", "mse"]
States = Literal["tokens", "pool", "patience"]


_HEADS = """Heads are compared one by one. Where the models have different numbers of them, `relation_heads` merges all
and cuts them into this many, which has to divide both widths. `normalise` takes mean and scale out of token states: see
"Models that write text"."""


def _states(states: States, normalise: Normalise) -> Representation:
    """The paper's IR: token states, their mean, or the first one's."""
    return {"tokens": represent.token_states(normalise), "pool": represent.pool, "patience": represent.cls}[states]


def _attention(how: Attention, which: Pair, weight: float, heads: int | None) -> Match:
    """L_MHA (eq. 1): KL of the attention maps per head, or per relation head, or squared error of their scores."""
    scores = represent.with_relation_heads(represent.attention, heads) if heads else represent.attention
    return Match(
        name="attention", represent=scores, pair=which,
        distance=distance.kl if how == "kl" else distance.mse,
        reduction="batchmean" if how == "kl" else "mean", weight=weight,
    )  # fmt: skip


def _hidden(states: States, normalise: Normalise, which: Pair, weight: float, always_project: bool) -> Match:
    """L_IR (eq. 2): squared error of the states behind one map W^H, which is there where the widths differ.

    The released code has W^H at equal widths too: `always_project`.
    """
    return Match(
        name="hidden", represent=_states(states, normalise), pair=which,
        project=partial(project.to_teacher, bias=True, shared=True, always=always_project),
        distance=distance.normalised_mse if states == "patience" else distance.mse, weight=weight,
    )  # fmt: skip


def _one_to_one(attention_pairs: Pair, hidden_pairs: Pair, summary: str) -> Callable[..., Recipe]:
    """A method that matches attention and states pair by pair, then distils predictions."""

    def recipe(
        *,
        hard_weight: Code[float] = 0.0,
        soft_weight: Code[float] = 1.0,
        temperature: Code[float] = 2.0,
        layer_share: Paper[float] = 5.0,
        least_steps: Inferred[int] = LEAST_STEPS,
        attention: Paper[Attention] = "kl",
        states: Paper[States] = "tokens",
        attention_weight: Paper[float] = 1.0,
        hidden_weight: Paper[float] = 1.0,
        always_project: Paper[bool] = False,
        relation_heads: Inferred[int | None] = None,
        normalise: Inferred[Normalise] = "none",
    ) -> Recipe:
        return layers_then_prediction(
            _attention(attention, attention_pairs, attention_weight, relation_heads),
            _hidden(states, normalise, hidden_pairs, hidden_weight, always_project),
            hard_weight=hard_weight,
            soft_weight=soft_weight,
            temperature=temperature,
            layer_share=layer_share,
            least_steps=least_steps,
            init="first",
        )

    recipe.__doc__ = f"{summary}\n\n{_HEADS}"
    return recipe


l_ild = _one_to_one(
    pair.last_layer,
    pair.last_layer,
    "Attention and states of the last layer only; then predictions.",
)
u_ild = _one_to_one(
    pair.uniform,
    partial(pair.uniform, embedding=True),
    "Attention and states of evenly spaced layers and embedding; then predictions.",
)


def emd_ild(
    *,
    hard_weight: Code[float] = 0.0,
    soft_weight: Code[float] = 1.0,
    temperature: Code[float] = 2.0,
    layer_share: Paper[float] = 5.0,
    least_steps: Inferred[int] = LEAST_STEPS,
    attention: Paper[Attention] = "kl",
    states: Paper[States] = "tokens",
    attention_weight: Paper[float] = 1.0,
    hidden_weight: Paper[float] = 1.0,
    always_project: Paper[bool] = False,
    relation_heads: Inferred[int | None] = None,
    normalise: Inferred[Normalise] = "none",
    reweighed: Code[bool] = True,
) -> Recipe:
    """Attention and states, all layers with all by transport; then predictions.

    Transport is the earth mover's distance. As the released code has it, attention and states keep weights of their
    own, which start equal every epoch.
    """
    flow = partial(transport.Transport, plan=pair.transport_plan, reweighed=reweighed, each_epoch=True)
    matches = [
        _attention(attention, pair.all_to_all, attention_weight, relation_heads),
        _hidden(states, normalise, pair.all_to_all, hidden_weight, always_project),
    ]
    return layers_then_prediction(
        *(dataclasses.replace(match, flow=flow) for match in matches),
        hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, layer_share=layer_share,
        least_steps=least_steps, init="first",
    )  # fmt: skip


def cr_ild(
    *,
    hard_weight: Code[float] = 0.0,
    soft_weight: Code[float] = 1.0,
    temperature: Code[float] = 2.0,
    layer_share: Paper[float] = 5.0,
    least_steps: Inferred[int] = LEAST_STEPS,
    attention: Paper[Attention] = "kl",
    states: Paper[States] = "tokens",
    attention_weight: Paper[float] = 1.0,
    hidden_weight: Paper[float] = 1.0,
    always_project: Paper[bool] = False,
    relation_heads: Inferred[int | None] = None,
    normalise: Inferred[Normalise] = "none",
    alpha: Paper[float] = 1.0,
    consistency_weight: Code[float] = 0.1,
    hidden_consistency: Paper[bool] = True,
    ramp: Paper[Literal["steps", "epochs"]] = "steps",
    ramp_steps: Inferred[int | None] = None,
    pairing: Paper[Literal["random", "reverse"]] = "random",
    larger: Paper[bool] = False,
    stop_gradient: Code[bool] = True,
    kl_direction: Paper[Literal["from-mixed", "from-target"]] = "from-mixed",
) -> Recipe:
    """As l-ild, on mixed examples with consistency terms; for little data.

    The terms ramp up; then come predictions. R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))) on the last layer's attention
    maps (KL) and states (squared error), with weight `consistency_weight` after a ramp of `ramp_steps`, by default the
    whole stage; 0 is ILD with MixUp, and `hidden_consistency=False` leaves the states' out. The examples of a step are
    mixed two by two, each with the other. The released code differs: partners in reversed order (`pairing=reverse`),
    the larger of lambda and 1 - lambda (`larger`), a ramp by epochs, KL the other way round
    (`kl_direction=from-target`).
    """
    weight: Schedule = (
        partial(schedule.ramp, weight=consistency_weight, steps=ramp_steps)
        if ramp == "steps"
        else partial(schedule.epoch_ramp, weight=consistency_weight)
    )
    matches = [
        dataclasses.replace(match, view="mixed")
        for match in (
            _attention(attention, pair.last_layer, attention_weight, relation_heads),
            _hidden(states, normalise, pair.last_layer, hidden_weight, always_project),
        )
    ]
    consistent = [
        Match(
            name="consistency_attention", represent=represent.attention_maps, pair=pair.last_layer,
            distance=partial(distance.map_kl, towards_student=kl_direction == "from-mixed"), reduction="batchmean",
            view="mixed", against="student", detach=stop_gradient, weight=weight,
        ),
        Match(
            name="consistency_hidden", represent=_states(states, normalise), pair=pair.last_layer,
            distance=distance.mse, view="mixed", against="student", detach=stop_gradient, weight=weight,
        ),
    ]  # fmt: skip
    if not hidden_consistency:
        consistent.pop()
    return layers_then_prediction(
        *matches, *(consistent if consistency_weight else []),
        hard_weight=hard_weight, soft_weight=soft_weight, temperature=temperature, layer_share=layer_share,
        least_steps=least_steps, init="first",
        mixing=Mixing(alpha=alpha, pairing=pairing, larger=larger),
    )  # fmt: skip
