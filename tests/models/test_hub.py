"""Models of the hub: asked for once, read from the cache without it, and given up on when it does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hub_server import serving, stalled

from stillery import hub
from stillery.models.hub import is_hub_name

READ = """
import sys
from stillery.errors import UserError
from stillery.models.hub import fetch_weights
from stillery.models.model_folder import model_folder
for name in sys.argv[1:]:
    try:
        folder = model_folder(name)
        fetch_weights(name)
    except UserError as error:
        print(*error.lines, sep="|")
    else:
        import os
        print(*sorted(os.listdir(folder)))
assert "torch" not in sys.modules
"""


def read(home: Path, *names: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Look for models in a process of its own, with a cache in `home`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", READ, *names], capture_output=True, text=True, cwd=home, timeout=120,
        env=clean | {"HF_HOME": str(home / "hf")} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_a_model_is_asked_for_once_and_then_read_from_the_cache(tiny_teacher: Path, tmp_path: Path) -> None:
    name, held = "someone/tiny", {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    with serving({name: tiny_teacher}) as (url, asked):
        done = read(tmp_path, name, name, "someone/else", HF_ENDPOINT=url)
        first, second, other = done.stdout.splitlines()
        assert held <= set(first.split()) and second == first
        assert other.startswith("someone/else: no such folder, and no model of that name on the hub")
        assert done.stderr.count("asking the hub for someone/tiny\n") == 1
        assert sum(line == "HEAD /" for line in asked) == 1
        assert sum(line.endswith("/resolve/main/config.json") for line in asked if name in line) <= 2
    done = read(tmp_path, name, HF_ENDPOINT=url)
    assert done.stdout == f"{first}\n"
    assert done.stderr.endswith("someone/tiny: the hub cannot be reached; taken from the local cache\n")
    done = read(tmp_path, name, "someone/else", HF_HUB_OFFLINE="1")
    assert done.stdout.splitlines()[0] == first and "HF_HUB_OFFLINE is set" in done.stdout.splitlines()[1]
    assert done.stderr == ""


def test_a_hub_that_never_answers_ends_soon_for_all_models_together(tmp_path: Path) -> None:
    names = ("someone/one", "someone/two", "someone/three")
    with stalled() as url:
        began = time.monotonic()
        done = read(tmp_path, *names, HF_ENDPOINT=url)
    assert time.monotonic() - began < 15
    assert done.stderr == "asking the hub for someone/one\n"
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        assert line == (
            f"{name}: no such folder, and no model of that name in the local cache; the hub does not answer: give a "
            "folder, or connect and try again"
        )


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that answers, at first; nothing is remembered of it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_asked", {})
    monkeypatch.setattr(hub, "_answers", lambda endpoint: None)


@pytest.mark.usefixtures("answering")
def test_a_request_that_hangs_is_given_up_and_not_made_again() -> None:
    hanging = threading.Event()
    for waited in (0.3, 0.0):
        began = time.monotonic()
        with pytest.raises(hub.NoAnswer, match="the hub does not answer"):
            hub.ask(hanging.wait, patience=0.3)
        assert waited <= time.monotonic() - began < waited + 5
    hanging.set()


@pytest.mark.usefixtures("answering")
def test_a_slow_download_is_waited_for_while_it_grows(tmp_path: Path) -> None:
    def download() -> str:
        with (tmp_path / "weights").open("wb", buffering=0) as file:
            for _ in range(8):
                file.write(b"some")
                time.sleep(0.15)
        return "done"

    assert hub.ask(download, growing=tmp_path, patience=0.6) == "done"


@pytest.mark.parametrize(
    "name",
    ["teacher", "runs/small", "out-2/teacher", "checkpoint-60", "a/b/c", "./x", "x/", "bert.bin", "two words", "a--b"],
)
def test_a_path_is_no_name_of_the_hub(name: str) -> None:
    assert not is_hub_name(name)


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "google-t5/t5-small", "facebook/opt-1.3b", "a_b/C.d"])
def test_names_of_the_hub(name: str) -> None:
    assert is_hub_name(name)
