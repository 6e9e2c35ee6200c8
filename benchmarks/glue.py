"""Teachers and students on GLUE tasks, by several methods over several seeds, at equal budget, many runs at a time.

    python benchmarks/glue.py --data-dir DIR --models minilm-l6 --tasks cola,mrpc,rte --workers 12 --out DIR

Each teacher is fine-tuned once per seed; its students are distilled with the same seed for the same number of epochs.
A method may have settings and options of its own behind it: `kd+init=first`, `rail-kd+layer_weight=0.1` (with
`+graph=off` the guards measure each term's share of the gradient eight times as often), or be a recipe,
`FILE.py:FUNCTION+init=even`. A run that is finished in --out is not run again, so a benchmark that was cut short goes
on. Scores are of the dev split at the best scoring, one scoring an epoch, as the papers take them, which is optimistic
for all alike.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

SETTINGS = ("init", "head", "graph", "pair", "represent", "distance", "reduction", "schedule", "divergence")
"""Settings that may stand behind a method; any other name is one of its options."""


KEPT = ("seed", "metrics", "agreement", "collapsed", "warnings", "start", "training", "shares")
"""What of each run's metrics is written down beside the means."""


@dataclass(frozen=True)
class Run:
    """One training run; a teacher's has no method."""

    model: str
    task: str
    seed: int
    method: str | None = None

    def folder(self, out: Path) -> Path:
        name = (self.method or "teacher").replace("/", "_").replace(":", "_")
        return out / Path(self.model).name / self.task / f"{name}-{self.seed}"

    def settings(self) -> dict[str, Any]:
        """What the method's name asks for: a method or recipe, settings of the run, options of the method."""
        name, *changes = (self.method or "").split("+")
        given = dict(change.split("=", 1) for change in changes)
        asked: dict[str, Any] = {"recipe" if ".py:" in name else "method": name}
        asked |= {key: int(given.pop(key)) for key in ("layers", "width", "heads", "max_steps") if key in given}
        asked |= {key: given.pop(key) for key in SETTINGS if key in given}
        return asked | ({"options": given} if given else {})


def carry_out(run: Run, asked: argparse.Namespace) -> dict[str, Any]:
    """Train one model in this process."""
    import stillery
    from stillery.progress import console

    console.quiet = True
    out = Path(asked.out)
    budget = {"task": run.task, "data_dir": asked.data_dir, "seed": run.seed, "epochs": asked.budget[run.task],
              "batch_size": asked.batch_size, "lr": asked.lr, "max_steps": asked.max_steps}  # fmt: skip
    budget = {name: value for name, value in budget.items() if value is not None}
    folder = run.folder(out)
    if run.method is None:
        done = stillery.finetune(model=run.model, out=folder, resume=True, **budget)
    else:
        teacher = Run(run.model, run.task, run.seed).folder(out)
        settings = {"layers": asked.depths[run.model] or asked.layers} | budget | run.settings()
        done = stillery.distill(teacher=teacher, out=folder, resume=True, **settings)
    return done.metrics | {"shares": gradient_shares(folder / "log.jsonl")}


