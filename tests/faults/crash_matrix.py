"""Runs that are killed at random moments and resumed: each has to end with the bits of one that was not.

`make faults` runs this file; a few kills are part of the tests. Every kill is drawn from a seed. Half of them come at
an event of the run: a file opened for writing, a folder made, a rename, a removal, a step. These are counted, so that a
kill falls between any two of them. The others come at a moment of the clock. A killed run is resumed with the same
command and `--resume`, and may be killed again, up to three times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.extend(str(place) for place in (TESTS, TESTS / "cli") if str(place) not in sys.path)

from forked import Process, start  # noqa: E402

from stillery.train.objective import Objective  # noqa: E402

__all__ = ["RUNS", "Crash", "Inputs", "Reference", "crash", "reference"]

_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime", "shutil.rmtree"}
_STEP = "a step"
_MOST_KILLS = 3
_SECONDS = 300

PLAN = """
title = "tiny"
tasks = ["reviews.csv"]
max_length = 16
batch_size = 8
max_steps = 4
[teacher]
model = "model"
[student]
layers = 2
checkpoint_every = 2
[methods.kd]
[methods.rail-kd]
"""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The tiny models and the data that every run is made of."""

    classifier: Path
    reviews: Path
    writer: Path
    pairs: Path


def _classify(*more: object, job: str = "distill") -> Callable[[Inputs], tuple[object, ...]]:
    named = "--teacher" if job == "distill" else "--model"
    return lambda inputs: (
        job, named, inputs.classifier, "--data", inputs.reviews, "--max-length", 16, "--max-steps", 8, "--batch-size",
        8, "--checkpoint-every", 2, "--eval-every", 3, "--lr", 1e-3, *more,
    )  # fmt: skip


def _write(*more: object) -> Callable[[Inputs], tuple[object, ...]]:
    return lambda inputs: (
        "distill", "--teacher", inputs.writer, "--data", inputs.pairs, "--layers", 1, "--method", "kd", "--max-length",
        16, "--max-target-length", 12, "--max-new-tokens", 6, "--beams", 2, "--max-steps", 5, "--batch-size", 8,
        "--checkpoint-every", 2, "--lr", 1e-3, *more,
    )  # fmt: skip


_METHOD, _LIVE, _CACHED = "--method", ("--layers", 2, "--cache", "off"), ("--layers", 2, "--cache", "on")

RUNS: Mapping[str, Callable[[Inputs], tuple[object, ...]]] = {
    "finetune": _classify(job="finetune"),
    "kd": _classify(_METHOD, "kd", *_LIVE),
    "pkd, cache": _classify(_METHOD, "pkd", *_CACHED),
    "tinybert, cache": _classify(_METHOD, "tinybert", *_CACHED),
    "rail-kd, projections": _classify(_METHOD, "rail-kd", *_LIVE, "--width", 16, "--heads", 2),
    "cr-ild, snapshots": _classify(_METHOD, "cr-ild", *_LIVE, "--snapshot-every", 4),
    "sequence level": _write("--sequence-level"),
    "on policy": _write("--on-policy", 0.5),
    "study": lambda inputs: (),
}
"""The command of each run, without its folder; a study is worked through in one process, as its workers do."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A run that nobody disturbed: its folder, how long it took, and its events."""

    name: str
    inputs: Inputs
    root: Path
    seconds: float
    events: Sequence[str]


@dataclass(kw_only=True)
class Crash:
    """What came of a run that was killed: where it was, and what is wrong at its end, if anything."""

    name: str
    kills: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _watch(root: Path, at: int | None, record: Path | None) -> None:
    """Count the events of this process under a folder; kill it at one of them, or record what they were."""
    inside, labels = str(root), []

    def happens(label: str) -> None:
        labels.append(label)
        if len(labels) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not str(given[0]).startswith(inside) or str(given[0]) == str(record):
            return
        if event == "open":
            _, mode, flags = given
            if not (any(letter in mode for letter in "wax+") if mode else flags & (os.O_WRONLY | os.O_RDWR)):
                return
        happens(event)

    after, leave = Objective.after_step, os._exit

    def step(self: Objective, *, new_epoch: bool) -> None:
        happens(_STEP)
        after(self, new_epoch=new_epoch)

    def left(code: int) -> None:
        if record is not None:
            record.write_text(json.dumps(labels))
        leave(code)

    Objective.after_step = step  # type: ignore[method-assign]
    os._exit = left
    sys.addaudithook(hook)


def _work_through(root: Path) -> None:
    """Do all cells of a study, as a worker does."""
    from stillery.study.cells import planned
    from stillery.study.claims import Claims
    from stillery.study.folder import StudyFolder
    from stillery.study.plan import read_plan
    from stillery.study.workers import work

    read = read_plan(root / "plan.toml")
    cells, _ = planned(read)
    folder = StudyFolder(root / "out")
    folder.begin(read, cells)
    work(folder, cells, Claims(folder.claims), poll=0.01)


def _started(
    name: str, inputs: Inputs, root: Path, at: int | None = None, record: Path | None = None, *, resume: bool = False
) -> Process:
    root.mkdir(parents=True, exist_ok=True)

    def before() -> None:
        os.environ["STILLERY_CACHE"] = str(root / "cache")
        _watch(root, at, record)
        if name == "study":
            # Whether a cache is used is decided by the clock, and rounds otherwise.
            os.environ["STILLERY_CACHE"] = "off"
            _work_through(root)

    if name == "study":
        for link, target in (("model", inputs.classifier), ("reviews.csv", inputs.reviews)):
            if not (root / link).exists():
                (root / link).symlink_to(target)
        (root / "plan.toml").write_text(PLAN)
    more = ("--out", root / "out", *(("--resume",) if resume else ()))
    return start(root / "said", *((*RUNS[name](inputs), *more) if name != "study" else ()), before=before)


