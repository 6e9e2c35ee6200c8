"""Benchmarks run, in a tiny setting; how fast is not tested."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from text_tokenizers import word_tokenizer
from torch.autograd import DeviceType
from transformers import AutoModelForSeq2SeqLM, T5Config

from stillery import methods

ROOT = Path(__file__).parent.parent


def test_the_benchmark_of_the_methods_runs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "methods.py",
        "--tiny",
        "--steps",
        "2",
        "--json",
        tmp_path / "b.json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["methods"].keys() == set(methods.names())
    assert not found["refused"]
    assert found["methods"]["kd"]["of_kd"] == 1.0


@pytest.mark.slow
def test_the_benchmark_of_load_runs(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "load.py", "study", "log", "--cells", "4", "--workers", "2"]
    done = subprocess.run(
        [*command, "--lines", "2000", "--json", tmp_path / "b.json"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert (found["cells"], found["finished"], found["lost"], found["run_twice"]) == (5, 5, 0, 0)
    assert found["log_lines"] == 2000 and found["log_resumed_seconds"] > 0


def test_the_benchmark_of_intervals_runs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "benchmarks" / "coverage.py",
        "--trials",
        "20",
        "--seeds",
        "3",
        "--examples",
        "40",
    ]
    done = subprocess.run([*command, "--json", tmp_path / "b.json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert [row["seeds"] for row in rows] == [3, 3, 3]
    assert all(row["interval"] >= 75 and row["told_from_best"] <= 25 for row in rows)


def test_the_benchmark_of_the_vocabulary_runs(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "vocabulary.py", "--tiny", "--device", "cpu", "--repeats", "1"]
    chosen = ["--losses", "kl", "cross-entropy", "--scored", "0.5", "--json", tmp_path / "b.json"]
    done = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["losses"].keys() == {"kl", "cross-entropy"}
    assert all(row["ms_ours"] > 0 and row["peak_ours"] > 0 for row in found["losses"].values())
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == ["kl", "cross-entropy"]


@pytest.mark.slow
def test_the_benchmark_of_the_levers_runs_and_none_changes_the_losses(tmp_path: Path) -> None:
    small = ["--layers", "4", "--width", "64", "--examples", "64", "--epochs", "1", "--batch-size", "16"]
    command = [sys.executable, ROOT / "benchmarks" / "levers.py", "--device", "cpu", *small, "--methods", "pkd"]
    # As on a GPU, each run in a process of its own.
    command += ["--processes", "--json", tmp_path / "b.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert [(one["method"], one["cache"]) for one in found] == [("none", "off"), ("pkd", "off"), ("pkd", "on")]
    assert found[2]["apart"] < 1e-5


@pytest.mark.slow
def test_levers_that_are_left_out_do_not_change_the_losses(tmp_path: Path) -> None:
    levers = ["early-stop", "first-token", "fused-optimiser", "pairs-at-once", "cheap-seeds", "late-reading"]
    small = ["--layers", "6", "--width", "64", "--examples", "64", "--epochs", "1", "--batch-size", "16"]
    command = [sys.executable, ROOT / "benchmarks" / "levers.py", "--device", "cpu", *small, "--methods", "pkd"]
    done = subprocess.run([*command, "--cache", "off", "--without", *levers, "--json", tmp_path / "b.json"],
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {one["without"]: one for one in json.loads((tmp_path / "b.json").read_text()) if one["method"] == "pkd"}
    assert [*found] == ["", *levers]
    assert all(found[lever]["apart"] < 1e-5 for lever in levers if lever != "first-token")
    assert found["first-token"]["apart"] > 0, "the last layer draws other dropout"


def test_a_lever_that_changes_the_losses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    levers = importlib.import_module("levers")

    def run(cache: str, graph: str, loss: float, without: str = "") -> dict:
        return {
            "method": "pkd", "cache": cache, "graph": graph, "compile": "off", "without": without, "precision": "bf16",
            "losses": {1: 1.0, 20: loss, 80: 9.0}, "apart": abs(loss - 1.0),
        }  # fmt: skip

    live, other = run("off", "off", 1.0), run("off", "on", 1.0, "first-token") | {"apart": 0.5}
    assert (
        levers.changed([live, run("off", "on", 1.0), run("on", "off", 1.001), run("on", "on", 1.001), other], 60) == []
    )
    (line,) = levers.changed([live, run("off", "on", 1.001)], 60)
    assert line.startswith("method pkd, cache off, graph on, without -: losses are 1.0e-03 apart, more than 1e-05")
    (line,) = levers.changed([live, run("on", "off", 1.01)], 60)
    assert line.startswith("method pkd, cache on, graph off, without -: losses are 1.0e-02 apart, more than 0.005")


@pytest.mark.slow
def test_the_benchmark_of_glue_runs_several_at_a_time(tmp_path: Path, tiny_teacher: Path) -> None:
    (tmp_path / "RTE").mkdir()
    for part in ("train", "dev"):
        rows = [f"{row}\tgood film {row}\ta film\t{('entailment', 'not_entailment')[row % 2]}" for row in range(24)]
        (tmp_path / "RTE" / f"{part}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    command = [
        sys.executable, ROOT / "benchmarks" / "glue.py", "--data-dir", tmp_path, "--models", tiny_teacher, "--tasks",
        "rte:1", "--methods", "none,rail-kd", "--seeds", "0", "--layers", "2", "--batch-size", "8", "--workers", "2",
        "--out", tmp_path / "runs", "--json", tmp_path / "b.json",
    ]  # fmt: skip
    environment = os.environ | {"ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert not found["failed"] and {row["method"] for row in found["rows"]} == {"teacher", "none", "rail-kd"}
    assert "| rail-kd |" in done.stdout


def test_every_lever_can_be_left_out_and_is_back_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lever that is called otherwise now would be left out of nothing."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    levers = importlib.import_module("levers")
    places = [
        (levers.loop, "PREFETCHED"), (levers.DeferredLosses, "arrived"), (levers.stream, "_stream_of"),
        (levers.Repeated, "_record"),
        (levers.step, "seed_generators"), (levers.attention, "_unread"), (torch.backends.cuda, "cudnn_sdp_enabled"),
        (levers.trace.StackHooks, "__init__"),
        (levers.trace, "_first_token_only"), (torch.optim, "AdamW"), (levers.batches, "POOL_WINDOWS"),
        (levers.terms, "at_once"),
    ]  # fmt: skip
    assert len(places) == len(levers.WITHOUT)
    for lever, (module, name) in zip(levers.WITHOUT, places, strict=True):
        before = getattr(module, name)
        with levers.WITHOUT[lever]():
            assert getattr(module, name) is not before, lever
        assert getattr(module, name) is before, lever


@pytest.mark.parametrize(("lever", "method"), [("first-token", "pkd"), ("early-stop", "tinybert")])
def test_a_lever_that_is_left_out_is_work(lever: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: the linear maps that are run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    levers = importlib.import_module("levers")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    rows: list[int] = []
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda linear, given: rows.append(given.numel()) or forward(linear, given)
    )
    data, teacher = levers.sentences(32), levers.bert(6, 64, seed=0)
    asked = SimpleNamespace(device="cpu", precision="fp32", layers=6, width=64, epochs=2, batch_size=16, log_every=20)
    asked.max_steps, work = None, {}
    for without in ("", lever):
        rows.clear()
        levers.one_run(method, teacher, data, {"cache": "off", "graph": "off", "without": without}, asked)
        work[without] = sum(rows)
    assert work[lever] > work[""]


@pytest.mark.slow
def test_the_operations_of_a_step_are_counted() -> None:
    small = ["--layers", "4", "--width", "64", "--examples", "64", "--batch-size", "16", "--operations"]
    command = [sys.executable, ROOT / "benchmarks" / "levers.py", "--device", "cpu", *small, "--methods", "rail-kd"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [["none", "-"], ["rail-kd", "live"], ["rail-kd", "store"]]
    none, live, store = (int(row[2]) for row in rows)
    assert none < store < live, "a store spares the teacher's operations, not the comparing"


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is refused without a GPU")
@pytest.mark.parametrize("command", [["replays.py"], ["levers.py", "--device", "cpu", "--waits"]])
def test_what_only_a_gpu_can_show_is_refused_without_one(command: list[str]) -> None:
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / command[0], *command[1:]], capture_output=True,
                          text=True, timeout=300)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "no CUDA device is here" in done.stderr or "it needs a GPU" in done.stderr


class _Event:
    """A stand-in for an event of a GPU whose clock moves by 2 ms from one event to the next."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        _Event.now += 2.0
        self.at = _Event.now

    def elapsed_time(self, end: _Event) -> float:
        return end.at - self.at


