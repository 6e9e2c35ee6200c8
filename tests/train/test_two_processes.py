"""Two processes train like one with batches twice as large, with every method, and continue with a run of one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from stillery import methods
from stillery.data.tokens.batches import micro_batches
from stillery.errors import UserError
from stillery.train.batch_dependence import check_divided
from stillery.train.settings import Training

pytestmark = pytest.mark.slow

ONE = (sys.executable,)
TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCUMULATED = ("cr-ild", "codir")
"""Methods that draw something for each example."""

Done = subprocess.CompletedProcess


@pytest.fixture(scope="module")
def calm_teacher(tiny_teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny teacher with layers that differ, and dropout off, which its students inherit.

    Two processes draw dropout of their own.
    """
    folder = tmp_path_factory.mktemp("calm")
    model = AutoModelForSequenceClassification.from_pretrained(tiny_teacher)
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "encoder" in name and weight.ndim == 2:
                weight.mul_(8)
    model.save_pretrained(folder)
    for file in tiny_teacher.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def start(launcher: Sequence[str], *arguments: object) -> Done[str]:
    return subprocess.run(
        [*launcher, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )


def said(done: Done[str]) -> set[str]:
    """Each process says what is wrong; the launcher has words of its own."""
    return {line for line in done.stderr.splitlines() if line.startswith("stillery: ")}


def logged(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "train"]


def assert_alike(one: Path, other: Path, *, after: int = 0) -> None:
    """Two runs have the same losses at every step after some, and end with the same weights, but for rounding."""
    logs = [[line for line in logged(out) if line["step"] > after] for out in (one, other)]
    assert [line["step"] for line in logs[0]] == [line["step"] for line in logs[1]] and logs[0]
    for mine, theirs in zip(*logs, strict=True):
        # A divergence of nearly nothing is rounding.
        assert theirs["terms"] == pytest.approx(mine["terms"], rel=2e-4, abs=5e-6), (one.name, mine["step"])
    weights, others = (load_file(out / "model.safetensors") for out in (one, other))
    # Attention does not change with a bias of its keys: that one's gradient is rounding alone, and so are its steps.
    for name, value in ((name, value) for name, value in weights.items() if not name.endswith("key.bias")):
        # Adam scales a rare word's gradient up even where it is rounding; a tenth of a step is what that may come to.
        atol = 1e-4 if "word_embeddings" in name else 2e-5
        torch.testing.assert_close(others[name], value, atol=atol, rtol=0, msg=f"{one.name}: {name}")


def apart(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    """How far weights are apart, of their norm, but for the biases of keys as above."""
    assert one.keys() == other.keys()
    names = [name for name in one if not name.endswith("key.bias")]
    norms = [sum(float((value.double() ** 2).sum()) for value in values) ** 0.5 for values in (
        [one[name] - other[name] for name in names], [one[name] for name in names])]  # fmt: skip
    return norms[0] / norms[1]


@pytest.fixture(scope="module")
def divided(calm_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Every method, 28 examples for two epochs of steps of 12, 12 and 4, divided in several ways."""
    root = tmp_path_factory.mktemp("divided")
    common = {"teacher": str(calm_teacher), "data": str(reviews), "layers": 2, "width": 16, "heads": 4, "samples": 28}
    common |= {"max_steps": 6, "epochs": 2, "lr": 1e-3, "log_every": 1, "max_length": 24, "init": "random"}
    ways: Mapping[str, tuple[Sequence[str], Sequence[str], dict[str, int]]] = {
        "one": (ONE, methods.names(), {"batch_size": 12}),
        "two": (TWO, methods.names(), {"batch_size": 6}),
        "accumulated": (ONE, ACCUMULATED, {"batch_size": 4, "accumulate": 3}),
    }

    def of(way: str) -> Path:
        launcher, names, cut = ways[way]
        out = root / way
        if not out.exists():
            runs = [{"method": name, "out": str(out / name), **changes(name), **cut} for name in names]
            done = start(launcher, Path(__file__).with_name("several_runs.py"), json.dumps([common, runs]))
            assert done.returncode == 0, done.stderr
        return out

    return of


def changes(method: str) -> dict[str, Any]:
    """What a method needs of its student: that of ILD-RTC and SimKD has the teacher's head."""
    return {"width": None, "heads": None, "init": None} if method in ("ild-rtc", "simkd") else {}


@pytest.mark.parametrize("method", methods.names())
def test_two_processes_of_6_equal_one_of_12(method: str, divided: Callable[[str], Path]) -> None:
    runs = [divided(way) / method for way in ("one", "two")]
    assert_alike(*runs)
    losses = [[line["loss"] for line in logged(run)] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=2e-6)
    assert apart(*(load_file(run / "model.safetensors") for run in runs)) < 1e-6
    projections = [sorted((run / "projections").glob("*.safetensors")) for run in runs]
    assert len(projections[0]) == len(projections[1])
    for one, other in zip(*projections, strict=True):
        assert one.name == other.name and apart(load_file(one), load_file(other)) < 1e-6
    metrics = [json.loads((run / "metrics.json").read_text())["metrics"] for run in runs]
    assert metrics[0] == metrics[1]
    warnings = [json.loads((run / "metrics.json").read_text())["warnings"] for run in runs]
    warned = [[(one["guard"], one["about"], one["step"]) for one in each] for each in warnings]
    assert warned[0] == warned[1] and len(set(warned[0])) == len(warned[0]), "said by one process, once"


@pytest.mark.parametrize("method", ACCUMULATED)
def test_three_times_4_equal_12(method: str, divided: Callable[[str], Path]) -> None:
    assert_alike(divided("one") / method, divided("accumulated") / method)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("tinybert", {"released": True}, "the distance released_attention_mse depends on which examples share a batch"),
        ("layer-forward", {"released": True}, "the reduction batchmean_twice"),
        ("layer-forward", {"normalise": "joint"}, "the representation tokens(normalised by joint)"),
        ("rail-kd", {"unmasked": True}, "the representation unmasked_pool"),
    ],
)
def test_what_looks_at_a_batch_as_a_whole_is_for_one_process(
    method: str, options: dict[str, object], words: str
) -> None:
    stages = methods.build(method, options).stages
    check_divided(stages, Training(accumulate=2), 1)
    with pytest.raises(UserError, match="start one process") as refused:
        check_divided(stages, Training(), 2)
    assert words in str(refused.value)


def test_mixed_pairs_fill_no_odd_batch_of_several() -> None:
    stages = methods.build("cr-ild", {}).stages
    check_divided(stages, Training(batch_size=5), 1)
    for training, processes in ((Training(batch_size=5), 2), (Training(batch_size=5, accumulate=2), 1)):
        with pytest.raises(UserError, match=r"--batch-size 5: .* give an even one"):
            check_divided(stages, training, processes)
    assert [len(cut) for cut in micro_batches(5, 5, partner=[4, 3, 2, 1, 0])] == [5]


def command(teacher: Path, data: Path, out: Path, *more: object) -> list[object]:
    """A run of 48 steps of 16."""
    settings = ["--method", "layer-forward", "--layers", 2, "--width", 16, "--heads", 4, "--max-length", 24]
    settings += ["--lr", 1e-3, "--log-every", 1, "--checkpoint-every", 5, "--epochs", 6, "--cache", "off"]
    return ["-m", "stillery", "distill", "--teacher", teacher, "--data", data, "--out", out, *settings, *more]


Unfinished = Callable[[Path, Sequence[str], int], None]


@pytest.fixture(scope="module")
def unfinished(calm_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Unfinished:
    """Puts a run that was killed somewhere, made in so many processes with this batch size."""
    root = tmp_path_factory.mktemp("unfinished")

    def put(out: Path, launcher: Sequence[str], batch_size: int) -> None:
        made = root / f"{len(launcher)}-{batch_size}"
        if not made.exists():
            arguments = [*launcher, *command(calm_teacher, reviews, made, "--batch-size", batch_size)]
            running = subprocess.Popen(
                [str(argument) for argument in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            deadline = time.monotonic() + 120
            while not list((made / "checkpoints").glob("step-*")):
                assert running.poll() is None and time.monotonic() < deadline
                time.sleep(0.001)
            # The launcher ends its processes, too.
            running.terminate()
            running.wait()
        shutil.copytree(made, out)
        assert not (out / "metrics.json").exists() and logged(out)[-1]["step"] < 48

    return put


@pytest.fixture(scope="module")
def whole(calm_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process with 16 examples, which nothing stopped."""
    out = tmp_path_factory.mktemp("whole") / "whole"
    done = start(ONE, *command(calm_teacher, reviews, out, "--batch-size", 16))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model: ") == 1
    return out


@pytest.mark.parametrize(
    ("before", "now", "more", "division"),
    [
        ((TWO, 8), ONE, ("--batch-size", 16), (16, 1, 1)),
        ((TWO, 8), ONE, ("--batch-size", 8, "--accumulate", 2), (8, 2, 1)),
        ((ONE, 16), TWO, ("--batch-size", 8), (8, 1, 2)),
    ],
    ids=["2x8 to 1x16", "2x8 to 1x8, twice", "1x16 to 2x8"],
)
def test_a_run_goes_on_with_as_large_steps_however_they_are_divided(
    before: tuple[Sequence[str], int],
    now: Sequence[str],
    more: Sequence[object],
    division: tuple[int, int, int],
    unfinished: Unfinished,
    whole: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    unfinished(out, *before)
    done = start(now, "-m", "stillery", "distill", "--out", out, "--resume", *more)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model: ") == 1, "the result is shown once"
    assert "the run continues with batch size" in done.stdout + done.stderr
    assert [line["step"] for line in logged(out)] == list(range(1, 49))
    assert_alike(whole, out)
    written = tomllib.loads((out / "run.toml").read_text())
    assert (written["batch_size"], written["accumulate"], written["processes"]) == division


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes of the launcher in /proc")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_the_run_in_one_line_and_one_process_goes_on(
    lost: int, whole: Path, calm_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    out, said = tmp_path / "out", tmp_path / "said"
    arguments = [*TWO, *map(str, command(calm_teacher, reviews, out, "--batch-size", 8))]
    one_thread = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    with said.open("w") as file:
        running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=file, env=one_thread)
        deadline = time.monotonic() + 120
        while not list((out / "checkpoints").glob("step-*")):
            assert running.poll() is None and time.monotonic() < deadline, said.read_text()
            time.sleep(0.001)
        os.kill(process_of(running.pid, lost), signal.SIGKILL)
        assert running.wait(timeout=60) == 1
    lines = said.read_text().splitlines()
    assert [line for line in lines if line.startswith("stillery: ")] == [
        f"stillery: another process of the run has ended; the run in {out} continues with --resume, in as many "
        "processes or others with steps as large"
    ]
    # What follows is the launcher's.
    assert not any(line.startswith("[rank") and "Traceback" in line for line in lines)
    done = start(ONE, "-m", "stillery", "distill", "--out", out, "--resume", "--batch-size", 16)
    assert done.returncode == 0, done.stderr
    assert_alike(whole, out)


def process_of(launcher: int, rank: int) -> int:
    """The process of a rank among those that a launcher has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == launcher and f"RANK={rank}".encode() in (stat.parent / "environ").read_bytes().split(b"\0"):
                return int(stat.parent.name)
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.parametrize(
    ("before", "now", "batch_size", "words", "cure"),
    [
        ((TWO, 8), ONE, 8, "steps of 16 examples (batch size 8 in 2 processes), and these would be of 8", 16),
        ((ONE, 16), TWO, 16, "steps of 16 examples (batch size 16 in 1 process), and these would be of 32", 8),
    ],
    ids=["2x8 to 1x8", "1x16 to 2x16"],
)
def test_a_run_is_not_gone_on_with_in_steps_of_another_size(
    before: tuple[Sequence[str], int],
    now: Sequence[str],
    batch_size: int,
    words: str,
    cure: int,
    unfinished: Unfinished,
    calm_teacher: Path,
    reviews: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    unfinished(out, *before)
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = start(now, *command(calm_teacher, reviews, out, "--batch-size", batch_size, "--resume"))
    line = f"stillery: --out {out} holds this run with {words}: give --batch-size {cure} --accumulate 1"
    assert done.returncode != 0 and said(done) == {line}
    # By the run file alone, too.
    done = start(now, "-m", "stillery", "distill", "--out", out, "--resume")
    (line,) = said(done)
    assert "the run file is for" in line and line.endswith(f"give --batch-size {cure} --accumulate 1 beside it")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files


def test_a_run_file_is_not_carried_out_in_steps_of_another_size(
    whole: Path, calm_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    done = start(TWO, "-m", "stillery", "distill", "--config", whole / "run.toml", "--out", tmp_path / "out")
    assert said(done) == {
        "stillery: the run file is for 1 process with batch size 16, but 2 processes are running: for the same "
        "steps of 16 examples give --batch-size 8 --accumulate 1 beside it"
    }
    assert not (tmp_path / "out").exists()


def test_what_processes_cannot_do_alike_is_refused_before_anything_is_written(
    calm_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    done = start(TWO, *command(calm_teacher, reviews, tmp_path / "out", "--distance", "contrastive"))
    assert said(done) == {
        "stillery: match hidden: the distance contrastive depends on which examples share a batch, and 2 processes "
        "have one each; start one process"
    }
    assert not (tmp_path / "out").exists()
