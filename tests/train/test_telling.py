"""What steps said is told in order, once, when it has arrived, and a loss that is no number ends the run."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator

from stillery.faults import Stopped
from stillery.train.loop import accelerator_for
from stillery.train.said import Said
from stillery.train.telling import MOST, Reading, Telling


@pytest.fixture
def accelerator() -> Accelerator:
    return accelerator_for("fp32")


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The steps whose readings have arrived, by the last of each, as on a GPU that is behind."""
    there: set[int] = set()
    monkeypatch.setattr(Reading, "arrived", property(lambda reading: reading.steps[-1].step in there))
    return there


def said(step: int, value: float | None = None) -> Said:
    one = Said(step)
    one.add(["hard"], torch.full((2,), float(step) if value is None else value), [f"row {step}"])
    one.norm = torch.tensor(10.0 * step)
    return one


def behind(accelerator: Accelerator) -> Telling:
    """As it tells on a GPU."""
    telling = Telling(accelerator)
    telling.every_step = False
    return telling


def steps(told: list) -> list[tuple[int, object]]:
    return [(one.step, facts["lr"]) for one, facts in told]


def test_on_a_cpu_every_step_is_looked_at_and_what_is_logged_is_told_at_once(accelerator: Accelerator) -> None:
    telling = Telling(accelerator)
    telling.add(said(1), {"lr": 0.1})
    ((one, facts),) = telling.told()
    assert facts == {"lr": 0.1}
    assert one.numbers() == {"loss": 1.0, "terms": {"hard": 1.0}, "gradient_norm": 10.0}
    telling.add(said(2), None)
    assert telling.told() == []
    telling.add(said(3, float("nan")), None)
    with pytest.raises(Stopped, match="step 3: loss term hard is not finite on examples row 3"):
        telling.told()


def test_what_is_on_its_way_is_told_when_it_has_arrived(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    for step in range(1, 4):
        telling.add(said(step), {"lr": step} if step != 2 else None)
        assert telling.told() == []
    arrived.add(3)
    assert telling.told() == [], "step 1 comes first"
    arrived.add(1)
    assert steps(telling.told()) == [(1, 1), (3, 3)]
    assert telling.told(wait=True) == []


def test_who_waits_is_told_everything_and_the_rest_is_looked_at(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    telling.add(said(1), {"lr": 1})
    telling.add(said(2), None)
    assert steps(telling.told(wait=True)) == [(1, 1)]
    telling.add(said(3, float("inf")), None)
    assert telling.told() == []
    with pytest.raises(Stopped, match="step 3"):
        telling.told(wait=True)


def test_the_host_is_not_ahead_without_end(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    for step in range(1, MOST + 2):
        telling.add(said(step), {"lr": step})
    assert steps(telling.told()) == [(1, 1)]


def test_a_reading_puts_the_numbers_back_where_they_were() -> None:
    one, other = said(1), said(2)
    one.add(["hard"], torch.full((2,), 7.0), ["more"])
    other.norm = None
    expected = [[*one.numbers().items()], [*other.numbers().items()]]
    pieces = [piece.clone() for step in (one, other) for piece in step.tensors()]
    assert [len(piece) for piece in pieces] == [2, 2, 1, 2]
    found = iter(torch.cat(pieces).split([len(piece) for piece in pieces]))
    for step in (one, other):
        step.take(found)
    assert [[*one.numbers().items()], [*other.numbers().items()]] == expected
