"""The log as trackers get it: TensorBoard for real, the others as packages that write down what they are asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STOPS = (
    "import os, sys\nfrom stillery.train.log import RunLog\nwrite = RunLog.write\n"
    "def stop(log, event, step, **values):\n    write(log, event, step, **values)\n"
    "    if (event, step) == ('train', {step}):\n        os._exit(9)\n"
    "RunLog.write = stop\nfrom stillery.cli.main import main\nmain(sys.argv[1:])"
)

RECORDER = """
import json, os

def tell(what, **values):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps({"tracker": __name__.partition(".")[0], "what": what, **values}) + "\\n")
    if what in ("init", "finish"):
        print("a word of the tracker's own")
    if os.environ.get("FAILS") == what:
        raise ConnectionError("nobody\\nanswers")
"""

PACKAGES = {
    "wandb": """
class Config:
    def update(self, values, allow_val_change=False):
        tell("config", values=values)

class Run:
    def log(self, values, step=None):
        tell("log", values=values, step=step)
    def finish(self):
        tell("finish")

def init(**given):
    tell("init", **given)
    return Run()

config = Config()
""",
    "mlflow": """
from types import SimpleNamespace

utils = SimpleNamespace(validation=SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=10))

def search_experiments(filter_string):
    return []

def create_experiment(name, artifact_location, tags):
    return name

def start_run(run_id, experiment_id, run_name, nested, tags, description):
    tell("init", project=experiment_id, name=run_name, id=run_id)
    return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "run-1"))

def log_params(values):
    tell("config", values=values)

def log_metrics(values, step):
    tell("log", values=values, step=step)

def end_run():
    tell("finish")
