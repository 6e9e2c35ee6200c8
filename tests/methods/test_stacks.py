"""Methods on the stacks of models that generate text: which matches they have, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stillery import methods
from stillery.errors import UserError
from stillery.overrides import Switches, switched
from stillery.parts import distance, pair, represent
from stillery.parts import represent_relations as relations
from stillery.recipe import Clock, Match, Recipe, Stage
from stillery.stacks import on_stacks
from stillery.train.step_plan import rows_of

REFUSED = {"pkd", "alp-kd", "ckd-combine", "ild-rtc", "ild-top", "simkd", "codir", "universal-kd"}
ALLOWED = [name for name in methods.names() if name not in REFUSED]


def matches(recipe: Recipe) -> dict[str, Match]:
    return {match.name: match for stage in recipe.stages for match in stage.matches}


@pytest.mark.parametrize("name", methods.names())
def test_a_classifier_keeps_its_recipe(name: str) -> None:
    recipe = methods.build(name)
    assert on_stacks(recipe, "encoder") is recipe


@pytest.mark.parametrize("name", ALLOWED)
def test_an_encoder_decoder_has_every_match_twice(name: str) -> None:
    plain = methods.build(name)
    both = on_stacks(plain, "encoder-decoder")
    found = matches(both)
    for match in matches(plain).values():
        for stack in ("encoder", "decoder"):
            assert replace(found.pop(f"{stack}_{match.name}"), name=match.name, stack=None) == match
    assert not found
    for which in ("encoder", "decoder"):
        alone = matches(on_stacks(plain, "encoder-decoder", which=which))
        assert {match.stack for match in alone.values()} == ({which} if matches(plain) else set())
    assert [replace(stage, matches=()) for stage in both.stages] == [
        replace(stage, matches=()) for stage in plain.stages
    ]


@pytest.mark.parametrize("name", ALLOWED)
def test_a_decoder_has_no_pairs_of_embeddings(name: str) -> None:
    plain, found = matches(methods.build(name)), matches(on_stacks(methods.build(name), "decoder"))
    assert plain.keys() - found.keys() == ({"embedding"} if name == "bert-emd" else set())
    for match in found.values():
        pairs = match.pairs(2, 4, Clock())
        assert match.stack == "decoder" and pairs
        assert all(0 not in (ours, theirs) for ours, theirs in pairs)


def test_the_options_of_a_pairing_stay() -> None:
    which = matches(on_stacks(methods.build("layer-reverse", {"embedding": True}), "decoder"))["hidden"].pair
    assert which(3, 12, Clock()) == [(1, 12), (2, 8), (3, 4)]
    middle = matches(on_stacks(methods.build("layer-all-to-one"), "decoder"))["hidden"].pair
    assert middle(9, 36, Clock()) == [(layer, 18) for layer in range(1, 10)]


@pytest.mark.parametrize("name", ["layer-random", "rail-kd", "rail-kd-concat"])
def test_stacks_draw_independently(name: str) -> None:
    encoder, decoder = matches(on_stacks(methods.build(name), "encoder-decoder")).values()
    alone = next(iter(matches(methods.build(name)).values()))
    clocks = [Clock(seed=seed, epoch=epoch) for seed in range(10) for epoch in range(2)]
    drawn = [(encoder.pairs(3, 12, clock), decoder.pairs(3, 12, clock)) for clock in clocks]
    assert [ours for ours, _ in drawn] == [alone.pairs(3, 12, clock) for clock in clocks]
    assert drawn == [(encoder.pairs(3, 12, clock), decoder.pairs(3, 12, clock)) for clock in clocks]
    assert len({str(theirs) for _, theirs in drawn}) > 2
    # Neither always the same nor the other's draw one seed on.
    assert any(ours != theirs for ours, theirs in drawn) and any(
        one[1] != other[0] for one, other in zip(drawn[::2], drawn[2::2], strict=False)
    )


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_makes_no_sense_is_refused_in_a_line(name: str, kind: str) -> None:
    with pytest.raises(UserError) as caught:
        on_stacks(methods.build(name), kind)
    assert all("a model that generates text has none" in line for line in caught.value.lines)
    if name in ("pkd", "alp-kd"):
        assert "[CLS]" in caught.value.lines[0] and "--represent pool" in caught.value.lines[0]
        pooled = switched(methods.build(name), Switches(represent="pool"), name)
        assert matches(on_stacks(pooled, kind))


@pytest.mark.parametrize(
    ("kind", "stacks", "words"),
    [
        ("encoder", {"which": "decoder"}, "one stack, the encoder"),
        ("decoder", {"which": "encoder"}, "one stack, the decoder"),
        ("decoder", {"cross_attention": True}, "only an encoder-decoder has one"),
        ("encoder", {"cross_attention": True}, "only an encoder-decoder has one"),
        ("encoder-decoder", {"cross_attention": True, "which": "encoder"}, "compares no attention of the decoder"),
    ],
)
def test_stacks_that_are_not_there(kind: str, stacks: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        on_stacks(methods.build("l-ild"), kind, **stacks)
    with pytest.raises(UserError, match="compares no attention"):
        on_stacks(methods.build("layer-forward"), "encoder-decoder", cross_attention=True)


def test_cross_attention_goes_with_the_decoders_own() -> None:
    found = matches(on_stacks(methods.build("u-ild"), "encoder-decoder", cross_attention=True))
    assert set(found) == {
        "encoder_attention", "encoder_hidden", "decoder_attention", "cross_attention", "decoder_hidden"
    }  # fmt: skip
    own, cross = found["decoder_attention"], found["cross_attention"]
    assert replace(cross, name=own.name, represent=own.represent) == own
    assert cross.represent is relations.cross_attention
    cut = on_stacks(methods.build("cr-ild", {"relation_heads": 8}), "encoder-decoder", cross_attention=True)
    assert matches(cut)["cross_attention"].represent.heads == 8


def test_fine_tuning_may_take_the_place_of_prediction_distillation() -> None:
    _, last = on_stacks(methods.build("l-ild", {"hard_weight": 1, "soft_weight": 0}), "encoder-decoder").stages
    assert last.prediction is None and last.hard_weight == 1 and not last.needs_teacher


def test_a_match_that_names_its_stack_stays_as_it_is() -> None:
    own = Match(
        name="own", represent=represent.tokens, pair=pair.forward, distance=distance.mse, stack="decoder"
    )  # fmt: skip
    recipe = Recipe(stages=(Stage(matches=(own, replace(own, name="free", stack=None))),))
    assert matches(on_stacks(recipe, "encoder-decoder")).keys() == {"own", "encoder_free", "decoder_free"}
    assert matches(on_stacks(recipe, "decoder"))["own"] is own


@pytest.mark.parametrize(
    ("what", "stack", "view", "reduction", "rows"),
    [
        (represent.tokens, None, "plain", "mean", "tokens"),
        (represent.tokens, "decoder", "plain", "mean", "decoder tokens"),
        (represent.tokens, "decoder", "mixed", "mean", "mixed decoder tokens"),
        (represent.pool, "decoder", "mixed", "mean", "examples"),
        (relations.attention, "encoder", "plain", "mean", "pairs"),
        (relations.attention, "decoder", "plain", "mean", "causal pairs"),
        (relations.attention, "decoder", "plain", "rowmean", "decoder tokens"),
        (relations.cross_attention, "decoder", "plain", "mean", "cross pairs"),
        (relations.cross_attention, "decoder", "mixed", "mean", "mixed cross pairs"),
        (relations.value_relations, "decoder", "plain", "mean", "decoder pairs"),
    ],
)
def test_what_a_term_is_a_mean_over(what, stack, view: str, reduction: str, rows: str) -> None:
    match = Match(
        name="m", represent=what, pair=pair.last_layer, distance=distance.mse, reduction=reduction, stack=stack,
        view=view,
    )  # fmt: skip
    assert rows_of(match) == rows
    if stack == "decoder":
        assert rows_of(replace(match, stack=None), "decoder") == rows