def reference(name: str, inputs: Inputs, root: Path) -> Reference:
    """Make a run that nobody disturbs."""
    began, record = time.monotonic(), root / "events.json"
    process = _started(name, inputs, root, record=record)
    assert process.wait(_SECONDS) == 0, process.err
    events = json.loads(record.read_text())
    return Reference(name=name, inputs=inputs, root=root, seconds=time.monotonic() - began, events=events)


def crash(whole: Reference, root: Path, seed: object, kills: int = _MOST_KILLS) -> Crash:
    """Kill a run at random moments and resume it, up to so many times, and compare its end with the whole one's."""
    draw, found = random.Random(f"{whole.name} {seed}"), Crash(name=whole.name)
    for number in range(kills):
        if number and draw.random() < 0.5:
            break
        found.kills.append(_killed(whole, root, draw, resume=number > 0))
    process = _started(whole.name, whole.inputs, root, resume=True)
    if process.wait(_SECONDS) != 0:
        found.wrong.append(f"not resumed: {process.err.strip().splitlines()[-1:]}")
        return found
    found.wrong += _differences(root, whole.root)
    return found


def _killed(whole: Reference, root: Path, draw: random.Random, *, resume: bool) -> str:
    """Start a run and kill it at an event or a moment; return where it was."""
    if draw.random() < 0.5:
        at = draw.randrange(len(whole.events)) + 1
        process = _started(whole.name, whole.inputs, root, at=at, resume=resume)
        process.wait(_SECONDS)
        where = whole.events[at - 1] if not resume else "an event after resuming"
    else:
        process, where = _started(whole.name, whole.inputs, root, resume=resume), "a moment"
        time.sleep(draw.uniform(0.0, whole.seconds))
        process.kill()
    # A resumed run has fewer events than a whole one, and a slow machine makes moments early or late.
    if process.code == -signal.SIGKILL:
        return where
    assert process.code == 0, process.err
    return "after its end"


def _runs(root: Path) -> list[Path]:
    """The run folders under a root: one, or those of a study's cells."""
    return sorted(file.parent.relative_to(root) for file in root.rglob("run.toml") if file.parent.name != "checkpoints")


def _differences(root: Path, whole: Path) -> list[str]:
    """Return what is left over, missing or different in the folder of a run that was killed."""
    wrong = [f"left over: {path.relative_to(root)}" for path in root.rglob(".stillery-*")]
    runs = _runs(whole)
    if _runs(root) != runs:
        wrong.append(f"runs {_runs(root)} instead of {runs}")
        return wrong
    for run in runs:
        ours, theirs = ({path.relative_to(one / run) for path in (one / run).rglob("*")} for one in (root, whole))
        wrong += [f"{'left over' if path in ours else 'missing'}: {run / path}" for path in sorted(ours ^ theirs)]
        same = ("*.safetensors", "predictions.parquet", "config.json")
        files = {path for pattern in same for path in (whole / run).rglob(pattern)}
        for path in sorted(file.relative_to(whole) for file in files):
            if (root / path).is_file() and (root / path).read_bytes() != (whole / path).read_bytes():
                wrong.append(f"different: {path}")
        for path in (root / run).rglob("*.json"):
            json.loads(path.read_text(encoding="utf-8"))
    return wrong


def _inputs(root: Path) -> Inputs:
    """Make the models and data that tests have as fixtures."""
    from conftest import reviews, tiny_teacher
    from text_models import make_writer, write_pairs

    from stillery.models.load_model import load_tokenizer

    class Folders:
        def mktemp(self, name: str) -> Path:
            (root / name).mkdir(parents=True)
            return root / name

    made: Any = Folders()
    return Inputs(
        classifier=tiny_teacher.__wrapped__(made, load_tokenizer("minilm-l6")),
        reviews=reviews.__wrapped__(made),
        writer=make_writer(root / "writer", "t5", layers=2),
        pairs=write_pairs(root / "pairs.csv"),
    )


def main() -> None:
    """Kill runs of every kind in turn, and print what was found."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--kills", type=int, default=200, help="The least number of kills.")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--only", choices=RUNS, action="append", help="Runs of these kinds only.")
    asked.add_argument("--keep", action="store_true", help="Keep the folders of runs that end wrongly.")
    given = asked.parse_args()
    root = Path(tempfile.mkdtemp(prefix="stillery-faults-"))
    inputs, kinds = _inputs(root / "inputs"), given.only or list(RUNS)
    wholes = {name: reference(name, inputs, root / "whole" / str(place)) for place, name in enumerate(kinds)}
    where: Counter[str] = Counter()
    per_kind: Counter[str] = Counter()
    wrong = trial = 0
    while where.total() < given.kills:
        name, place = kinds[trial % len(kinds)], root / "runs" / str(trial)
        found = crash(wholes[name], place, f"{given.seed} {trial}")
        hits = [one for one in found.kills if one != "after its end"]
        where.update(hits)
        per_kind[name] += len(hits)
        for line in found.wrong:
            print(f"run {trial}, {name}, killed at {', '.join(found.kills)}: {line}", flush=True)
        wrong += bool(found.wrong)
        trial += 1
        if not (found.wrong and given.keep):
            shutil.rmtree(place)
    for title, counts in (("kills by kind of run", per_kind), ("kills by moment", where)):
        print(f"{title}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    print(f"{where.total()} kills of {trial} runs (seed {given.seed}): {trial - wrong} ended the same, {wrong} did not")
    if not given.keep:
        shutil.rmtree(root)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