""",
}
PACKAGES["trackio"] = PACKAGES["wandb"]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for wandb, mlflow and trackio on the path of new processes; the file of what they were told."""
    for name, code in PACKAGES.items():
        folder = tmp_path / "packages" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(RECORDER + code)
        about = folder.with_name(f"{name}-1.0.dist-info")
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    paths = [str(tmp_path / "packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("TOLD", str(tmp_path / "told.jsonl"))
    return tmp_path / "told.jsonl"


@pytest.fixture
def asked(tiny_teacher: Path, reviews: Path) -> list[str]:
    given = ("distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--batch-size", 8, "--max-steps",
             6, "--checkpoint-every", 2, "--eval-every", 3, "--log-every", 1, "--cache", "off")  # fmt: skip
    return [str(one) for one in given]


def start(*arguments: object, killed_at: int | None = None) -> subprocess.CompletedProcess[str]:
    how = ("-m", "stillery") if killed_at is None else ("-c", STOPS.replace("{step}", str(killed_at)))
    return subprocess.run([sys.executable, *how, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def logged(out: Path) -> list[tuple[str, int, float]]:
    """Every number of log.jsonl that is the same in every run: name, step and value."""
    found = []
    for line in (out / "log.jsonl").read_text().splitlines():
        event = json.loads(line)
        numbers = event.get("terms", {}) | event.get("metrics", {})
        inner = "terms" if "terms" in event else "metrics"
        found += [(f"{event['event']}/{inner}/{name}", event["step"], value) for name, value in numbers.items()]
    return found


def shown(out: Path) -> list[tuple[str, int, float]]:
    """The same of TensorBoard's events."""
    board = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in board.Tags()["scalars"] if "/terms/" in tag or "/metrics/" in tag]
    return [(tag, one.step, one.value) for tag in tags for one in board.Scalars(tag)]


def close(found: list[tuple[str, int, float]], wanted: list[tuple[str, int, float]]) -> bool:
    """Whether both hold the same numbers, each once; TensorBoard keeps them in single precision."""
    if Counter(one[:2] for one in found) != Counter(one[:2] for one in wanted):
        return False
    return all(one[2] == pytest.approx(other[2], rel=1e-6) for one, other in zip(sorted(found), sorted(wanted)))  # noqa: B905


@pytest.mark.parametrize("option", [("--track", "tensorboard"), ("--tensorboard",)])
def test_tensorboard_has_what_the_log_has(option: tuple[str, ...], asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = start(*asked, *option, "--out", out)
    assert done.returncode == 0, done.stderr
    assert len(logged(out)) > 12 and close(shown(out), logged(out))
    assert {path.name for path in out.iterdir()} == {
        "README.md", "config.json", "log.jsonl", "metrics.json", "model.safetensors", "predictions.parquet", "run.toml",
        "tensorboard", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip


def test_tensorboard_has_no_step_twice_nor_loses_one_when_a_run_goes_on(asked: list[str], tmp_path: Path) -> None:
    out, given = tmp_path / "run", (*asked, "--track", "tensorboard")
    assert start(*given, "--out", out, killed_at=5).returncode == 9
    assert {step for _, step, _ in shown(out)} == {1, 2, 3, 4, 5}
    done = start("distill", "--resume", "--out", out)
    assert done.returncode == 0, done.stderr
    assert len(list((out / "tensorboard").glob("events*"))) == 2
    assert {step for _, step, _ in logged(out)} == {1, 2, 3, 4, 5, 6} and close(shown(out), logged(out))


def told(file: Path) -> dict[str, list[dict[str, Any]]]:
    """What each package was told."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        found.setdefault(line["tracker"], []).append(line)
    return found


@pytest.mark.slow
def test_other_trackers_get_the_settings_once_and_no_step_twice(
    packages: Path, asked: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "small"
    given = (*asked, "--track", "wandb, mlflow,trackio", "--tensorboard", "--out", out)
    assert start(*given, killed_at=5).returncode == 9
    # A run that continues may be killed again, before it is as far as the first time.
    code = start("distill", "--resume", "--out", out, killed_at=5).returncode
    assert code == 9
    done = start("distill", "--resume", "--out", out)
    assert done.returncode == 0, done.stderr
    # Standard output is for results.
    assert "a word of the tracker's own" in done.stderr and "a word" not in done.stdout
    found = told(packages)
    assert found.keys() == {"wandb", "mlflow", "trackio"}
    for name, lines in found.items():
        what = [line["what"] for line in lines]
        assert what.count("init") == 3 and what.count("finish") == 1 and what[-1] == "finish", name
        configs = [line["values"] for line in lines if line["what"] == "config"]
        assert what.index("log") > max(index for index, one in enumerate(what) if one == "config")
        settings = {key: value for values in configs for key, value in values.items()}
        assert len(settings) == sum(map(len, configs)), "each setting once"
        assert (settings["teacher"], settings["data"]) == ("tiny-teacher", "reviews.csv")
        assert (settings["layers"], settings["options.normalise"]) == (2, "none")
        sent = [(key, line["step"], value) for line in lines if line["what"] == "log"
                for key, value in line["values"].items() if "/terms/" in key or "/metrics/" in key]  # fmt: skip
        assert close(sent, logged(out)), name
        steps = [line["step"] for line in lines if line["what"] == "log"]
        assert steps == sorted(steps), "no tracker has to go back"
    begun = {name: [line for line in lines if line["what"] == "init"] for name, lines in found.items()}
    assert {line["project"] for lines in begun.values() for line in lines} == {"stillery"}
    assert [line["id"] for line in begun["mlflow"]] == [None, "run-1", "run-1"]
    for name, key in (("wandb", "id"), ("trackio", "name")):
        (one,) = {line[key] for line in begun[name]}
        assert one.startswith("small-") and {line["resume"] for line in begun[name]} == {"allow"}
    assert close(shown(out), logged(out))
    assert str(tmp_path) not in (out / "trackers.json").read_text()


def test_a_tracker_that_is_gone_ends_no_run(
    packages: Path, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "log")
    done = start(*asked, "--track", "wandb,tensorboard", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    line = "warning: wandb gets no more of the log (ConnectionError: nobody answers); log.jsonl continues"
    assert done.stderr.count(line) == 1
    assert [one["what"] for one in told(packages)["wandb"]].count("log") == 1
    assert close(shown(tmp_path / "run"), logged(tmp_path / "run"))


def test_a_tracker_that_cannot_start_is_one_line(
    packages: Path, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "init")
    done = start(*asked, "--track", "mlflow", "--out", tmp_path / "run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    line = "stillery: --track mlflow: cannot start (ConnectionError: nobody answers)"
    assert done.stderr.splitlines()[-1] == line


def test_trackers_that_are_not_there_are_said_before_anything_else(asked: list[str], tmp_path: Path) -> None:
    done = start(*asked, "--track", "wand,tensorbord,trackio", "--lr", 0, "--out", tmp_path / "run")
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert set(done.stderr.splitlines()) >= {
        "stillery: --track wand: no such tracker: did you mean 'wandb'?",
        "stillery: --track tensorbord: no such tracker: did you mean 'tensorboard'?",
        'stillery: trackio is not installed: pip install "stillery[trackio]"',
    }
    assert "--lr is 0.0" in done.stderr


@pytest.mark.slow
def test_a_run_file_of_before_still_runs(asked: list[str], tmp_path: Path) -> None:
    assert start(*asked, "--out", tmp_path / "run").returncode == 0
    file = tmp_path / "run" / "run.toml"
    older = file.read_text().replace("tensorboard = false", "tensorboard = true")
    assert older != file.read_text() and "track =" not in older
    (tmp_path / "run" / "older.toml").write_text(older)
    done = start("distill", "--config", tmp_path / "run" / "older.toml", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert close(shown(tmp_path / "again"), logged(tmp_path / "run"))


def test_one_of_two_processes_writes(packages: Path, asked: list[str], tmp_path: Path) -> None:
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "stillery")
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, *two, *asked, "--track", "wandb,tensorboard", "--out", str(out)],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert [one["what"] for one in told(packages)["wandb"]].count("init") == 1
    assert len(list((out / "tensorboard").glob("events*"))) == 1 and close(shown(out), logged(out))
    assert (out / "metrics.json").is_file()
