"""How fast stillery is beside other libraries and beside plain fine-tuning: `python benchmarks/speed.py`, `make bench`.

Everything is a ratio within one run: the sides of a comparison take turns, each in a process of its own, on the same
texts, models and batch size. Peers come with `pip install -e ".[bench]"`; one that is missing is left out and named.
A machine without the packages of the extra `demo` takes a folder prepared elsewhere: --inputs DIR --prepare.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from peers import torchvision_away  # noqa: F401
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from speed_benches import METHODS, NAMES, PACKAGES, Asked, Bench, Side, benches
from speed_inputs import SHAPES, made, prepare
from speed_targets import Answer, Found, Ratio, later, memory, rate, ratios, same_losses, whole

from stillery import methods
from stillery.atomic import atomic_file
from stillery.progress import say

PEERS = Path(__file__).parent / "peers"
INSTALL = "not installed; `make bench` has it in an environment of its own"


def missing(side: Side) -> bool:
    return side.peer in PACKAGES and importlib.util.find_spec(PACKAGES[side.peer]) is None


def run(side: Side, bench: Bench, inputs: Path, device: str, clock: str, gate: Path) -> Answer:
    """Train one side in a process of its own, which waits at the gate once it has loaded everything."""
    common = {"inputs": str(inputs), "device": device, "clock": clock, "gate": str(gate), "parent": os.getpid()}
    job = {**common, "epochs": bench.epochs, "batch_size": bench.batch_size, **side.job}
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, str(PEERS / f"{side.peer}_peer.py"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    answer["said"] = [line for line in done.stderr.splitlines() if line.startswith("teacher cache:")]
    return answer


def compared(
    bench: Bench, inputs: Path, device: str, repeats: int, clock: str = "wall", together: int = 1
) -> tuple[Found, dict[str, str]]:
    """The answers of all sides, in turns, and why some have none; up to `together` of them load at the same time.

    They train one at a time, and none while another loads. A GPU that has rested is faster for a while, so there the
    first side trains once more than is counted. Every second turn goes backwards, so that of two neither side gains
    from a machine that slows down or speeds up.
    """
    answers: dict[str, list[Answer]] = {}
    without = {side.name: INSTALL for side in bench.sides if missing(side)}
    sides = [side for side in bench.sides if side.name not in without]
    turns = [*(sides[:1] if device == "cuda" else []), *(sides + sides[::-1]) * (repeats // 2), *sides * (repeats % 2)]
    for start in range(0, len(turns), together):
        group = [side for side in turns[start : start + together] if side.name not in without]
        for number, (side, answer) in enumerate(_one_by_one(group, bench, inputs, device, clock), start):
            if isinstance(answer, RuntimeError):
                say(f"{side.name} failed:\n{answer}")
                without[side.name] = f"failed: {str(answer).splitlines()[-1]}"
            elif number or device != "cuda":
                answers.setdefault(side.name, []).append(answer)
                say(f"{bench.title}, {bench.shape}: {side.name}: {whole(answer):.2f} s")
    return Found(bench, {name: found for name, found in answers.items() if name not in without}), without


def _one_by_one(
    sides: Sequence[Side], bench: Bench, inputs: Path, device: str, clock: str
) -> Iterator[tuple[Side, Answer | RuntimeError]]:
    """Load all sides at once, then let one after the other train."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max(len(sides), 1)) as pool:
        tried = []
        for number, side in enumerate(sides):
            gate = Path(folder) / str(number)
            gate.mkdir()
            tried.append((side, gate, pool.submit(run, side, bench, inputs, device, clock, gate)))
        try:
            while not all(future.done() or (gate / "ready").exists() for _, gate, future in tried):
                time.sleep(0.02)
            for side, gate, future in tried:
                (gate / "go").touch()
                try:
                    yield side, future.result()
                except RuntimeError as error:
                    yield side, error
        finally:
            # Whoever is left at its gate must not wait for ever.
            for _, gate, _ in tried:
                (gate / "go").touch()


