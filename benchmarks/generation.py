"""A teacher that writes text, and students of it by several methods, starts and seeds at equal budget, many at a time.

    python benchmarks/generation.py --model T5 --task multi30k-en-de --data-dir DIR --workers 12 --out RUNS \\
        --both batch_size=64 lr=1e-3 --teacher epochs=4 --student epochs=3 encoder_layers=3 decoder_layers=3

The teacher is fine-tuned once; a student's seed decides its order of examples, its random weights and its random pairs.
A method's own options follow its name: `kd:hard_weight=1:soft_weight=1:temperature=1`. A run that is finished in --out
is not run again, so a benchmark that was cut short continues; --report prints what is there. Scores are of the test
split, with the weights that are best on dev. --against METHOD prints what others have more or less than it, with
intervals of the same texts drawn for both; --unseen COLUMN scores texts apart whose value of a column does not
occur in training.
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

SHOWN = {"bleu": 1, "chrf": 1, "loss": 3, "perplexity": 2}
"""The metrics of the table, and with how many decimals."""


@dataclass(frozen=True)
class Run:
    """One training run; the teacher's has no method, and a seed of its own."""

    seed: int
    method: str | None = None
    init: str | None = None

    def folder(self, out: Path) -> Path:
        named = "teacher" if self.method is None else f"{self.method.replace(':', ',')}-{self.init}"
        return out / f"{named}-{self.seed}"


def wanted(asked: argparse.Namespace) -> list[Run]:
    """The students, all of one seed before those of the next."""
    return [Run(seed, method, init) for seed in asked.seeds for method in asked.methods for init in asked.inits]


def carry_out(run: Run, asked: argparse.Namespace) -> dict[str, Any]:
    """Train one model in this process."""
    import stillery
    from stillery.progress import console

    console.quiet = True
    out = Path(asked.out)
    common = {"task": asked.task, "data_dir": asked.data_dir, "seed": run.seed, **asked.both}
    if run.method is None:
        done = stillery.finetune(model=asked.model, out=run.folder(out), resume=True, **common | asked.teacher)
    else:
        name, *options = run.method.split(":")
        done = stillery.distill(
            teacher=Run(asked.teacher_seed).folder(out), method=name, options=settings(options), init=run.init,
            out=run.folder(out), resume=True, **common | asked.student,
        )  # fmt: skip
    return done.metrics