def gradient_shares(log: Path) -> dict[str, float]:
    """The share of the gradient that each term had, the mean of what the guards measured; empty where they did not."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found = [event["shares"] for event in events if event["event"] == "guards" and event["shares"]]
    return {name: statistics.mean(one.get(name, 0.0) for one in found) for name in (found[-1] if found else {})}


def settle(asked: argparse.Namespace) -> tuple[dict[Run, dict[str, Any]], list[str]]:
    """Run everything: teachers first, then students, method by method, the largest tasks first."""
    began, found, failed = time.time(), {}, []
    ready = [Run(model, task, seed) for task in asked.tasks for model in asked.models for seed in asked.seeds]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.workers, mp_context=context) as pool:
        running: dict[Future[dict[str, Any]], Run] = {}
        while ready or running:
            while ready and len(running) < asked.workers:
                ready.sort(
                    key=lambda run: (asked.methods.index(run.method) if run.method else -1, asked.tasks.index(run.task))
                )
                run = ready.pop(0)
                running[pool.submit(carry_out, run, asked)] = run
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                run = running.pop(future)
                error = future.exception()
                if error is not None:
                    failed.append(f"{run}: {error}")
                    continue
                found[run] = future.result()
                if run.method is None:
                    ready += [Run(run.model, run.task, run.seed, method) for method in asked.methods if method]
                if asked.limit is not None and time.time() - began > asked.limit:
                    ready.clear()
                value = next(iter(found[run]["metrics"].values()))
                print(f"{time.time() - began:6.0f} s  {run.folder(Path())}  {value:.2f}", flush=True)
                if len(found) % 20 == 0:
                    write(asked, rows(found), failed)
    return found, failed


def rows(found: dict[Run, dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of every metric, and how many runs gave one answer for all."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run, metrics in sorted(found.items(), key=lambda one: one[0].seed):
        key = Path(run.model).name, run.method or "teacher", run.task
        groups.setdefault(key, []).append(metrics | {"seed": run.seed})
    table = []
    for (model, method, task), runs in groups.items():
        values = {name: [one["metrics"][name] for one in runs] for name in runs[0]["metrics"]}
        table.append(
            {
                "model": model, "method": method, "task": task, "seeds": len(runs),
                "collapsed": sum(one.get("collapsed", False) for one in runs),
                "mean": {name: statistics.mean(each) for name, each in values.items()},
                "sd": {name: statistics.stdev(each) if len(each) > 1 else 0.0 for name, each in values.items()},
                "agreement": statistics.mean(one.get("agreement", 100.0) for one in runs),
                "train_seconds": statistics.mean(one["cost"]["train_seconds"] for one in runs),
                "runs": [{name: one[name] for name in KEPT if name in one} for one in runs],
            }
        )  # fmt: skip
    return table


def show(table: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """Print one table per model: methods down, tasks across."""
    for model in dict.fromkeys(row["model"] for row in table):
        mine = {(row["method"], row["task"]): row for row in table if row["model"] == model}
        print(f"\n{model}, mean (standard deviation) of {len(asked.seeds)} seeds")
        print("| method | " + " | ".join(f"{task} ({asked.budget[task]} epochs)" for task in asked.tasks) + " |")
        print("|---|" + "---|" * len(asked.tasks))
        for method in ("teacher", *asked.methods):
            cells = []
            for task in asked.tasks:
                row = mine.get((method, task))
                shown = "-" if row is None else " / ".join(
                    f"{row['mean'][name]:.1f} ({row['sd'][name]:.1f})" for name in row["mean"]
                )  # fmt: skip
                cells.append(f"{shown} [{row['collapsed']} collapsed]" if row and row["collapsed"] else shown)
            print(f"| {method} | " + " | ".join(cells) + " |")


def difference(row: dict[str, Any], other: dict[str, Any]) -> tuple[float, float] | None:
    """How far a method is above another on a task's first metric, seed by seed: the mean, and half its 95% interval."""
    name = next(iter(row["mean"]))
    ours, theirs = ({run["seed"]: run["metrics"][name] for run in one["runs"]} for one in (row, other))
    apart = [ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]
    if len(apart) < 2:
        return None
    half = stats.t.ppf(0.975, len(apart) - 1) * statistics.stdev(apart) / len(apart) ** 0.5
    return statistics.mean(apart), half


def show_differences(table: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """Print by how much each method is above the one of --against."""
    for model in dict.fromkeys(row["model"] for row in table):
        mine = {(row["method"], row["task"]): row for row in table if row["model"] == model}
        print(f"\n{model}, minus {asked.against}, seed by seed: mean +- half of its 95% interval (t)")
        print("| method | " + " | ".join(asked.tasks) + " |")
        print("|---|" + "---|" * len(asked.tasks))
        for method in (one for one in asked.methods if one != asked.against):
            pairs = [(mine.get((method, task)), mine.get((asked.against, task))) for task in asked.tasks]
            found = [None if row is None or other is None else difference(row, other) for row, other in pairs]
            cells = ["-" if one is None else f"{one[0]:+.1f} +- {one[1]:.1f}" for one in found]
            print(f"| {method} | " + " | ".join(cells) + " |")


def main() -> None:
    """Parse, run, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--models", default="minilm-l6", help="MODEL@LAYERS gives its students so many layers")
    parser.add_argument(
        "--tasks", default="sst2,cola,stsb,mrpc,rte", help="the largest first; TASK:EPOCHS sets its own"
    )
    parser.add_argument("--methods", default="none,kd,layer-forward,rail-kd")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, help="start no student after so many seconds")
    parser.add_argument("--against", help="one of --methods: print by how much the others are above it")
    parser.add_argument("--out", required=True)
    parser.add_argument("--json", help="where to write the numbers")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    models = [model.partition("@") for model in asked.models.split(",")]
    asked.depths = {model: int(layers or 0) for model, _, layers in models}
    asked.models, asked.methods = list(asked.depths), asked.methods.split(",")
    asked.seeds = [int(seed) for seed in asked.seeds.split(",")]
    named = [task.partition(":") for task in asked.tasks.split(",")]
    asked.tasks = [task for task, _, _ in named]
    asked.budget = {task: int(epochs) if epochs else asked.epochs for task, _, epochs in named}
    found, failed = settle(asked)
    table = rows(found)
    write(asked, table, failed)
    show(table, asked)
    if asked.against:
        show_differences(table, asked)
    for line in failed:
        print(f"failed: {line}")


def write(asked: argparse.Namespace, table: list[dict[str, Any]], failed: list[str]) -> None:
    """Write the JSON, where one is asked for; as the runs go, too, so that what was cut off is not lost."""
    if asked.json:
        Path(asked.json).write_text(json.dumps({"asked": vars(asked), "rows": table, "failed": failed}, indent=1))


if __name__ == "__main__":
    main()
