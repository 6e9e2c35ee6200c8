"""What a recorded step takes on a GPU by itself, beside fine-tuning: `python benchmarks/replays.py`.

`levers.py` times the whole training loop. Here the CUDA graphs that a run has recorded are replayed with nothing in
between, so that a step's own time is seen: what a method adds, without the host's part. Methods take turns, because a
GPU is not equally fast all the time, and a ratio is the median of those of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch
from levers import bert, one_run, sentences
from rich.console import Console
from rich.table import Table

from stillery.train import loop


def replayed(graphs: Any, rounds: int) -> float:
    """Milliseconds of a replay, over all kinds of step that were recorded."""
    recorded = [one.graph for one in graphs.recorded.values()] if graphs is not None else []
    if not recorded:
        raise SystemExit("no step was recorded; what was said above says why")
    for graph in recorded:
        graph.replay()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(rounds):
        for graph in recorded:
            graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / rounds / len(recorded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["kd", "pkd", "rail-kd"])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--examples", type=int, default=3200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--cache", choices=("off", "on"), default="on")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50, help="Replays of each graph in a turn.")
    parser.add_argument("--json", type=Path, help="Write all numbers there.")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device is here")
    arguments.device, arguments.epochs, arguments.log_every, arguments.max_steps = "cuda", 2, 10**9, None
    made: list[Any] = []
    graphs_for = loop.graphs_for
    loop.graphs_for = lambda *given: made.append(graphs_for(*given)) or made[-1]
    data, teacher = sentences(arguments.examples), bert(arguments.layers, arguments.width, seed=0)
    found: dict[str, list[float]] = {method: [] for method in ("none", *arguments.methods)}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["STILLERY_CACHE"] = cache
        for _ in range(arguments.turns):
            for method, times in found.items():
                one_run(method, teacher, data, {"cache": arguments.cache, "graph": "on"}, arguments)
                times.append(replayed(made.pop(), arguments.rounds))
                made.clear()
    table = Table(title=f"{arguments.layers} -> {arguments.layers // 2} layers of {arguments.width}, batch "
                        f"{arguments.batch_size}, {torch.cuda.get_device_name()}")  # fmt: skip
    for name in ("method", "ms a recorded step", "of none", "each turn"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, times in found.items():
        ratios = [ours / floor for ours, floor in zip(times, found["none"], strict=True)]
        table.add_row(method, f"{median(times):.3f}", f"{median(ratios):.3f}", " ".join(f"{one:.3f}" for one in ratios))
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
