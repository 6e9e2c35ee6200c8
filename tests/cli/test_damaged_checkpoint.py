"""A checkpoint that was damaged on disk: found by its checksums, said in one line, and the one before is used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stillery.cli.main import main
from stillery.errors import UserError
from stillery.train import checkpoint

RUN = ("--method", "layer-forward", "--layers", 2, "--width", 16, "--heads", 2, "--cache", "off", "--max-length", 16,
       "--max-steps", 9, "--batch-size", 8, "--checkpoint-every", 3, "--eval-every", 3, "--lr", 1e-3)  # fmt: skip


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def runs(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run as it ends undisturbed, and the same run stopped after its second checkpoint, at step 6."""
    place = tmp_path_factory.mktemp("damaged")
    whole, stopped = place / "whole", place / "stopped"
    asked = ("distill", "--teacher", tiny_teacher, "--data", reviews, *RUN)
    assert run(*asked, "--out", whole) == 0
    save = checkpoint.save

    def save_and_stop(*given: object) -> None:
        save(*given)  # type: ignore[arg-type]
        if given[-1].step == 6:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert run(*asked, "--out", stopped) == 130
    return whole, stopped


@pytest.fixture
def stopped(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(runs[1], tmp_path / "run")


def flip(file: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def best_of(out: Path) -> Path:
    """The best weights that the last checkpoint needs."""
    return out / "checkpoints" / f"best-{checkpoint.read_progress(out).best_step}"


def same_as(out: Path, whole: Path) -> bool:
    ours, theirs = (load_file(one / "model.safetensors") for one in (out, whole))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_two_checkpoints_are_kept(stopped: Path) -> None:
    places = sorted(place.name for place in (stopped / "checkpoints").iterdir())
    assert [name for name in places if name.startswith("step-")] == ["step-3", "step-6"]
    assert not any(name.startswith(".") for name in places)


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("weights.safetensors", flip, "weights.safetensors does not match its checksum"),
        ("optimiser.safetensors", Path.unlink, "optimiser.safetensors is missing"),
    ],
    ids=["a flipped bit", "a missing file"],
)
def test_the_one_before_is_used_and_the_run_ends_the_same(
    command, runs: tuple[Path, Path], stopped: Path, file: str, damage: Callable[[Path], None], said: str
) -> None:
    place = stopped / "checkpoints" / "step-6"
    damage(place / file)
    done = command("distill", "--resume", "--out", stopped)
    assert done.code == 0, done.err
    assert [line for line in done.err.splitlines() if "damaged" in line] == [
        f"{place}: damaged ({said}); the run continues from step 3"
    ]
    assert same_as(stopped, runs[0]) and not (stopped / "checkpoints").exists()
    steps = [json.loads(line)["step"] for line in (stopped / "log.jsonl").read_text().splitlines()]
    assert steps == [json.loads(line)["step"] for line in (runs[0] / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flipped", "cut", "missing"])
@pytest.mark.parametrize("file", ["weights.safetensors", "optimiser.safetensors", "state.json", "checksums.json"])
def test_every_damage_of_every_file_is_found(
    stopped: Path, capsys: pytest.CaptureFixture[str], file: str, damage: Callable[[Path], None]
) -> None:
    damage(stopped / "checkpoints" / "step-6" / file)
    checkpoint.drop_damaged(stopped, keep_best=True)
    said = capsys.readouterr().err
    assert file in said and said.endswith("; the run continues from step 3\n") and said.count("\n") == 1
    assert checkpoint.read_progress(stopped).step == 3
    # The same again to the only one left: then there is nothing to continue from, and nothing is removed.
    damage(stopped / "checkpoints" / "step-3" / file)
    with pytest.raises(UserError, match="there is no earlier checkpoint: start again with --overwrite"):
        checkpoint.drop_damaged(stopped, keep_best=True)
    assert (stopped / "checkpoints" / "step-3").is_dir()


def test_damaged_best_weights_are_found(command, stopped: Path) -> None:
    best = best_of(stopped)
    flip(best / "weights.safetensors")
    done = command("distill", "--resume", "--out", stopped)
    lines = [line for line in done.err.splitlines() if best.name in line]
    assert len(lines) == 1 and "weights.safetensors does not match its checksum" in lines[0]
    # The earlier checkpoint may need the same weights.
    assert done.code == (2 if best.name == "best-3" else 0) and "Traceback" not in done.err


def without_checksums(out: Path) -> Path:
    """Make the checkpoints as an earlier version wrote them; return the last one."""
    for place in list((out / "checkpoints").iterdir()):
        if not place.is_dir():
            place.unlink()
            continue
        (place / "checksums.json").unlink()
        if place.name.startswith("best-"):
            (place / "weights.safetensors").rename(place.with_name(f"{place.name}.safetensors"))
            place.rmdir()
        else:
            values = json.loads((place / "state.json").read_text())
            del values["checksums"]
            (place / "state.json").write_text(json.dumps(values))
    return out / "checkpoints" / "step-6"


def test_a_run_of_an_earlier_version_goes_on(command, runs: tuple[Path, Path], stopped: Path) -> None:
    without_checksums(stopped)
    done = command("distill", "--resume", "--out", stopped)
    assert done.code == 0 and "damaged" not in done.err, done.err
    assert same_as(stopped, runs[0])


@pytest.mark.parametrize(
    "change", [{"step": 5}, {"step": "six"}, {"step": True}, {"best": 3}, {"warnings": None}, {"unknown": 1}], ids=str
)
def test_an_edited_state_is_refused_without_checksums_too(stopped: Path, capsys, change: dict[str, object]) -> None:
    place = without_checksums(stopped)
    values = json.loads((place / "state.json").read_text())
    (place / "state.json").write_text(json.dumps(values | change))
    checkpoint.drop_damaged(stopped, keep_best=True)
    said = capsys.readouterr().err
    assert "state.json" in said and next(iter(change)) in said and "from step 3" in said


@pytest.mark.parametrize("wrong", ["shape", "field", "number format"])
def test_optimiser_tensors_of_others_are_refused(command, stopped: Path, wrong: str) -> None:
    """Training with them ended in a segmentation fault."""
    file = without_checksums(stopped) / "optimiser.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("/exp_avg") and tensors[name].dim() == 2)
    value = tensors.pop(name)
    made = {"shape": value[:1], "field": value, "number format": value.long()}[wrong]
    save_file(tensors | {name.replace("exp_avg", "max") if wrong == "field" else name: made.contiguous()}, file)
    done = command("distill", "--resume", "--out", stopped)
    assert done.code == 2 and f"stillery: {file}: this checkpoint is of another model" in done.err, done.err
