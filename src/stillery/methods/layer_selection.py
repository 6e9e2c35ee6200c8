"""Layer Selection in Intermediate-Layer Matching Does Not Matter (Much), arXiv 2502.04499 (2025)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stillery.declare import Code, Inferred
from stillery.parts import distance, divergence, pair, project, represent
from stillery.parts.represent import Normalise
from stillery.recipe import Match, Pairs, Prediction, Recipe, Representation, Stage

__all__ = ["layer_all_to_one", "layer_forward", "layer_random", "layer_reverse"]


_OPTIONS = """`released` is the released code's form for BERT. `normalise` takes mean and scale out of the states, of
each token or of all real tokens of a batch jointly; with `raw_last` the last state is the one before the norm that T5
and most decoders have behind their last layer, as all other states are. For both see "Models that write text"."""


def _states(normalise: Normalise, raw_last: bool) -> Representation:
    """Token states, normalised or not."""
    states = represent.token_states(normalise)
    return represent.with_raw_last(states) if raw_last else states


def _strategy(which: Callable[..., Pairs], summary: str) -> Callable[..., Recipe]:
    """The method CE + KL + 3 L_hid with one of the paper's four pairings; all else is the same by design."""

    def recipe(
        *,
        hard_weight: Code[float] = 1.0,
        soft_weight: Code[float] = 1.0,
        temperature: Code[float] = 1.0,
        layer_weight: Code[float] = 3.0,
        embedding: Code[bool] = True,
        released: Inferred[bool] = False,
        normalise: Inferred[Normalise] = "none",
        raw_last: Inferred[bool] = False,
    ) -> Recipe:
        hidden = Match(
            name="hidden",
            represent=_states(normalise, raw_last),
            pair=partial(which, embedding=embedding),
            project=project.to_teacher,
            distance=distance.mse,
            # The released BERT code sums over width, averages over pairs, and divides by the batch size once too often.
            reduction="batchmean_twice" if released else "mean",
            over_pairs="mean" if released else "sum",
            weight=layer_weight,
        )
        prediction = Prediction(divergence=divergence.kl, temperature=temperature, weight=soft_weight)
        return Recipe(stages=(Stage(hard_weight=hard_weight, prediction=prediction, matches=(hidden,)),))

    recipe.__doc__ = f"{summary}\n\n{_OPTIONS}"
    return recipe


layer_forward = _strategy(
    pair.forward, "Forward matching: student layer i meets teacher layer ceil(i N / M), embedding meets embedding."
)
layer_reverse = _strategy(
    pair.reverse, "Reverse matching: the forward teacher layers in opposite order, embedding meets embedding."
)
layer_all_to_one = _strategy(
    pair.all_to_one, "All-to-one matching: every student state, embedding included, meets the teacher's layer N // 2."
)
layer_random = _strategy(
    pair.fixed_random, "Random matching: one permutation of the forward layers, drawn from the seed, fixed for the run."
)
