"""What recorded steps take on a GPU, and what of that is between kernels: `python benchmarks/replays.py`.

`levers.py` times the training loop from the host. Here CUDA events around each replay of a step's graph say how long
the GPU was at it, if the host is ahead of it, and torch's profiler says of some more such steps how many kernels and
copies they were and how long those ran: the rest is the way from one to the next. Every run has a process of its own,
because what a process did before changes that way (docs/performance-reasons.md). All load at once, then one after the
other trains, turn by turn; a ratio is the median of those of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from levers import bert, one_run, sentences
from rich.console import Console
from rich.table import Table
from torch.autograd import DeviceType
from turns import in_turns

from stillery.train.cuda.graph_step import Graphs
from stillery.train.precision import choose

Span = tuple[torch.cuda.Event, torch.cuda.Event]

PROFILED = 20
"""Replays of the last epoch that are profiled, and not timed with the others."""


class Watched:
    """Replays of graphs as they are, with events around each; the first ones of the last epoch are profiled."""

    def __init__(self, per_epoch: int, epochs: int) -> None:
        self.later, self.last = per_epoch, per_epoch * (epochs - 1)
        self.events: list[Span] = []
        self.profiled: list[Span] = []
        self.profiler: Any = None
        self.kernels, self.kernel_ms = 0.0, 0.0
        self.replay = Graphs._replay

    def __call__(self, graphs: Graphs, recorded: Any, one: Any) -> Any:
        step = one.plan.clock.step
        profiles = step >= self.last and len(self.profiled) < PROFILED
        if profiles and self.profiler is None:
            torch.cuda.synchronize()
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]).__enter__()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        losses = self.replay(graphs, recorded, one)
        end.record()
        if profiles:
            self.profiled.append((start, end))
            if len(self.profiled) == PROFILED:
                self.stop()
        elif step >= self.later:
            self.events.append((start, end))
        return losses

    def stop(self) -> None:
        """End profiling."""
        torch.cuda.synchronize()
        self.profiler.__exit__(None, None, None)
        # The host's calls are among what it saw.
        found = [one for one in self.profiler.key_averages() if one.device_type == DeviceType.CUDA]
        self.kernels = sum(one.count for one in found) / PROFILED
        self.kernel_ms = sum(one.self_device_time_total for one in found) / PROFILED / 1000

    def answer(self) -> dict[str, float]:
        if not self.events or len(self.profiled) < PROFILED:
            raise SystemExit("too few steps were recorded; what was said above says why, or give more --examples")
        torch.cuda.synchronize()
        step, profiled = (mean(start.elapsed_time(end) for start, end in one) for one in (self.events, self.profiled))
        between = 1000 * (profiled - self.kernel_ms) / self.kernels
        return {"step_ms": step, "kernels": self.kernels, "kernel_ms": self.kernel_ms, "between_us": between}


def prepare(job: tuple[str, argparse.Namespace]) -> Callable[[], dict[str, float]]:
    """A run that only has to be started."""
    method, arguments = job
    data = sentences(arguments.examples, median=arguments.median_length)
    teacher = bert(arguments.layers, arguments.width, seed=0)
    choose(arguments.precision, "cuda")
    torch.zeros(1, device="cuda")
    watched = Watched(-(-arguments.examples // arguments.batch_size), arguments.epochs)
    Graphs._replay = lambda *given: watched(*given)  # type: ignore[method-assign]

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["STILLERY_CACHE"] = cache
            one_run(method, teacher, data, {"cache": arguments.cache, "graph": "on"}, arguments)
            return watched.answer()

    return run


def measured(arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """What each method's steps take, one answer a turn."""
    asked = [*dict.fromkeys(("none", *arguments.methods))] * arguments.turns
    found: dict[str, list[dict[str, float]]] = {method: [] for method in asked}
    for method, answer in zip(
        asked, in_turns(prepare, [(method, arguments) for method in asked], arguments.together), strict=True
    ):
        found[method].append(answer)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["kd", "pkd", "rail-kd"])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--examples", type=int, default=4096)
    parser.add_argument("--median-length", type=int, default=11, help="Tokens; film reviews have about 26.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--cache", choices=("off", "on"), default="on")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--together", type=int, default=8, help="Processes that load at the same time.")
    parser.add_argument("--json", type=Path, help="Write all numbers there.")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no CUDA device is here")
    if arguments.epochs < 2 or arguments.examples <= PROFILED * arguments.batch_size:
        parser.error(f"--epochs 2 and more than {PROFILED} steps in each are the least")
    arguments.device, arguments.log_every, arguments.max_steps = "cuda", 20, None
    found = measured(arguments)
    table = Table(title=f"{arguments.layers} -> {arguments.layers // 2} layers of {arguments.width}, batch "
                        f"{arguments.batch_size}, {torch.cuda.get_device_name()}")  # fmt: skip
    for name in ("method", "ms a recorded step", "of none", "each turn", "kernels", "their ms", "us between two"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, answers in found.items():
        names = ("step_ms", "kernels", "kernel_ms", "between_us")
        steps, kernels, busy, between = (median(one[name] for one in answers) for name in names)
        ratios = [one["step_ms"] / floor["step_ms"] for one, floor in zip(answers, found["none"], strict=True)]
        table.add_row(
            method, f"{steps:.3f}", f"{median(ratios):.3f}", " ".join(f"{one:.3f}" for one in ratios),
            f"{kernels:.0f}", f"{busy:.3f}", f"{between:.2f}",
        )  # fmt: skip
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
