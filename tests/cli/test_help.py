"""What the command line says about itself, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

DATA = ("data", "task", "text", "text-pair", "label", "max-length")
TRAINING = {
    "epochs": "5",
    "max-steps": None,
    "batch-size": "32",
    "accumulate": "1",
    "lr": "5e-05",
    "warmup": "0.1",
    "weight-decay": "0.01",
    "precision": "auto",
    "eval-every": "once per epoch",
    "checkpoint-every": "500",
    "keep": "best",
    "patience": "never",
    "seed": "0",
}
STUDENT = (
    "method",
    "layers",
    "width",
    "heads",
    "init",
    "copy-layers",
    "init-from",
    "head",
    "reuse",
    "projector",
    "allow-custom-head",
    "hard-weight",
    "temperature",
)
COMMANDS = {
    "demo": ("fast", "out"),
    "finetune": ("model", *DATA, *TRAINING, "resume", "config", "out"),
    "distill": ("teacher", *DATA, *TRAINING, *STUDENT, "resume", "config", "out"),
    "evaluate": (*DATA, "against", "json"),
    "compare": ("baseline", "metric", "out", "json"),
    "report": ("out", "overwrite", "serve", "port"),
    "predict": ("data", "out", "text", "text-pair", "max-length", "batch-size"),
    "export": (
        "onnx",
        "int8",
        "out",
        *DATA,
        "min-agreement",
        "min-agreement-int8",
        "force",
        "overwrite",
        "push-to-hub",
    ),
    "methods": ("json",),
    "pairs": ("method", "teacher-layers", "layers", "epoch", "seed", "json"),
    "layers": ("json",),
    "study": ("out", "dry-run", "only", "workers", "retry-failed"),
    "shrink": (
        "teacher",
        "model",
        "within",
        "max-params",
        "max-latency",
        "layers",
        "widths",
        "inits",
        "every",
        "dry-run",
        "out",
    ),
    "check": (),
    "cache": ("json",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_every_option(command, name):
    done = command(name, "--help")
    assert done.code == 0 and done.err == ""
    for option in COMMANDS[name]:
        assert re.search(rf"^  --{option}\b", done.out, re.MULTILINE), option


@pytest.mark.parametrize("name", ["finetune", "distill"])
def test_help_prints_the_defaults(command, name):
    said = " ".join(command(name, "--help").out.split())
    for option, default in TRAINING.items():
        entry = re.split(r" --(?=[a-z-]+ [<a-z])", said.split(f" --{option} ", 1)[1])[0]
        assert default is None or f"[default: {default}]" in entry, (option, entry)


@pytest.mark.parametrize(("name", "model"), [("evaluate", "model"), ("distill", "teacher"), ("finetune", "model")])
def test_help_says_that_a_run_decides_how_texts_are_read(command, name, model):
    said = " ".join(command(name, "--help").out.split())
    for option, default in (("max-length", "128"), ("max-target-length", "128"), ("prompt", "the source and a line")):
        entry = said.split(f" --{option} ", 1)[1].split(" --", 1)[0]
        as_trained = rf"\[default: as the {model} was trained, else {default}"
        assert re.search(as_trained, entry), entry
    assert f" [default: as the {model} was trained" in said.split(" --prefix ", 1)[1].split(" --", 1)[0]
    asked = "as in the model's run, else 4" if name == "evaluate" else "4"
    assert f"[default: {asked}]" in said.split(" --beams ", 1)[1].split(" --", 1)[0]


def test_help_lists_every_command(command):
    for done in (command("--help"), command()):
        assert done.code == 0
        assert all(re.search(rf"^  {name} ", done.out, re.MULTILINE) for name in COMMANDS)


def test_version(command):
    assert command("--version").out == f"stillery {version('stillery')}\n"


def test_the_installed_command_and_the_module(stillery):
    done = stillery("pairs", "--method", "layer-forward", "--teacher-layers", 12, "--layers", 3, "--json")
    assert done.returncode == 0 and "".join(done.stdout.split()) == "[[0,0],[1,4],[2,8],[3,12]]"
    done = stillery("distill", "--epochs")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def test_a_model_that_is_nowhere_is_one_line(stillery, reviews):
    done = stillery("evaluate", "no-such-model", "--data", reviews, HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stillery: no-such-model: no such folder") and done.stderr.count("\n") == 1


def test_help_loads_no_model_library():
    code = "import sys; from stillery.cli.main import main\ntry: main(['distill', '--help'])\nexcept SystemExit: pass\n"
    code += "print([name for name in ('torch', 'transformers', 'pyarrow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupted_run_says_how_to_go_on(tiny_teacher, reviews, tmp_path):
    out = tmp_path / "run"
    arguments = ["distill", "--teacher", tiny_teacher, "--data", reviews, "--layers", 2, "--batch-size", 8]
    arguments += ["--epochs", 9999, "--checkpoint-every", 1, "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-m", "stillery", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in the background deaf to Ctrl-C, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until = time.monotonic() + 240
        while not list(out.glob("checkpoints/step-*")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert stdout == "" and "Traceback" not in stderr
    ended = r"stillery: interrupted at step \d+, which is saved; the run in (.*) continues with --resume"
    assert re.fullmatch(ended, stderr.splitlines()[-1])[1] == str(out)
    assert not (out / "metrics.json").exists() and (out / "run.toml").is_file()


def test_a_reader_that_goes_away_is_no_error():
    code = "from stillery.cli.main import main; main(['methods', '--json'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=60) != 0 and said == ""
    process.stderr.close()
