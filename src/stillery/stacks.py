"""Adaptation of a recipe to text generation models: its matches on their encoder and decoder stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

from stillery import declare
from stillery.errors import ErrorList, UserError
from stillery.recipe import Match, Pair, Pairs, Recipe, StackName, Stage

__all__ = ["Which", "on_stacks"]

Which = Literal["both", "encoder", "decoder"]
"""The stacks of an encoder-decoder whose layers are matched."""


def on_stacks(recipe: Recipe, kind: str, *, which: Which = "both", cross_attention: bool = False) -> Recipe:
    """Return the recipe for models of a kind (`models.family.kind_of`); raise UserError for unsupported matches.

    - Encoder: unchanged.
    - Decoder: every match on the decoder, and no pairs of embeddings, as in layer selection for Qwen.
    - Encoder-decoder: every match once for each stack of `which`, named after it, with one weight: the terms of encoder
      and decoder are summed, as in layer selection for BART and T5. Random choices are drawn for each stack. With
      `cross_attention` matches of the decoder's self-attention are also applied to its cross-attention (CR-ILD,
      appendix F).

    A match that names its stack is unchanged.
    """
    if cross_attention and kind != "encoder-decoder":
        raise UserError(f"cross attention: only an encoder-decoder has one, these models are of the kind {kind}")
    if kind != "encoder-decoder" and which not in ("both", kind):
        raise UserError(f"stack {which}: these models have one stack, the {kind}")
    if kind == "encoder":
        return recipe
    errors = ErrorList()
    if recipe.head != "fresh":
        errors.add("the method reuses a classifier, and a model that generates text has none; choose another --method")
    for match in (match for stage in recipe.stages for match in stage.matches):
        with errors.catch():
            _check(match)
    errors.raise_any()
    names: tuple[StackName, ...] = ("encoder", "decoder") if which == "both" else (which,)
    if kind == "decoder":
        stages = [replace(stage, matches=tuple(_on_decoder(stage))) for stage in recipe.stages]
    else:
        stages = [replace(stage, matches=tuple(_on_each(stage, names, cross_attention))) for stage in recipe.stages]
    if cross_attention and not any("cross_key" in match.represent.needs for stage in stages for match in stage.matches):
        raise UserError(
            "cross attention: the method compares no attention of the decoder; use l-ild, tinybert or the like"
        )
    return replace(recipe, stages=tuple(stages))


def _check(match: Match) -> None:
    """Raise UserError for a match that only a classifier supports."""
    if match.criterion is not None:
        raise UserError(
            f"match {match.name} asks for one label per text, and a model that generates text has none; choose another "
            "--method"
        )
    if match.represent.reads == "first":
        raise UserError(
            f"match {match.name} compares [CLS] states, and a model that generates text has none; use --represent "
            "pool or tokens"
        )
    if "feature" in match.represent.needs:
        raise UserError(
            f"match {match.name} compares what a classifier receives, and a model that generates text has none; choose "
            "another --method"
        )


def _on_decoder(stage: Stage) -> Iterator[Match]:
    for match in stage.matches:
        if match.stack is not None:
            yield match
        elif _of_layers(match):
            yield replace(match, stack="decoder", pair=_without_embedding(match.pair))


def _without_embedding(which: Pair) -> Pair:
    """Return the pairing without the pair of embeddings, if it has that option."""
    if declare.option_of(which, "embedding") is None:
        return which
    plain: Callable[..., Pairs] = which
    return partial(plain, embedding=False)


def _of_layers(match: Match) -> bool:
    """Return whether a match is of layers, not of the embeddings only."""
    declared = declare.facts_of(match.pair)
    return declared is None or declared.of_layers


def _on_each(stage: Stage, names: tuple[StackName, ...], cross_attention: bool) -> Iterator[Match]:
    yield from (match for match in stage.matches if match.stack is not None)
    for name in names:
        for match in (match for match in stage.matches if match.stack is None):
            yield replace(match, name=f"{name}_{match.name}", stack=name)
            crossed = match.represent.crossed
            if cross_attention and name == "decoder" and match.against == "teacher" and crossed is not None:
                yield replace(match, name=f"cross_{match.name}", stack=name, represent=crossed)
