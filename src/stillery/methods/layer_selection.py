"""Layer Selection in Intermediate-Layer Matching Does Not Matter (Much), arXiv 2502.04499 (2025)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stillery.declare import Code, Group, Inferred, try_first
from stillery.parts import distance, divergence, pair, project, represent
from stillery.parts.represent import Normalise
from stillery.recipe import Match, Pairs, Prediction, Recipe, Representation, Stage

__all__ = ["layer_all_to_one", "layer_forward", "layer_random", "layer_reverse"]

GROUP = Group.ONE_TO_ONE


_OPTIONS = """`released` is the released code's form for BERT. `normalise` normalises the states, each token by itself
or all real tokens of a batch jointly. With `raw_last` the last hidden state is taken before the norm that T5 and most
decoders have after their last layer, as all other states are. For both see docs/methods/generation.md."""


def _states(normalise: Normalise, raw_last: bool) -> Representation:
    """Token states, normalised or not."""
    states = represent.token_states(normalise)
    return represent.with_raw_last(states) if raw_last else states


def _strategy(which: Callable[..., Pairs], summary: str, pairs: str) -> Callable[..., Recipe]:
    """The method CE + KL + 3 L_hid with one of the paper's four pairings; the methods differ in nothing else."""

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

    recipe.__doc__ = f"{summary}\n\n{pairs}\n{_OPTIONS}"
    return recipe


layer_forward = try_first(3)(
    _strategy(
        pair.forward,
        "Matches token states of evenly spaced teacher layers, in order; the default.",
        "Forward matching: student layer i with teacher layer ceil(i N / M), embedding with embedding.",
    )
)
layer_reverse = _strategy(
    pair.reverse,
    "As layer-forward, with the teacher's layers in reverse order.",
    "Reverse matching: the embeddings are still matched with each other.",
)
layer_all_to_one = _strategy(
    pair.all_to_one,
    "As layer-forward, with the teacher's middle layer for all student layers.",
    "All-to-one matching: every student layer, embedding included, with the teacher's layer N // 2.",
)
layer_random = _strategy(
    pair.fixed_random,
    "As layer-forward, with the teacher's layers in a random order.",
    "Random matching: one permutation of the forward layers, drawn from the seed, fixed for the run.",
)
