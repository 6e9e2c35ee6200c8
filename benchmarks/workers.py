"""Many small runs on one device: what K of them at a time gain, `python benchmarks/workers.py --workers 1 4 8`.

K processes start the same distillation together (`levers.py` has its shape: made-up sentences, random weights) and
train at the same time; all their steps together, per second, are compared with one process's. On a GPU that time-slices
between processes, the multi-process service (`nvidia-cuda-mps-control -d`) lets them run truly at once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from levers import bert, one_run, sentences
from rich.console import Console
from rich.table import Table


def work(number: int, together: Any, results: Any, arguments: argparse.Namespace) -> None:
    """Be ready, wait for the others, train."""
    from stillery.progress import console

    console.quiet = True
    torch.set_num_threads(1)
    data, teacher = sentences(arguments.examples), bert(arguments.layers, arguments.width, seed=0)
    lever = {"cache": arguments.cache, "graph": arguments.graph}
    short = argparse.Namespace(**vars(arguments) | {"epochs": 1})
    # The first run of a process pays for what is loaded once, and fills the store.
    one_run(arguments.method, teacher, data, lever, short)
    together.wait()
    began = time.perf_counter()
    done = one_run(arguments.method, teacher, data, lever, arguments)
    results.put({"worker": number, "steps": done["steps"], "seconds": time.perf_counter() - began})


def measured(workers: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Steps per second of so many processes together."""
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(workers), context.Queue()
    processes = [context.Process(target=work, args=(one, together, results, arguments)) for one in range(workers)]
    for process in processes:
        process.start()
    found: list[dict[str, Any]] = []
    try:
        while len(found) < workers:
            try:
                found.append(results.get(timeout=1))
            except queue.Empty:
                if any(process.exitcode for process in processes):
                    raise SystemExit("a worker failed; what it said is above") from None
    finally:
        for process in processes:
            process.join(timeout=5 if len(found) == workers else 0)
            process.kill()
    seconds = max(one["seconds"] for one in found)
    return {"workers": workers, "seconds": seconds, "steps_per_second": sum(one["steps"] for one in found) / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--method", default="pkd")
    parser.add_argument("--cache", choices=("off", "on"), default="on")
    parser.add_argument("--graph", choices=("off", "on"), default="on" if torch.cuda.is_available() else "off")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--examples", type=int, default=6400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--max-steps", type=int, help="End there.")
    parser.add_argument("--json", type=Path, help="Write all numbers there.")
    arguments = parser.parse_args()
    os.environ.setdefault("ACCELERATE_USE_CPU", "true" if arguments.device == "cpu" else "false")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STILLERY_CACHE"] = cache
        found = [measured(workers, arguments) for workers in arguments.workers]
    depths = f"{arguments.layers} -> {arguments.layers // 2} layers of {arguments.width}"
    where = f"batch {arguments.batch_size}, {arguments.device}, graphs {arguments.graph}"
    table = Table(title=f"{arguments.method}, {depths}, {where}")
    for name in ("workers", "steps/s, all together", "of the first"):
        table.add_column(name, justify="right")
    for one in found:
        one["of_first"] = one["steps_per_second"] / found[0]["steps_per_second"]
        table.add_row(str(one["workers"]), f"{one['steps_per_second']:.1f}", f"{one['of_first']:.2f}")
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
