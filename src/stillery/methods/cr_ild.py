"""Ko et al. (2023), Revisiting Intermediate Layer Distillation for Compressing Language Models (CR-ILD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from stillery.declare import Code, Group, Inferred, Paper, options
from stillery.methods._stages import layers_then_prediction
from stillery.parts import distance, pair, project, represent, schedule, transport
from stillery.parts import represent_relations as relations
from stillery.parts.represent import Normalise
from stillery.recipe import LEAST_STEPS, Distance, Match, Mixing, Pair, Recipe, Representation, Schedule

__all__ = ["cr_ild", "emd_ild", "l_ild", "u_ild"]

GROUP = Group.ATTENTION

Attention = Literal["kl", "mse"]
States = Literal["tokens", "pool", "patience"]

_HEADS = """Heads are compared one by one. Where the models have different numbers of heads, `relation_heads` merges all
heads and splits them into this many, which has to divide both widths. `normalise` normalises token states (see
docs/methods.md)."""


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """Options that all methods of the paper share: the losses of attention and states, and the two stages."""

    hard_weight: Code[float] = 0.0
    soft_weight: Code[float] = 1.0
    temperature: Code[float] = 2.0
    layer_share: Paper[float] = 5.0
    least_steps: Inferred[int] = LEAST_STEPS
    attention: Paper[Attention] = "kl"
    states: Paper[States] = "tokens"
    attention_weight: Paper[float] = 1.0
    hidden_weight: Paper[float] = 1.0
    always_project: Paper[bool] = False
    relation_heads: Inferred[int | None] = None
    normalise: Inferred[Normalise] = "none"


def _represented(given: LayerOptions) -> Representation:
    """The paper's IR: token states, their mean, or the first one's."""
    return {
        "tokens": represent.token_states(given.normalise),
        "pool": represent.pool,
        "patience": represent.cls,
    }[given.states]


def _attention(given: LayerOptions, which: Pair) -> Match:
    """L_MHA (eq. 1): KL of the attention maps per head, or per relation head, or squared error of their scores."""
    heads, kl = given.relation_heads, given.attention == "kl"
    return Match(
        name="attention",
        represent=relations.with_relation_heads(relations.attention, heads) if heads else relations.attention,
        pair=which,
        distance=distance.kl if kl else distance.mse,
        reduction="batchmean" if kl else "mean",
        weight=given.attention_weight,
    )


def _hidden(given: LayerOptions, which: Pair) -> Match:
    """L_IR (eq. 2): squared error of the states after one projection W^H, where the widths differ.

    The released code has W^H at equal widths too: `always_project`.
    """
    return Match(
        name="hidden",
        represent=_represented(given),
        pair=which,
        project=partial(project.to_teacher, bias=True, shared=True, always=given.always_project),
        distance=distance.normalised_mse if given.states == "patience" else distance.mse,
        weight=given.hidden_weight,
    )


def _recipe(given: LayerOptions, *matches: Match, mixing: Mixing | None = None) -> Recipe:
    """A stage of these matches, then prediction distillation."""
    return layers_then_prediction(
        *matches,
        hard_weight=given.hard_weight,
        soft_weight=given.soft_weight,
        temperature=given.temperature,
        layer_share=given.layer_share,
        least_steps=given.least_steps,
        init="first",
        mixing=mixing,
    )


def _one_to_one(attention_pairs: Pair, hidden_pairs: Pair, summary: str) -> Callable[..., Recipe]:
    """A method that matches attention and states of one teacher layer each, then distils predictions."""

    @options(LayerOptions)
    def recipe(given: LayerOptions) -> Recipe:
        return _recipe(given, _attention(given, attention_pairs), _hidden(given, hidden_pairs))

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


@dataclass(frozen=True, kw_only=True)
class TransportOptions(LayerOptions):
    """Options of EMD-ILD."""

    reweighed: Code[bool] = True


@options(TransportOptions)
def emd_ild(given: TransportOptions) -> Recipe:
    """Attention and states, all layers with all, by transport; then predictions.

    Transport is the earth mover's distance. As in the released code, attention and states have layer weights of their
    own, which start equal every epoch.
    """
    flow = partial(transport.Transport, plan=transport.transport_plan, reweighed=given.reweighed, each_epoch=True)
    matches = _attention(given, transport.all_to_all), _hidden(given, transport.all_to_all)
    return _recipe(given, *(replace(match, flow=flow) for match in matches))


@dataclass(frozen=True, kw_only=True)
class ConsistencyOptions(LayerOptions):
    """Options of CR-ILD: MixUp and the consistency losses."""

    alpha: Paper[float] = 1.0
    consistency_weight: Code[float] = 0.1
    hidden_consistency: Paper[bool] = True
    ramp: Paper[Literal["steps", "epochs"]] = "steps"
    ramp_steps: Inferred[int | None] = None
    pairing: Paper[Literal["random", "reverse"]] = "random"
    larger: Paper[bool] = False
    stop_gradient: Code[bool] = True
    kl_direction: Paper[Literal["from-mixed", "from-target"]] = "from-mixed"


def _consistency_match(
    given: ConsistencyOptions, name: str, compared: Representation, measure: Distance, reduction: str
) -> Match:
    """R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))) of the last layer."""
    weight: Schedule = (
        partial(schedule.ramp, weight=given.consistency_weight, steps=given.ramp_steps)
        if given.ramp == "steps"
        else partial(schedule.epoch_ramp, weight=given.consistency_weight)
    )
    return Match(
        name=name,
        represent=compared,
        pair=pair.last_layer,
        distance=measure,
        reduction=reduction,
        view="mixed",
        against="student",
        detach=given.stop_gradient,
        weight=weight,
    )


def _consistency(given: ConsistencyOptions) -> list[Match]:
    """R_MHA on the attention maps and R_IR on the states, or those of them that are wanted."""
    if not given.consistency_weight:
        return []
    map_kl = partial(distance.map_kl, towards_student=given.kl_direction == "from-mixed")
    found = [_consistency_match(given, "consistency_attention", relations.attention_maps, map_kl, "batchmean")]
    if given.hidden_consistency:
        found.append(_consistency_match(given, "consistency_hidden", _represented(given), distance.mse, "mean"))
    return found


@options(ConsistencyOptions)
def cr_ild(given: ConsistencyOptions) -> Recipe:
    """As l-ild, with MixUp and consistency losses; for small datasets.

    The consistency losses ramp up; a stage of predictions follows. R = d(f(Mix(h_i, h_j)), Mix(f(h_i), f(h_j))) on the
    last layer's attention maps (KL) and states (squared error), with weight `consistency_weight` after a ramp of
    `ramp_steps`, by default the whole stage; 0 is ILD with MixUp, and `hidden_consistency=False` leaves out that of the
    states. The examples of a step are mixed in mutual pairs. The released code differs: partners in reversed order
    (`pairing=reverse`), the larger of lambda and 1 - lambda (`larger`), a ramp by epochs, KL the other way round
    (`kl_direction=from-target`).
    """
    matches = _attention(given, pair.last_layer), _hidden(given, pair.last_layer)
    return _recipe(
        given,
        *(replace(match, view="mixed") for match in matches),
        *_consistency(given),
        mixing=Mixing(alpha=given.alpha, pairing=given.pairing, larger=given.larger),
    )
