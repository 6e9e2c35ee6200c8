"""A warning names the option of the method that changes what it is about."""

from __future__ import annotations

import pytest

from stillery import methods
from stillery.jobs.advice import RunAdvice
from stillery.jobs.config.resolved import resolved_method
from stillery.jobs.config.settings import Distill, Finetune, resolve
from stillery.parts.pseudo import FIT


def advice(method: str, **options: object) -> RunAdvice:
    run = resolve(Distill, {"teacher": "t", "data": "d.csv", "method": method, "options": options}).run
    object.__setattr__(run, "method", resolved_method(run.method))
    return RunAdvice(run)


@pytest.mark.parametrize(
    ("method", "term", "words"),
    [
        ("rail-kd", "random_layers", "lower --option layer_weight (now 0.333)"),
        ("rail-kd", "hard", "lower --hard-weight (now 0.5)"),
        ("rail-kd", "soft", "lower --option soft_weight (now 0.333)"),
        ("kd", "soft", "lower --option soft_weight (now 0.5)"),
        ("layer-forward", "hidden", "lower --option layer_weight (now 3)"),
        ("layer-forward", "decoder_hidden", "lower --option layer_weight (now 3)"),
        ("tinybert", "attention", "lower --option attention_weight (now 1)"),
        ("tinybert", "encoder_hidden", "lower --option hidden_weight (now 1)"),
        ("cr-ild", "consistency_hidden", "lower --option consistency_weight (now 0.1)"),
        ("pkd", "patience", "lower --option layer_weight (now 100)"),
        ("pkd", "own", "lower its weight in the recipe (now 0.5)"),
    ],
)
def test_a_term_has_an_option(method: str, term: str, words: str) -> None:
    assert advice(method).weight(0, term, 0.5) == words


@pytest.mark.parametrize("name", methods.names())
def test_every_term_of_every_method_has_one_that_changes_it(name: str) -> None:
    for stage in methods.build(name).stages:
        terms = [match.name for match in stage.matches] + (["soft"] if stage.prediction is not None else [])
        for term in terms:
            if term == FIT:
                continue  # alone in its stage, and no term of the student's
            assert advice(name).weight(0, term, 1.0).startswith("lower --option "), term


def test_projections_that_can_turn_to_one_direction_are_set_as_those_that_cannot() -> None:
    literal = advice("rail-kd", projection_start="literal", frozen_teacher=False)
    assert literal.projection(0, "random_layers", 1 / 3) == (
        "take --option projection_start=same --option frozen_teacher=true"
    )
    half = advice("rail-kd", frozen_teacher=False)
    assert half.projection(0, "random_layers", 1 / 3) == "take --option frozen_teacher=true"
    assert advice("rail-kd").projection(0, "random_layers", 1 / 3) == "lower --option layer_weight (now 0.333)"


def test_of_a_recipe_of_ones_own_it_is_the_recipe() -> None:
    run = resolve(Distill, {"teacher": "t", "data": "d.csv", "recipe": "mine.py:build"}).run
    assert "in the recipe (now 0.25)" in RunAdvice(run).weight(0, "mine", 0.25)
    assert "in the recipe (now 0.25)" in RunAdvice(run).projection(0, "mine", 0.25)


def test_one_answer_is_a_matter_of_training() -> None:
    given = {"data": "d.csv", "lr": 1e-3, "epochs": 2}
    distilled, tuned = resolve(Distill, {"teacher": "t", **given}).run, resolve(Finetune, {"model": "m", **given}).run
    words = "try a lower --lr (now 0.001), more --epochs (now 2), another --seed"
    assert RunAdvice(distilled).one_answer() == words
    assert RunAdvice(tuned).one_answer() == f"{words} or --restarts"
