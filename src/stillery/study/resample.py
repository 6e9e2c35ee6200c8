"""The scores of a task on resamples of seeds and examples, the same for all rows.

The plain two-level bootstrap is too narrow for few seeds: resampling s of them gives (s - 1) / s of the variance of
their mean, and tails that know nothing of how badly few seeds measure it. So each draw adds two independent parts: the
scores on resampled examples, averaged over all seeds, and the deviation of resampled seeds from all seeds, times
sqrt(s / (s - 1)) and times sqrt((s - 1) / chi2) with s - 1 degrees of freedom, which makes it as wide as Student's t.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stillery.study.results import Results, Row

__all__ = ["DRAWS", "SEED", "TaskDraws", "resample"]

Array = NDArray[np.float64]

DRAWS = 2000
SEED = 0
LARGEST_DRAW = 10_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskDraws:
    """The scores of the rows of one task, and those on resamples of its examples.

    Attributes:
        task: its name.
        rows: the names of the rows with a score.
        seeds: all their seeds, ascending.
        observed: the scores `[rows, seeds]`, NaN where there is none.
        drawn: the scores on resampled examples `[draws, rows, seeds]`; None where examples are not resampled.
        examples: how many examples there are; None where they are not resampled.
        why: why examples are not resampled.
        draws: how many resamples there are.
        seed: what they are drawn from.
    """

    task: str
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    observed: Array
    drawn: Array | None
    examples: int | None
    why: str | None
    draws: int
    seed: int
    _kept: dict[int, Array] = field(default_factory=dict, repr=False)

    def common(self, rows: Sequence[str]) -> tuple[int, ...]:
        """The seeds that all of these rows have a score for."""
        scores = self.observed[self._places(rows)]
        return tuple(seed for place, seed in enumerate(self.seeds) if np.isfinite(scores[:, place]).all())

    def scores(self, rows: Sequence[str], seeds: Sequence[int]) -> Array:
        """The scores of rows on seeds, `[rows, seeds]`."""
        return self.observed[np.ix_(self._places(rows), [self.seeds.index(seed) for seed in seeds])]

    def means(self, rows: Sequence[str], seeds: tuple[int, ...]) -> Array:
        """The mean of each row over the seeds in each draw, `[draws, rows]`."""
        observed = self.scores(rows, seeds)
        if self.drawn is None:
            on_examples = np.broadcast_to(observed.mean(axis=1), (self.draws, len(rows)))
        else:
            places = [self.seeds.index(seed) for seed in seeds]
            on_examples = self.drawn[:, self._places(rows)][:, :, places].mean(axis=2)
        return on_examples + self._deviations(len(seeds)) @ observed.T

    def _places(self, rows: Sequence[str]) -> list[int]:
        return [self.rows.index(row) for row in rows]

    def _deviations(self, seeds: int) -> Array:
        """What drawing that many seeds adds to the weight of each in the mean, `[draws, seeds]`."""
        if seeds < 2:
            return np.zeros((self.draws, seeds))
        if seeds not in self._kept:
            random = np.random.default_rng([self.seed, zlib.crc32(self.task.encode()), 1, seeds])
            weights = random.multinomial(seeds, [1 / seeds] * seeds, size=self.draws) / seeds
            wider = np.sqrt(seeds / random.chisquare(seeds - 1, size=self.draws))
            self._kept[seeds] = wider[:, None] * (weights - 1 / seeds)
        return self._kept[seeds]


def resample(results: Results, task: str, *, draws: int = DRAWS, seed: int = SEED) -> TaskDraws:
    """The scores of all rows of a task on the same resamples of its examples.

    Examples are resampled where all finished cells have predictions for the same ones; each draw has one resample of
    them for all rows and all seeds, since all models are scored on the same examples.
    """
    rows = [row for row in results.rows if results.scores(task, row)]
    seeds = sorted({one for row in rows for one in results.scores(task, row)})
    observed = np.full((len(rows), len(seeds)), np.nan)
    for place, row in enumerate(rows):
        for one, score in results.scores(task, row).items():
            observed[place, seeds.index(one)] = score
    why = _why_not(results, task, rows)
    drawn, examples = None, None
    if why is None and rows:
        drawn, examples = _on_examples(results, task, rows, seeds, draws, seed)
        if not np.isfinite(drawn[:, np.isfinite(observed)]).all():
            why, drawn, examples = "the metric has no value on some resamples of the examples", None, None
    return TaskDraws(
        task=task, rows=tuple(row.name for row in rows), seeds=tuple(seeds), observed=observed, drawn=drawn,
        examples=examples, why=why, draws=draws, seed=seed,
    )  # fmt: skip


def _why_not(results: Results, task: str, rows: Sequence[Row]) -> str | None:
    """Why the examples of a task cannot be resampled, or None."""
    first = None
    for row in rows:
        for seed in results.scores(task, row):
            answers = results.cells[task, row.name, seed].answers
            name = f"{row.name}, seed {seed}"
            if answers is None:
                return f"there are no predictions of {name}"
            if first is None:
                first = (name, answers)
            elif answers.ids != first[1].ids:
                return f"{first[0]} and {name} were scored on different examples"
            elif answers.labels != first[1].labels:
                return f"{first[0]} and {name} were scored on different labels of the same examples"
    return None


def _on_examples(
    results: Results, task: str, rows: Sequence[Row], seeds: Sequence[int], draws: int, seed: int
) -> tuple[Array, int]:
    cells = [
        (place, seeds.index(one), results.cells[task, row.name, one].answers)
        for place, row in enumerate(rows)
        for one in results.scores(task, row)
    ]
    examples = next(len(found) for _, _, found in cells if found is not None)
    random = np.random.default_rng([seed, zlib.crc32(task.encode()), 0])
    values = np.full((draws, len(rows), len(seeds)), np.nan)
    at_once = max(1, LARGEST_DRAW // examples)
    for start in range(0, draws, at_once):
        picks = (random.integers(0, examples, examples) for _ in range(min(at_once, draws - start)))
        times = np.stack([np.bincount(one, minlength=examples) for one in picks]).astype(np.float64)
        for place, column, found in cells:
            if found is not None:
                values[start : start + len(times), place, column] = found.measure.scores(times)
    return values, examples