class _Profiler:
    """A stand-in for a profiler that has seen 40 kernels of 3 us a step, and as many calls of the host."""

    def __init__(self, activities: list[object]) -> None:
        self.ended = False

    def __enter__(self) -> _Profiler:
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = True

    def key_averages(self) -> list[SimpleNamespace]:
        assert self.ended
        kinds = [(30, DeviceType.CUDA), (10, DeviceType.CUDA), (40, DeviceType.CPU)]
        return [
            SimpleNamespace(count=20 * count, self_device_time_total=20 * count * 3.0, device_type=kind)
            for count, kind in kinds
        ]


def test_replays_of_later_epochs_are_timed_and_some_of_the_last_one_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    replays = importlib.import_module("replays")
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.profiler, "profile", _Profiler)
    replayed: list[int] = []
    monkeypatch.setattr(replays.Graphs, "_replay", lambda graphs, recorded, one: replayed.append(one.plan.clock.step))
    watched = replays.Watched(per_epoch=30, epochs=3)
    # Where the last epoch begins, and where profiling would end, steps of a new kind are not replayed.
    steps = [step for step in range(90) if step not in (60, 61, 82)]
    for step in steps:
        watched(None, None, SimpleNamespace(plan=SimpleNamespace(clock=SimpleNamespace(step=step))))
    assert replayed == steps, "every step is taken, once"
    assert len(watched.events) == 30 + 7, "neither the first epoch nor the 20 profiled steps are timed"
    found = watched.answer()
    assert found == {
        "step_ms": 2.0,
        "kernels": 40.0,
        "kernel_ms": pytest.approx(0.12),
        "between_us": pytest.approx(47.0),
    }


