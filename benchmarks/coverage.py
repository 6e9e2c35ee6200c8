"""How often intervals of differences hold the truth, and how often methods that are alike are told apart.

    python benchmarks/coverage.py --trials 500 --json coverage.json

Models are made up: an example is answered right where a model's skill and its luck with the example are above the
example's difficulty. Skill scatters over seeds, luck over seeds and examples; all methods are truly alike. Beside the
intervals of `stillery.study` stand those of the plain two-level bootstrap (seeds and examples drawn, nothing else).
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np

from stillery.evaluation.measures import class_measure
from stillery.study.answers import answers
from stillery.study.compare import against, best, compare
from stillery.study.resample import TaskDraws, resample
from stillery.study.results import Cell, Results, Row, Task

METHODS = ("kd", "a", "b", "c")
CASES = {"training scatters": (0.3, 0.1), "both": (0.1, 0.3), "examples scatter": (0.0, 0.5)}
"""How far skill scatters over seeds, and luck over seeds and examples."""


def made_up(seeds: int, examples: int, skill: float, luck: float, random: np.random.Generator) -> Results:
    """Results of methods that are all alike."""
    gold = np.arange(examples) % 2
    hard = random.normal(-1, 1, examples)
    cells = {}
    for method, seed in product(METHODS, range(seeds)):
        right = hard < random.normal(0, skill) + random.normal(0, luck, examples)
        found = answers(range(examples), gold, class_measure(gold, np.where(right, gold, 1 - gold), "accuracy"))
        cells["task", method, seed] = Cell(score=found.score, answers=found)
    return Results(
        tasks=(Task(name="task", metric="accuracy"),),
        rows=tuple(Row(name=method) for method in METHODS),
        seeds=tuple(range(seeds)),
        cells=cells,
    )


def plain(draws: TaskDraws, random: np.random.Generator) -> tuple[float, float]:
    """The interval of the plain two-level bootstrap of `a` minus `kd`."""
    assert draws.drawn is not None
    apart = draws.drawn[:, draws.rows.index("a")] - draws.drawn[:, draws.rows.index("kd")]
    picks = random.integers(0, apart.shape[1], apart.shape)
    low, high = np.quantile(np.take_along_axis(apart, picks, axis=1).mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def measured(seeds: int, examples: int, case: str, trials: int) -> dict[str, float]:
    """Shares of the trials, in percent."""
    random = np.random.default_rng([seeds, examples, list(CASES).index(case)])
    ours, theirs, told, alone = [], [], [], []
    for _ in range(trials):
        draws = resample(made_up(seeds, examples, *CASES[case], random), "task", draws=1000)
        one = compare(draws, "a", "kd")
        assert one is not None
        ours.append(one.low <= 0 <= one.high)
        low, high = plain(draws, random)
        theirs.append(low <= 0 <= high)
        told.append(any(each.told_apart() for each in against(draws, METHODS, "kd")))
        found = best(draws, METHODS)
        alone.append(found is not None and len(found.tied) < len(METHODS))
    shares = {"interval": ours, "plain_interval": theirs, "told_from_baseline": told, "told_from_best": alone}
    return {name: round(100 * float(np.mean(values)), 1) for name, values in shares.items()}


def main() -> None:
    """Measure all cases and print them as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seeds", default="2,3,5,10")
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    started, rows = time.perf_counter(), []
    told = "distinguished from the"
    print(f"| what scatters | seeds | interval | plain bootstrap | {told} baseline | {told} best |")
    print("|---|---|---|---|---|---|")
    for case, seeds in product(CASES, map(int, given.seeds.split(","))):
        found = measured(seeds, given.examples, case, given.trials)
        rows.append({"case": case, "seeds": seeds, **found})
        print(f"| {case} | {seeds} | {' | '.join(map(str, found.values()))} |", flush=True)
    print(f"{time.perf_counter() - started:.0f} s")
    if given.json is not None:
        given.json.write_text(json.dumps({"trials": given.trials, "examples": given.examples, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
