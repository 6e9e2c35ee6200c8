"""What each lever of the training loop gains, and that none changes what is learnt: `python benchmarks/levers.py`.

A BERT of 12 layers teaches one of 6 (random weights: for speed they do not matter) on made-up sentences as long as
SST-2's. Every run is the training loop itself; runs differ in one lever: the teacher live or from the store, steps
operation by operation or as replayed CUDA graphs, and with --without each run once more without one of the smaller
levers. All runs of a method see the same examples and the same dropout, so their losses are compared too: the largest
relative difference from the first run, over the first steps.

With --operations nothing is timed: it counts the operations that a step starts, on any device; what a GPU does in one,
such as `rms_norm`, counts as several on a CPU. With --waits it counts how often the host waits for a GPU in a step,
graphs aside.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, BertConfig
from turns import in_turns

from stillery import losses as terms
from stillery import methods
from stillery.data.schema.examples import Examples
from stillery.data.tokens import batches
from stillery.data.tokens.encode import Tokens
from stillery.models import attention, trace
from stillery.models.family import sizes
from stillery.train import loop, step
from stillery.train.cuda import graph_step as graph
from stillery.train.cuda import stream
from stillery.train.cuda.capture import Repeated
from stillery.train.deferred_losses import DeferredLosses
from stillery.train.loop import CacheUse, Sources, TrainingData, accelerator_for, train
from stillery.train.objective import Objective
from stillery.train.precision import choose
from stillery.train.settings import Storing, Training
from stillery.train.teacher import LiveTeacher

CLOSE = {"fp32": 1e-4, "bf16": 5e-3}
"""How far losses may drift apart over the compared steps: rounding differs where kernels do."""
SAME = 1e-5
"""How far they may between a run and its first one that has the same teacher: there kernels are the same."""


def bert(layers: int, width: int, seed: int):
    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64 or 1, intermediate_size=4 * width,
        num_labels=2,
    )  # fmt: skip
    return AutoModelForSequenceClassification.from_config(config)


def sentences(count: int, seed: int = 0, median: int = 11) -> TrainingData:
    """Random tokens, as many as SST-2's training sentences have: 4 to 66, half of them at most 11, or `median`."""
    random = np.random.default_rng(seed)
    lengths = np.clip(np.exp(random.normal(np.log(median), 0.55, count)), 4, 66).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = random.integers(1000, 30000, offsets[-1]).astype(np.int32)
    examples = Examples(
        ids=tuple(map(str, range(count))),
        columns={"text": pa.array([f"sentence {seed} {number}" for number in range(count)])},
        labels=random.integers(0, 2, count),
        source="random",
    )
    tokens = Tokens(flat=flat, offsets=offsets, types=None, truncated=0, max_length=128)
    return TrainingData(examples=examples, tokens=tokens, pad_id=0)


def _all_arrived(losses: DeferredLosses, *, wait: bool = False):
    """Losses to be logged are waited for at once."""
    return _arrived(losses, wait=wait or bool(losses._readings))


def _unfused(*given, fused: bool, **named):
    return _adamw(*given, fused=not fused, **named)


_arrived, _adamw = DeferredLosses.arrived, torch.optim.AdamW
_hooks = trace.StackHooks.__init__

