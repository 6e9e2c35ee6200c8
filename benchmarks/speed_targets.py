"""From what the sides of the speed benchmark took to the ratios that are wanted.

Sides take turns; a ratio is the median of the ratios of each turn, so that a busy machine slows both sides of it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from speed_benches import Bench

Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio, and the most or the least it should be, if anything is wanted of it."""

    what: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def wanted(self) -> str:
        return f"at least {self.least}" if self.least is not None else f"at most {self.most}" if self.most else ""


def whole(answer: Answer) -> float:
    """Seconds of a run, filling the cache included."""
    return float(answer["seconds"])


def later(answer: Answer) -> float:
    """Seconds of an epoch after the first."""
    return mean(answer["epochs"][1:])


def rate(answer: Answer) -> float:
    """Steps a second in the epochs after the first."""
    epochs = len(answer["epochs"])
    return answer["steps"] / epochs / later(answer)


def memory(answer: Answer) -> float:
    """The most memory held, in MB."""
    return float(answer["peak_mb"])


class Found:
    """The answers of a bench, by side, one a turn."""

    def __init__(self, bench: Bench, answers: dict[str, list[Answer]]) -> None:
        self.bench, self.answers = bench, answers

    def typical(self, side: str, value: Callable[[Answer], float]) -> float:
        return median(map(value, self.answers[side]))

    def ratio(self, ours: str, theirs: str, value: Callable[[Answer], float]) -> float | None:
        """None when one of them was not run."""
        if not self.answers.get(ours) or not self.answers.get(theirs):
            return None
        pairs = zip(self.answers[ours], self.answers[theirs], strict=True)
        return median(value(one) / value(other) for one, other in pairs)

    def sides(self, start: str) -> list[str]:
        return [side.name for side in self.bench.sides if side.name.startswith(start)]


def ratios(found: Sequence[Found]) -> list[Ratio]:
    """All ratios of the benches that were run."""
    made = {"steps": _steps, "runs": _runs, "peers": _peers}
    several = [ratio for one in found if one.bench.name in made for ratio in made[one.bench.name](one)]
    return several + _scaling([one for one in found if one.bench.name == "scaling"])


def _kept(what: str, value: float | None, **wanted: float) -> list[Ratio]:
    return [] if value is None else [Ratio(what=what, value=value, **wanted)]


def _steps(found: Found) -> list[Ratio]:
    size = found.bench.batch_size
    least = {32: 8.0, 256: 5.0}.get(size)
    made = []
    for ours in found.sides("stillery"):
        for theirs in found.sides("textbrewer"):
            what = f"batch {size}, steps/s: {ours} / {theirs}"
            wanted = {"least": least} if least and ours == found.sides("stillery")[0] else {}
            made += _kept(what, found.ratio(ours, theirs, rate), **wanted)
    for theirs in found.sides("trainer"):
        made += _kept(f"batch {size}, steps/s: {found.sides('stillery')[0]} / {theirs}",
                      found.ratio(found.sides("stillery")[0], theirs, rate))  # fmt: skip
    return made


def _runs(found: Found) -> list[Ratio]:
    floor, shape, made = "stillery finetune", found.bench.shape, []
    for side in [name for name in found.sides("stillery ") if name != floor]:
        stored = "live" not in side
        made += _kept(f"{shape}, whole run: {side} / {floor}", found.ratio(side, floor, whole), **_most(1.25, stored))
        made += _kept(f"{shape}, later epochs: {side} / {floor}", found.ratio(side, floor, later), **_most(1.1, stored))
        made += _kept(f"{shape}, memory: {side} / {floor}", found.ratio(side, floor, memory), **_most(1.1, stored))
    for side in found.sides("trainer"):
        made += _kept(f"{shape}, whole run: {floor} / {side}", found.ratio(floor, side, whole))
    return made


def _most(value: float, wanted: bool) -> dict[str, float]:
    return {"most": value} if wanted else {}


def _peers(found: Found) -> list[Ratio]:
    made = []
    for side in [name for name in found.sides("") if not name.startswith("stillery")]:
        method = "kd" if " kd" in side else "none" if " none" in side else "pkd"
        ours = "stillery finetune" if method == "none" else f"stillery {method}, fp32"
        least = {"least": 2.5} if side.startswith("textbrewer pkd") and "grouped" not in side else {}
        made += _kept(f"{found.bench.shape}, time: {side} / {ours}", found.ratio(side, ours, whole), **least)
    return made


def _scaling(found: Sequence[Found]) -> list[Ratio]:
    if len(found) < 2:
        return []
    made = []
    for name, value, epochs in (("whole run", whole, None), ("later epochs", later, 1)):
        times = [
            one.typical(one.bench.sides[0].name, value) / one.bench.examples / (epochs or one.bench.epochs)
            for one in found
        ]
        # What is spent once weighs more where there are few: only growth is an error.
        sizes = f"{found[-1].bench.examples:,} examples / {found[0].bench.examples:,} examples"
        made.append(Ratio(what=f"time per example, {name}: {sizes}", value=times[-1] / times[0], most=1.1))
    return made


def same_losses(found: Found, limit: float = 1e-3) -> str:
    """How far the first step's losses are apart on all sides of a method, if all see the same batch without dropout."""
    furthest = 0.0
    methods = {side.name: (side.job["method"], side.job["precision"]) for side in found.bench.sides}
    terms: dict[tuple[str, str, str], dict[str, float]] = {}
    for side, answers in found.answers.items():
        for name, loss in (answers[0].get("first") or {}).items() if answers else ():
            terms.setdefault((*methods[side], name), {})[side] = loss
    for (_, _, name), losses in terms.items():
        apart = (max(losses.values()) - min(losses.values())) / max(map(abs, losses.values()))
        if apart > limit:
            raise SystemExit(f"{name} of the first step differs: {losses}")
        furthest = max(furthest, apart)
    return f"losses of the first step: at most {furthest:.1e} apart"
