"""What steps said is told in order, once, when it has arrived, and a loss that is no number ends the run."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from stillery.errors import Stopped
from stillery.train import deferred_losses as telling_module
from stillery.train.deferred_losses import DeferredLosses, Reading
from stillery.train.loop import accelerator_for
from stillery.train.step_losses import StepLosses


@pytest.fixture
def accelerator() -> Accelerator:
    return accelerator_for("fp32")


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The steps whose readings have arrived, by the last of each, as on a GPU that is behind."""
    there: set[int] = set()
    monkeypatch.setattr(Reading, "arrived", property(lambda reading: reading.steps[-1].step in there))
    return there


def said(step: int, value: float | None = None) -> StepLosses:
    one = StepLosses(step)
    one.add(["hard"], torch.full((2,), float(step) if value is None else value), [f"row {step}"])
    one.norm = torch.tensor(10.0 * step)
    return one


def behind(accelerator: Accelerator) -> DeferredLosses:
    """As it tells on a GPU."""
    telling = DeferredLosses(accelerator)
    telling.every_step = False
    return telling


def steps(told: Iterator) -> list[tuple[int, object]]:
    return [(one.step, facts["lr"]) for one, facts in told]


def test_on_a_cpu_every_step_is_looked_at_and_what_is_logged_is_told_at_once(accelerator: Accelerator) -> None:
    telling = DeferredLosses(accelerator)
    telling.add(said(1), {"lr": 0.1})
    ((one, facts),) = telling.arrived()
    assert facts == {"lr": 0.1}
    assert one.numbers() == {"loss": 1.0, "terms": {"hard": 1.0}, "gradient_norm": 10.0}
    telling.add(said(2), None)
    assert not [*telling.arrived()]
    telling.add(said(3, float("nan")), None)
    with pytest.raises(Stopped, match="in step 3 the loss term hard is not finite, on examples row 3"):
        list(telling.arrived())


def test_what_is_on_its_way_is_told_when_it_has_arrived(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    for step in range(1, 4):
        telling.add(said(step), {"lr": step} if step != 2 else None)
        assert not [*telling.arrived()]
    arrived.add(3)
    assert not [*telling.arrived()], "step 1 comes first"
    arrived.add(1)
    assert steps(telling.arrived()) == [(1, 1), (3, 3)]
    assert not [*telling.arrived(wait=True)]


def test_who_waits_is_told_everything_and_the_rest_is_looked_at(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    telling.add(said(1), {"lr": 1})
    telling.add(said(2), None)
    assert steps(telling.arrived(wait=True)) == [(1, 1)]
    telling.add(said(3, float("inf")), None)
    assert not [*telling.arrived()]
    with pytest.raises(Stopped, match="step 3"):
        list(telling.arrived(wait=True))


def test_what_was_fine_is_told_before_the_run_ends(accelerator: Accelerator, arrived: set[int]) -> None:
    telling = behind(accelerator)
    telling.add(said(1), {"lr": 1})
    telling.add(said(2, float("nan")), {"lr": 2})
    given = telling.arrived(wait=True)
    assert next(given)[0].step == 1
    with pytest.raises(Stopped, match="step 2"):
        next(given)


def test_a_reading_waits_and_puts_the_numbers_back_where_they_were() -> None:
    one, other = said(1), said(2)
    one.add(["hard"], torch.full((2,), 7.0), ["more"])
    other.norm = None
    expected = [one.numbers(), other.numbers()]
    reading, there = Reading([one, other]), torch.cat([*one.tensors(), *other.tensors()])
    assert reading.arrived
    reading._fetched = SimpleNamespace(arrived=False, read=lambda: [there])
    one.values, other.values = [torch.full((2,), -1.0)] * 2, [torch.full((2,), -1.0)]
    assert not reading.arrived
    assert [each.numbers() for each in reading.read()] == expected


def test_what_several_processes_add_up_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    def reading(steps: list[StepLosses], *, fetched: bool) -> Reading:
        made.append(fetched)
        return Reading(steps, fetched=fetched)

    monkeypatch.setattr(telling_module, "Reading", reading)
    for count in (1, 2):
        DeferredLosses(SimpleNamespace(device=torch.device("cuda"), num_processes=count)).add(said(1), {"lr": 1})
    assert made == [True, False]
