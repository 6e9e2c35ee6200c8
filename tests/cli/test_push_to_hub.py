"""`--push-to-hub`: what is uploaded, and what is refused before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import serving

TRAIN = ("finetune", "--model", "TEACHER", "--data", "REVIEWS", "--max-steps", "2", "--batch-size", "4")


def run(home: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which reads the hub's address when it starts."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-m", "stillery", *map(str, arguments)], capture_output=True, text=True, timeout=200,
        cwd=home, env=clean | {"HF_HOME": str(home / "hf"), "HF_HUB_DISABLE_XET": "1"} | environment,
    )  # fmt: skip


def test_a_run_is_uploaded_without_its_data(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    uploads: dict[str, dict[str, bytes]] = {}
    line = [{"TEACHER": tiny_teacher, "REVIEWS": reviews}.get(word, word) for word in TRAIN]
    with serving({}, uploads) as (url, _):
        done = run(tmp_path, *line, "--out", "run", "--push-to-hub", "small", HF_ENDPOINT=url, HF_TOKEN="hf_given")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "run.toml").is_file()
    assert "uploaded to" in done.stderr and "someone/small" in done.stderr
    sent = uploads["someone/small"]
    model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert set(sent) - {".gitattributes"} == model
    assert sent["model.safetensors"] == (tmp_path / "run" / "model.safetensors").read_bytes()
    assert b"# Fine-tuned classifier" in sent["README.md"]


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        ("small", {"HF_HUB_OFFLINE": "1"}, "--push-to-hub small: HF_HUB_OFFLINE is set"),
        ("small", {}, "--push-to-hub small: not logged in"),
        ("a/b/c", {}, "--push-to-hub a/b/c: not a name of the hub"),
    ],
)
def test_what_cannot_be_uploaded_is_refused_first(
    name: str, environment: dict[str, str], said: str, tiny_teacher: Path, reviews: Path, tmp_path: Path
) -> None:
    line = [{"TEACHER": tiny_teacher, "REVIEWS": reviews}.get(word, word) for word in TRAIN]
    with serving({}) as (url, _):
        done = run(tmp_path, *line, "--out", "run", "--push-to-hub", name, HF_ENDPOINT=url, **environment)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()