WITHOUT = {
    "prepared-ahead": lambda: patch.object(loop, "PREFETCHED", 0),
    "late-reading": lambda: patch.object(DeferredLosses, "arrived", _all_arrived),
    "one-stream": lambda: patch.object(stream, "_stream_of", lambda number: torch.cuda.Stream(number)),
    "recorded-looks": lambda: patch.object(Repeated, "_record", lambda *given: False),
    "cheap-seeds": lambda: _patched((step, graph), "seed_generators", lambda seed, device: torch.manual_seed(seed)),
    "unread-masks": lambda: patch.object(attention, "_unread", lambda make, device, /, **given: make(**given)),
    "own-attention": lambda: patch.object(torch.backends.cuda, "cudnn_sdp_enabled", lambda: False),
    "early-stop": lambda: patch.object(
        trace.StackHooks, "__init__", lambda hooks, *given, stop, **named: _hooks(hooks, *given, stop=False, **named)
    ),
    "first-token": lambda: patch.object(trace, "_first_token_only", lambda model, wanted: []),
    "fused-optimiser": lambda: patch.object(torch.optim, "AdamW", _unfused),
    "like-lengths": lambda: patch.object(batches, "POOL_WINDOWS", 1),
    "pairs-at-once": lambda: patch.object(terms, "at_once", lambda match, pairs, projection: False),
}
"""The smaller levers, and how each is left out; the loop has no switches for them."""
OTHERWISE = ("first-token", "like-lengths", "own-attention", "unread-masks")
"""Those without which batches are others, or dropout is drawn otherwise: fewer numbers, another kernel of attention."""
OTHER_KERNELS = ("early-stop", "fused-optimiser", "pairs-at-once")
"""Those without which the same is computed by other kernels, which round otherwise."""


@contextmanager
def _patched(modules, name: str, value):
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, name, value))
        yield