def test_too_few_replays_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    with pytest.raises(SystemExit, match="too few steps were recorded"):
        importlib.import_module("replays").Watched(per_epoch=30, epochs=3).answer()


@pytest.mark.slow
def test_the_benchmark_of_workers_runs(tmp_path: Path) -> None:
    small = ["--layers", "4", "--width", "64", "--examples", "64", "--epochs", "1", "--batch-size", "16"]
    command = [sys.executable, ROOT / "benchmarks" / "workers.py", "--device", "cpu", *small, "--workers", "1", "2"]
    done = subprocess.run([*command, "--json", tmp_path / "b.json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert [one["workers"] for one in found] == [1, 2]
    assert all(one["steps_per_second"] > 0 for one in found)


@pytest.mark.slow
def test_the_benchmark_of_studies_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name, value in (("STILLERY_CACHE", "off"), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(name, value)
    small = ["--cells", "4", "--by-hand", "1", "--workers", "1", "--json", str(tmp_path / "b.json")]
    monkeypatch.setattr(sys, "argv", ["study.py", *small])
    importlib.import_module("study").main()
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["cells"] == 4 and found["study_steps_per_second"] > 0
    # A further cell costs a part of a command of its own.
    assert 0 < found["further_cell_of_2_steps_cpu_seconds"] < found["by_hand_seconds_each"]


@pytest.mark.slow
def test_the_benchmark_of_models_that_write_runs_once_and_reports(tmp_path: Path) -> None:
    tokenizer = word_tokenizer("t5")
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    (tmp_path / "data" / "multi30k").mkdir(parents=True)
    texts = [f"w{row % 90} w{(row + 7) % 90} w{(row + 13) % 90}" for row in range(24)]
    for part, rows in {"train": texts[:16], "dev": texts[16:20], "test": texts[20:]}.items():
        kinds = ["new" if part == "test" and row % 2 else "old" for row in range(len(rows))]
        table = pa.table({"en": rows, "de": rows, "kind": kinds})
        pq.write_table(table, tmp_path / "data" / "multi30k" / f"{part}.parquet")
    command = [
        sys.executable, ROOT / "benchmarks" / "generation.py", "--model", tmp_path / "t5", "--task", "multi30k-en-de",
        "--data-dir", tmp_path / "data", "--methods", "kd:hard_weight=1:soft_weight=1:temperature=1,layer-random",
        "--inits", "random", "--seeds", "0,1", "--both", "max_steps=2", "batch_size=8", "max_new_tokens=4",
        "--teacher", "lr=1e-3", "--student", "lr=1e-2", "encoder_layers=1", "decoder_layers=1", "--workers", "1",
        "--out", tmp_path / "runs", "--json", tmp_path / "b.json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout
    found = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert [(row["method"].partition(":")[0], row["init"], row["seeds"]) for row in found] == [
        ("teacher", None, [0]),
        ("kd", "random", [0, 1]),
        ("layer-random", "random", [0, 1]),
    ]
    assert all(row["steps"] == 2 and row["sd"]["loss"] > 0 for row in found[1:])
    kept = (tmp_path / "runs" / "kd,hard_weight=1,soft_weight=1,temperature=1-random-0" / "run.toml").read_text()
    assert "soft_weight = 1" in kept
    # A second time nothing is left to train: it prints the same table.
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    table = done.stdout.splitlines()[-len(found) - 2 :]
    assert again.stdout.split() == "\n".join(table).split()
    more = ["--report", "--against", "kd:hard_weight=1:soft_weight=1:temperature=1", "--unseen", "kind"]
    subprocess.run([*command, *more], capture_output=True, check=True, timeout=300)
    extra = json.loads((tmp_path / "b.json").read_text())
    assert [(one["method"], one["seed"]) for one in extra["differences"]] == [("layer-random", 0), ("layer-random", 1)]
    assert [(one["run"], one["seen"], one["texts"]) for one in extra["unseen"]][:2] == [
        ("teacher-0", True, 2),
        ("teacher-0", False, 2),
    ]
    # What is not finished is left out of a report.
    (tmp_path / "runs" / "layer-random-random-1" / "metrics.json").unlink()
    report = subprocess.run([*command, "--report"], capture_output=True, text=True, timeout=300)
    assert report.returncode == 0, report.stderr
    assert [line.split(" | ")[2] for line in report.stdout.splitlines()[3:]] == ["1", "2", "1"]