def settle(asked: argparse.Namespace) -> list[str]:
    """Run the teacher, then its students, whatever --out does not hold yet; what failed."""
    began = time.time()
    with ProcessPoolExecutor(asked.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        failed = _together([Run(asked.teacher_seed)], asked, pool, began)
        return failed or _together(wanted(asked), asked, pool, began)


def _together(runs: list[Run], asked: argparse.Namespace, pool: ProcessPoolExecutor, began: float) -> list[str]:
    queue, failed = [run for run in runs if finished(run, Path(asked.out)) is None], []
    waiting: dict[Future[dict[str, Any]], Run] = {}
    while queue or waiting:
        while queue and len(waiting) < asked.workers:
            run = queue.pop(0)
            if run.method is not None and asked.limit is not None and time.time() - began > asked.limit:
                continue
            waiting[pool.submit(carry_out, run, asked)] = run
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            run = waiting.pop(future)
            error = future.exception()
            if error is not None:
                failed.append(f"{run}: {error}")
                continue
            value = future.result()["metrics"]["bleu"]
            print(f"{time.time() - began:6.0f} s  {run.folder(Path())}  {value:.2f}", flush=True)
    return failed


def finished(run: Run, out: Path) -> dict[str, Any] | None:
    """The metrics of a run, if it ran to its end."""
    path = run.folder(out) / "metrics.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
    return found


def rows(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of every metric, the teacher first."""
    out = Path(asked.out)
    groups: dict[tuple[str, str | None], list[Run]] = {("teacher", None): [Run(asked.teacher_seed)]}
    for run in sorted(wanted(asked), key=lambda run: asked.inits.index(run.init)):
        groups.setdefault((str(run.method), run.init), []).append(run)
    table = []
    for (method, init), runs in groups.items():
        there = {run.seed: metrics for run in runs if (metrics := finished(run, out)) is not None}
        if not there:
            continue
        values = {name: [one["metrics"][name] for one in there.values()] for name in SHOWN}
        if init is not None:
            values["agreement"] = [one["agreement"] for one in there.values()]
        first = next(iter(there.values()))
        table.append(
            {
                "method": method, "init": init, "seeds": list(there), "values": values,
                "mean": {name: statistics.mean(each) for name, each in values.items()},
                "sd": {name: statistics.stdev(each) if len(each) > 1 else None for name, each in values.items()},
                "intervals": [one["intervals"]["bleu"] for one in there.values()],
                "examples": first["examples"], "signatures": first["signatures"],
                "steps": first["training"]["steps"], "parameters": first["cost"]["parameters"],
                "train_seconds": statistics.mean(one["cost"]["train_seconds"] for one in there.values()),
            }
        )  # fmt: skip
    return table


def show(table: list[dict[str, Any]]) -> None:
    """Print the table: mean over seeds, standard deviation in brackets."""
    print("\n| method | start | seeds | BLEU | chrF | loss | perplexity | agreement | steps | parameters |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in table:
        cells = [row["method"], row["init"] or "-", str(len(row["seeds"]))]
        for name, decimals in {**SHOWN, "agreement": 1}.items():
            spread = row["sd"].get(name)
            mean = f"{row['mean'][name]:.{decimals}f}" if name in row["mean"] else "-"
            cells.append(mean if spread is None else f"{mean} ({spread:.{decimals}f})")
        cells += [str(row["steps"]), f"{row['parameters'] / 1e6:.1f}M"]
        print(f"| {' | '.join(cells)} |")


def differences(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """BLEU minus that of `--against` with the same start and seed, with its 95% interval."""
    from stillery.evaluation.text_metrics import text_difference

    found = []
    for run in wanted(asked):
        ours, theirs = (written(one, Path(asked.out)) for one in (run, Run(run.seed, asked.against, run.init)))
        if run.method != asked.against and ours is not None and theirs is not None:
            apart = text_difference(ours["output"], theirs["output"], ours["references"])
            low, high = apart.intervals["bleu"]
            found.append({"method": run.method, "init": run.init, "seed": run.seed, "bleu": apart.bleu,
                          "interval": [low, high]})  # fmt: skip
            print(f"{run.folder(Path())} minus {asked.against}: {apart.bleu:+.1f} ({low:+.1f} to {high:+.1f})")
    return found


def unseen(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """BLEU of the test texts whose value of a column occurs in the training split, and of the others."""
    import pyarrow.parquet as pq

    from stillery.evaluation.text_metrics import text_scores

    folder = Path(asked.data_dir) / asked.task.partition("-")[0]
    known = set(pq.read_table(folder / "train.parquet", columns=[asked.unseen])[0].to_pylist())
    values = pq.read_table(folder / "test.parquet", columns=[asked.unseen])[0].to_pylist()
    found = []
    for run in [Run(asked.teacher_seed), *wanted(asked)]:
        texts = written(run, Path(asked.out))
        for seen in (True, False) if texts is not None else ():
            rows = [row for row, value in enumerate(values) if (value in known) == seen]
            scores = text_scores(*([texts[name][row] for row in rows] for name in ("output", "references")))
            low, high = scores.intervals["bleu"]
            found.append({"run": str(run.folder(Path())), "seen": seen, "texts": len(rows), "bleu": scores.bleu,
                          "interval": [low, high]})  # fmt: skip
            print(f"{run.folder(Path())}: {len(rows)} texts, {asked.unseen} {'' if seen else 'not '}in training: "
                  f"{scores.bleu:.1f} ({low:.1f}-{high:.1f})")  # fmt: skip
    return found


def written(run: Run, out: Path) -> dict[str, Any] | None:
    """What the model of a run wrote for the test split, beside the right texts, if it ran to its end."""
    import pyarrow.parquet as pq

    path = run.folder(out) / "predictions.parquet"
    return pq.read_table(path, columns=["output", "references"]).to_pydict() if path.is_file() else None


def settings(given: list[str]) -> dict[str, Any]:
    """Settings written as NAME=VALUE; a value that is no number, true or false is a word."""
    found: dict[str, Any] = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def main() -> None:
    """Parse, run, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--methods", default="none,kd,layer-forward,layer-reverse,layer-all-to-one,layer-random")
    parser.add_argument("--inits", default="even,random", help="what the students start from")
    parser.add_argument("--seeds", default="0", help="of the students")
    parser.add_argument("--teacher-seed", type=int, default=0)
    for name, whose in {"both": "both jobs", "teacher": "finetune", "student": "distill"}.items():
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="NAME=VALUE", help=f"settings of {whose}")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, help="start no student after so many seconds")
    parser.add_argument("--report", action="store_true", help="train nothing, print what is finished")
    parser.add_argument("--against", metavar="METHOD", help="compare the others with this one")
    parser.add_argument("--unseen", metavar="COLUMN", help="of train.parquet and test.parquet in the task's folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--json", help="where to write the numbers")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asked.methods, asked.inits = asked.methods.split(","), asked.inits.split(",")
    asked.seeds = [int(seed) for seed in asked.seeds.split(",")]
    asked.both, asked.teacher, asked.student = map(settings, (asked.both, asked.teacher, asked.student))
    failed = [] if asked.report else settle(asked)
    table = rows(asked)
    show(table)
    for line in failed:
        print(f"failed: {line}")
    more = {
        "differences": differences(asked) if asked.against else [],
        "unseen": unseen(asked) if asked.unseen else [],
    }
    if asked.json:
        content = {"asked": vars(asked), "rows": table, "failed": failed, **more}
        Path(asked.json).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