def one_run(method: str, teacher, data: TrainingData, lever: dict[str, str], arguments) -> dict:
    """Train and say how long a step took, what the losses were and how much memory it needed."""
    cuda = arguments.device == "cuda"
    precision = choose(arguments.precision, arguments.device)
    student = bert(arguments.layers // 2, arguments.width, seed=1)
    if lever.get("compile") == "on":
        student.compile(dynamic=True)
    live = LiveTeacher(teacher)
    accelerator = accelerator_for(precision)
    objective = Objective(student.to(accelerator.device), methods.build(method).stages, teacher=sizes(teacher.config),
                          seed=0, examples=len(data))  # fmt: skip
    settings = Training(
        epochs=arguments.epochs, batch_size=arguments.batch_size, lr=1e-5, keep="last", graph=lever["graph"],
        log_every=arguments.log_every, checkpoint_every=10**9, precision=precision, max_steps=arguments.max_steps,
    )  # fmt: skip
    per_epoch = -(-len(data) // arguments.batch_size)
    if cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    left_out = WITHOUT[lever["without"]]() if lever.get("without") else nullcontext()
    with tempfile.TemporaryDirectory() as folder, left_out:
        began = time.perf_counter()
        outcome = train(
            objective, Sources(data=data, teacher=live if objective.stages[0].needs_teacher else None), settings,
            accelerator=accelerator, folder=Path(folder), cache=CacheUse(settings=Storing(cache=lever["cache"])),
        )  # fmt: skip
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        events = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    teacher.cpu()
    accelerator.free_memory()
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "train"}
    times = {event["step"]: event["seconds"] for event in events if event["event"] == "train" and "seconds" in event}
    # A line has the time at which its losses had arrived, and several may have arrived at once: the last one is exact.
    marks = sorted(step for step in times if step > per_epoch)
    per_step = (times[marks[-1]] - times[marks[0]]) / (marks[-1] - marks[0]) if len(marks) > 1 else None
    return {
        "method": method, **lever, "batch_size": arguments.batch_size, "precision": precision,
        "steps": outcome.steps, "seconds": seconds, "step_ms": 1000 * per_step if per_step else None,
        "memory_mb": torch.cuda.max_memory_allocated() / 1e6 if cuda else None, "losses": losses,
    }  # fmt: skip


def prepare(job) -> Callable[[], dict]:
    """A run that only has to be started: a method, its levers and the arguments."""
    method, lever, arguments = job
    data, teacher = sentences(arguments.examples), bert(arguments.layers, arguments.width, seed=0)
    # Tried once in a process, in a child of it.
    choose(arguments.precision, arguments.device)
    if arguments.device == "cuda":
        torch.zeros(1, device="cuda")

    def run() -> dict:
        # Each fills its own store.
        with tempfile.TemporaryDirectory() as cache:
            os.environ["STILLERY_CACHE"] = cache
            return one_run(method, teacher, data, lever, arguments)

    return run


FREE = frozenset(
    {
        "_local_scalar_dense", "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "empty", "empty_like",
        "empty_strided", "expand", "lift_fresh", "new_empty", "new_empty_strided", "permute", "promote_types", "select",
        "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view",
    }
)  # fmt: skip
"""Operations that compute nothing: views and empty memory."""


class Operations(TorchDispatchMode):
    """Counts what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ not in FREE
        return func(*args, **(kwargs or {}))


def of_a_step(counter, method: str, teacher, data: TrainingData, cache: str, arguments) -> float:
    """What is counted in a step that is not recorded, its batch included: what four steps more come to, by four."""
    counts = []
    # The first run fills the store. Two stages have two steps each, whose losses are read: so many in any run.
    for steps in (4, 4, 8):
        limited = argparse.Namespace(**vars(arguments) | {"max_steps": steps, "epochs": steps, "log_every": 10**9})
        with counter() as counted:
            one_run(method, teacher, data, {"cache": cache, "graph": "off"}, limited)
        counts.append(counted.count)
    return (counts[2] - counts[1]) / 4


class Waits:
    """Counts how often the host waits for the GPU, as torch itself warns of it."""

    def __enter__(self) -> Waits:
        self.caught = warnings.catch_warnings(record=True)
        self.found = self.caught.__enter__()
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(self, *error: object) -> None:
        torch.cuda.set_sync_debug_mode("default")
        self.caught.__exit__(*error)

    @property
    def count(self) -> int:
        return sum("synchronizing CUDA operation" in str(one.message) for one in self.found)


def count(what: str, teacher, data: TrainingData, arguments) -> None:
    """Print the operations, or the waits, of a step of each method beside those of fine-tuning the student."""
    counter = {"operations": Operations, "waits": Waits}[what]
    table = Table(title=f"{arguments.layers} -> {arguments.layers // 2} layers, {what} of a step")
    for name in ("method", "teacher", what, "of none"):
        table.add_column(name, justify="left" if name in ("method", "teacher") else "right")
    plans = [("none", "off"), *((method, cache) for method in arguments.methods for cache in arguments.cache)]
    floor = None
    for method, cache in plans:
        found = of_a_step(counter, method, teacher, data, cache, arguments)
        floor = found if floor is None else floor
        shown = "-" if method == "none" else {"on": "store", "off": "live"}[cache]
        table.add_row(method, shown, f"{found:g}", f"{found / floor:.2f}" if floor else "-")
    Console(width=120).print(table)


def apart(one: dict[int, float], other: dict[int, float], upto: int) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(one[step] - other[step]) / max(abs(other[step]), 1e-9) for step in one if step <= upto)


def changed(found: list[dict], upto: int) -> list[str]:
    """In words which runs have learnt something else than the first one of their method, and by how much."""
    lines = []
    for one in found:
        # What is compiled draws its dropout in another order.
        if one["compile"] == "on" or one["without"] in OTHERWISE:
            continue
        same = next(o for o in found if (o["method"], o["cache"]) == (one["method"], one["cache"]))
        limits = {CLOSE[one["precision"]]: one["apart"]}
        if one["without"] not in OTHER_KERNELS:
            limits[SAME] = apart(one["losses"], same["losses"], upto)
        for limit, by in limits.items():
            if by > limit:
                run = ", ".join(f"{name} {one[name] or '-'}" for name in ("method", "cache", "graph", "without"))
                lines.append(f"{run}: losses are {by:.1e} apart, more than {limit:g}: a lever changes what is learnt")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--methods", nargs="+", default=["pkd", "rail-kd", "kd"])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--examples", type=int, help="[default: 320 on a CPU, 6400 on a GPU]")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compare-steps", type=int, default=60, help="Steps whose losses are compared.")
    parser.add_argument("--cache", nargs="+", choices=("off", "on"), default=["off", "on"])
    parser.add_argument("--graph", nargs="+", choices=("off", "on"), default=["off", "on"], help="Without CUDA: off.")
    parser.add_argument("--compile", action="store_true", help="Each run once more, the student by torch.compile.")
    parser.add_argument("--without", nargs="+", choices=WITHOUT, default=[], help="Each run once more without these.")
    parser.add_argument(
        "--processes", action="store_true", help="Each run in a process of its own, which on a GPU it always has."
    )
    parser.add_argument("--max-steps", type=int, help="End there.")
    parser.add_argument("--operations", action="store_true", help="Count the operations of a step, time nothing.")
    parser.add_argument("--waits", action="store_true", help="Count a step's waits for the whole GPU, time nothing.")
    parser.add_argument("--together", type=int, default=8, help="Processes that load at the same time.")
    parser.add_argument("--json", type=Path, help="Write all numbers there.")
    arguments = parser.parse_args()
    if arguments.waits and arguments.device != "cuda":
        parser.error("--waits: nobody waits for a CPU; it needs a GPU")
    arguments.examples = arguments.examples or (320 if arguments.device == "cpu" else 6400)
    os.environ.setdefault("ACCELERATE_USE_CPU", "true" if arguments.device == "cpu" else "false")

    graphs = arguments.graph if arguments.device == "cuda" else ["off"]
    compiles = ["off", "on"] if arguments.compile else ["off"]
    levers = [
        {"cache": cache, "graph": graph, "compile": compiled, "without": without}
        for cache, graph, compiled, without in product(arguments.cache, graphs, compiles, ["", *arguments.without])
    ]
    found: list[dict] = []
    if arguments.operations or arguments.waits:
        data, teacher = sentences(arguments.examples), bert(arguments.layers, arguments.width, seed=0)
        with tempfile.TemporaryDirectory() as cache:
            os.environ["STILLERY_CACHE"] = cache
            count("waits" if arguments.waits else "operations", teacher, data, arguments)
        return
    # The floor: the same student without a teacher.
    plans = [("none", lever) for lever in levers if lever["cache"] == levers[0]["cache"]]
    plans += [(method, lever) for method in arguments.methods for lever in levers]
    jobs = [(method, lever, arguments) for method, lever in plans]
    own = arguments.processes or arguments.device == "cuda"
    results = in_turns(prepare, jobs, arguments.together) if own else [prepare(job)() for job in jobs]
    for (method, _, _), result in zip(jobs, results, strict=True):
        first = next((one for one in found if one["method"] == method), result)
        result["apart"] = apart(result["losses"], first["losses"], arguments.compare_steps)
        found.append(result)
    table = Table(title=f"{arguments.layers} -> {arguments.layers // 2} layers of {arguments.width}, batch "
                        f"{arguments.batch_size}, {arguments.device}, {found[0]['precision']}")  # fmt: skip
    words = ("method", "teacher", "graphs", "compiled", "without")
    for name in (*words, "ms a step", "whole run s", "GPU MB", "losses apart"):
        table.add_column(name, justify="left" if name in words else "right")
    for one in found:
        table.add_row(
            one["method"], "-" if one["method"] == "none" else {"on": "store", "off": "live"}[one["cache"]],
            one["graph"], one["compile"], one["without"] or "-",
            "-" if one["step_ms"] is None else f"{one['step_ms']:.2f}", f"{one['seconds']:.1f}",
            "-" if one["memory_mb"] is None else f"{one['memory_mb']:.0f}", f"{one['apart']:.1e}",
        )  # fmt: skip
    Console(width=120).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps([{k: v for k, v in one.items() if k != "losses"} for one in found]))
    lines = changed(found, arguments.compare_steps)
    if lines:
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    main()
