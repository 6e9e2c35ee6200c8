"""Data files, run files and plans from somebody else: one line within seconds, and no code but what is named."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

MB = 2**20
MARK = "code-was-here"


def packed(unit: bytes, count: int = 70) -> Callable[[Path], None]:
    """A gz file of a few hundred kilobytes that unpacks to `count` times the unit."""

    def write(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(count):
                file.write(unit)

    return write


def repeated(unit: bytes, count: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            for _ in range(count):
                file.write(unit)

    return write


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


DATA: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe.csv": (os.mkfifo, "a named pipe, not a file"),
    "pipe.parquet": (os.mkfifo, "a named pipe, not a file"),
    "pipe.xlsx": (os.mkfifo, "a named pipe, not a file"),
    "device.jsonl": (lambda path: path.symlink_to("/dev/zero"), "a device, not a file"),
    "lines.csv.gz": (packed(b"\n" * MB), "unpacks to more than 200 times its size; if that is right, unpack it first"),
    "rows.csv.gz": (packed(b"a film,positive\n" * (MB // 16)), "unpacks to more than 200 times its size"),
    "lines.jsonl.gz": (packed(b"\n" * MB), "unpacks to more than 200 times its size"),
    "line.txt.gz": (packed(b"x" * MB), "a line of more than 32 MB"),
    "line.csv": (repeated(b"a long film, " * 80_000, 40), "a line of more than 32 MB; write one example per line"),
    "line.jsonl": (repeated(b'{"text": ' * 100_000, 40), "a line of more than 32 MB"),
    "nested.json": (repeated(b"[" * MB, 20), "nested too deeply"),
}
TOML: dict[str, tuple[str, str]] = {
    "nested lists": (f"a = {'[' * 3000}{']' * 3000}", "nested too deeply"),
    "nested tables": (f"[{'a.' * 3000}a]\n", "nested too deeply"),
    "dotted key": (f"{'a.' * 3000}a = 1\n", "nested too deeply"),
    "5,000 digits": (f"seed = {'9' * 5000}\n", "a number of too many digits"),
    "hexadecimal": (f"seed = 0x{'f' * 40}\n", "an integer of more than 64 bits"),
    "100,000 keys": ("".join(f"k{number} = 1\n" for number in range(80_000)), "more than 10,000 values"),
    "a million keys": ("".join(f"k{number} = 1\n" for number in range(10**6)), "larger than 1 MB"),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", DATA)
def test_a_hostile_data_file_is_refused_in_one_line(name: str, tiny_teacher: Path, command) -> None:
    write, words = DATA[name]
    write(Path(name))
    before = time.monotonic()
    done = command("finetune", "--model", tiny_teacher, "--data", name, "--out", "new")
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert done.err.startswith(f"stillery: {name}") and words in done.err
    assert time.monotonic() - before < 20
    assert not Path("new").exists()


def test_a_link_to_a_data_file_is_followed_and_a_pipe_in_a_folder_is_not_read(
    reviews: Path, tiny_teacher: Path, command
) -> None:
    Path("data").mkdir()
    Path("data/test.csv").symlink_to(reviews)
    os.mkfifo("data/other.csv")
    assert command("evaluate", tiny_teacher, "--data", "data").code == 0


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize(
    "words", ["distill --config evil.toml --out new", "study evil.toml --out new", "check evil.toml"]
)
def test_a_hostile_run_file_or_plan_is_refused_in_one_line(name: str, words: str, command) -> None:
    content, said = TOML[name]
    Path("evil.toml").write_text(content)
    before = time.monotonic()
    done = command(*words.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("stillery: evil.toml: not a TOML file: ") and said in done.err
    assert done.err.count("\n") == 1
    assert time.monotonic() - before < 20
    assert not Path("new").exists()


RECIPE = f"""
from stillery import methods
open({MARK!r}, "w").close()
def build():
    return methods.build("kd", {{}})
"""


def test_a_plan_starts_no_code_without_the_same_words_on_the_command_line(
    reviews: Path, tiny_teacher: Path, command
) -> None:
    Path("mine.py").write_text(RECIPE)
    Path("plan.toml").write_text(
        f"tasks = [{str(reviews)!r}]\nseeds = [0]\n[teacher]\nmodel = {str(tiny_teacher)!r}\n[student]\nlayers = 2\n"
        '[methods.mine]\nrecipe = "mine.py:build"\n'
    )
    for more in ([], ["--dry-run", "--recipe", "other.py:build"]):
        done = command("study", "plan.toml", "--out", "new", *more)
        assert done.code == 2 and done.err == (
            "stillery: plan.toml:8: a plan may not start code; if you trust it, pass --recipe mine.py:build\n"
        )
        assert not Path(MARK).exists() and not Path("new").exists()
    done = command("study", "plan.toml", "--out", "new", "--dry-run", "--recipe", "mine.py:build")
    assert done.code == 0, done.err
    assert Path(MARK).exists()