def table_of(found: Found, without: dict[str, str]) -> Table:
    bench = found.bench
    table = Table(title=f"{bench.title}: {SHAPES[bench.shape]}, {bench.examples:,} examples, {bench.epochs} epochs, "
                        f"batch {bench.batch_size}", title_justify="left")  # fmt: skip
    table.add_column("side")
    for name in ("whole, s", "later epochs, s", "steps/s", "peak MB"):
        table.add_column(name, justify="right")
    for side in bench.sides:
        if side.name in without:
            table.add_row(side.name, escape(without[side.name]))
            continue
        values = [found.typical(side.name, value) for value in (whole, later, rate, memory)]
        table.add_row(side.name, *(f"{value:,.{places}f}" for value, places in zip(values, (2, 2, 2, 0), strict=True)))
    return table


def ratio_table(found: list[Ratio]) -> Table:
    table = Table(title="Ratios", title_justify="left")
    for name, side in (("what", "left"), ("ratio", "right"), ("wanted", "left"), ("", "left")):
        table.add_column(name, justify=side)
    for ratio in found:
        met = {True: "yes", False: "no", None: ""}[ratio.met]
        table.add_row(ratio.what, f"{ratio.value:.2f}", ratio.wanted, met)
    return table


def written(found: Found, without: dict[str, str]) -> dict[str, Any]:
    """A bench as JSON."""
    bench = found.bench
    return {
        "bench": bench.name, "title": bench.title, "shape": str(SHAPES[bench.shape]), "examples": bench.examples,
        "epochs": bench.epochs, "batch_size": bench.batch_size, "sides": found.answers, "without": without,
    }  # fmt: skip


def keep(path: Path, results: list[tuple[Found, dict[str, str]]], given: argparse.Namespace) -> None:
    """Write what was found so far as JSON."""
    setting = {
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "repeats": given.repeats,
        "clock": given.clock,
    }
    content = {
        "setting": setting,
        "benches": [written(*one) for one in results],
        "ratios": [asdict(ratio) | {"met": ratio.met} for ratio in ratios([one for one, _ in results])],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as part:
        part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="[default: all; steps only on a GPU]")
    parser.add_argument("--sides", nargs="+", default=("",), metavar="START", help="only those whose name starts so")
    parser.add_argument("--without", nargs="+", default=(), metavar="WORD", help="none whose name has one of these")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="of runs, beside fine-tuning")
    parser.add_argument("--examples", type=int, help="[default: 512 on a CPU, 32768 on a GPU]")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=(32, 256), help="of steps")
    parser.add_argument("--repeats", type=int, default=1, help="turns of each side")
    parser.add_argument(
        "--together", type=int, default=1, help="sides that load at the same time; then one after the other trains"
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="processor: time spent on a process, which others on a CPU in use lengthen less",
    )
    parser.add_argument("--tiny", action="store_true", help="small models and few examples, to see that it runs")
    parser.add_argument("--inputs", type=Path, help="keep texts, tokens and models here")
    parser.add_argument("--prepare", action="store_true", help="write texts and tokenizer to --inputs, nothing else")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    given = parser.parse_args()
    if given.device == "cuda" and given.clock == "processor":
        parser.error("--clock processor: what a GPU does is not in it")
    staged = [name for name in given.methods if len(methods.build(name).stages) > 1]
    if staged:
        parser.error(f"--methods {staged[0]}: it has no epochs to compare, it trains in stages")
    os.environ["STILLERY_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.inputs or Path(scratch)
        prepare(folder)
        if given.prepare:
            return
        only = given.only or [name for name in NAMES if name != "steps" or given.device == "cuda" or given.tiny]
        examples = given.examples or (16 if given.tiny else 512 if given.device == "cpu" else 32768)
        asked = Asked(
            device=given.device, examples=examples, tiny=given.tiny, only=tuple(only), sides=tuple(given.sides),
            without=tuple(given.without), batch_sizes=tuple(given.batch_sizes), methods=tuple(given.methods),
        )  # fmt: skip
        results = []
        console = Console() if sys.stdout.isatty() else Console(width=120)
        for bench in benches(asked):
            inputs = made(folder, bench.shape, bench.examples, short=bench.short)
            results.append(compared(bench, inputs, given.device, given.repeats, given.clock, given.together))
            console.print(table_of(*results[-1]))
            if given.tiny:
                console.print(same_losses(results[-1][0]))
            if given.json:
                # After every bench: who stops this one has the ones before.
                keep(given.json, results, given)
    console.print(ratio_table(ratios([one for one, _ in results])))
    if any(why != INSTALL for _, without in results for why in without.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
