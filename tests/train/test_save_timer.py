"""Checkpoints by the clock: as often as a twentieth of the time allows, and no further apart than asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerate import Accelerator

import stillery
from stillery.train import checkpoint
from stillery.train.save_timer import SaveTimer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.01, 1), (0.25, 5), (1, 20), (1.5, 30), (4, 30), (10, 50)],
    ids=["not below a second", "a twentieth", "a twentieth", "up to 30 s", "30 s at most", "a sixth where it is slow"],
)
def test_the_pace_follows_what_the_last_checkpoint_cost(took: float, pause: float):
    clock = Clock()
    timer = SaveTimer(30.0, Accelerator(cpu=True), now=clock)
    clock.now += 0.9
    assert not timer.due()
    clock.now += 0.1
    assert timer.due(), "the first shows what one costs"
    with timer.saving():
        clock.now += took
    clock.now += pause - 0.1
    assert not timer.due()
    clock.now += 0.2
    assert timer.due()


def test_seconds_below_the_pace_are_kept():
    clock = Clock()
    timer = SaveTimer(0.5, Accelerator(cpu=True), now=clock)
    clock.now += 0.5
    assert timer.due()


def test_without_seconds_none_is_due():
    clock = Clock()
    timer = SaveTimer(None, Accelerator(cpu=True), now=clock)
    clock.now += 1e6
    assert not timer.due()


def test_the_pace_changes_no_bit_of_a_run(
    tiny_teacher: Path, reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Dropout is on, projections are trained, and the best weights are kept."""
    saved: dict[str, list[int]] = {}
    save = checkpoint.save

    def counted(folder: Path, module: object, optimiser: object, progress: checkpoint.Progress) -> None:
        saved.setdefault(folder.name, []).append(progress.step)
        save(folder, module, optimiser, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save", counted)
    for name, seconds in (("none", None), ("often", 0.001)):
        stillery.distill(
            teacher=tiny_teacher, data=reviews, method="layer-forward", layers=2, width=16, heads=2, lr=1e-3,
            max_steps=30, batch_size=8, eval_every=7, cache="off", checkpoint_seconds=seconds, out=tmp_path / name,
            quiet=True,
        )  # fmt: skip
    assert list(saved) == ["often"] and len(saved["often"]) > 1
    one, other = (tmp_path / name for name in ("none", "often"))
    for file in ("model.safetensors", "projections/projections.safetensors", "predictions.parquet"):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
