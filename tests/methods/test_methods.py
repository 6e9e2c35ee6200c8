"""What every method shares: it is found, described, and takes its own options only."""

from __future__ import annotations

import types
import typing

import pytest

from stillery import methods
from stillery.errors import UserError


def test_names() -> None:
    expected = {"none", "kd", "pkd", "layer-forward", "layer-reverse", "layer-all-to-one", "layer-random"}
    assert expected <= set(methods.names())


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_described(name: str) -> None:
    found = methods.describe(name)
    assert found["name"] == name
    assert found["paper"] and found["summary"].endswith(".")
    assert found["stages"] and sum(stage["share"] for stage in found["stages"]) > 0


def another_value(hint: object, default: object) -> object:
    if isinstance(default, bool):
        return not default
    for kind in typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        if typing.get_origin(kind) is typing.Literal:
            return next(choice for choice in typing.get_args(kind) if choice != default)
        if kind in (int, float):
            return 7 if kind is int else 0.123
    raise AssertionError(hint)


@pytest.mark.parametrize("name", methods.names())
def test_every_option_changes_the_recipe(name: str) -> None:
    method = methods.find(name)
    plain = methods.describe(name)["stages"]
    for option, default in method.options.items():
        other = another_value(typing.get_type_hints(method.function)[option], default)
        assert methods.describe(name, {option: other})["stages"] != plain, option


def test_options_from_text_have_the_types_of_the_signature() -> None:
    stage = methods.build("pkd", {"layers": "last", "temperature": "4", "normalise": "false"}).stages[0]
    assert stage.prediction is not None and stage.prediction.temperature == 4.0
    assert stage.matches[0].distance.__name__ == "mse"
    assert stage.matches[0].pair.__name__ == "last"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("layer-forwards", {}, "did you mean 'layer-forward'"),
        ("kd", {"temprature": 3}, "did you mean 'temperature'"),
        ("kd", {"temperature": "hot"}, "give a number"),
        ("kd", {"temperature": 0}, "above 0"),
        ("kd", {"hard_weight": 1.5}, "between 0 and 1"),
        ("kd", {"hard_weight": -1}, "at least 0"),
        ("kd", {"square": "maybe"}, "true or false"),
        ("pkd", {"layers": "middle"}, "choose from skip, last"),
    ],
)
def test_wrong_options_are_faults(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        methods.build(name, options)


def test_all_wrong_options_are_reported_together() -> None:
    with pytest.raises(UserError) as caught:
        methods.build("kd", {"temprature": 3, "square": "maybe"})
    assert len(caught.value.lines) == 2


def test_defaults_are_the_specified_ones() -> None:
    kd = methods.build("kd").stages[0]
    assert kd.prediction is not None
    assert (kd.hard_weight, kd.prediction.weight, kd.prediction.temperature, kd.prediction.square) == (
        0.5,
        0.5,
        2,
        True,
    )
    pkd = methods.build("pkd")
    assert pkd.init == "first" and pkd.stages[0].prediction is not None
    patience = pkd.stages[0].matches[0]
    assert (patience.weight, patience.reduction, patience.over_pairs) == (100, "mean", "mean")
    assert (pkd.stages[0].hard_weight, pkd.stages[0].prediction.temperature) == (0.5, 10)
    forward = methods.build("layer-forward")
    assert forward.init is None and forward.head == "fresh"
    hidden = forward.stages[0].matches[0]
    assert (hidden.weight, hidden.reduction, hidden.over_pairs) == (3, "mean", "sum")
    assert forward.stages[0].prediction is not None and forward.stages[0].prediction.temperature == 1
    assert methods.build("kd", {"hard_weight": 0.2}).stages[0].prediction.weight == pytest.approx(0.8)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", methods.names())
def test_every_default_has_a_source(name: str) -> None:
    found = methods.describe(name)
    assert found["sources"].keys() == found["options"].keys()
    assert set(found["sources"].values()) <= {"paper", "grid", "code", "third party", "inferred"}
