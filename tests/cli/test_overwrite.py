"""Earlier outputs are replaced where --overwrite says so: never by default, never what is no output of stillery."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import stillery
from stillery.errors import UserError
from stillery.jobs.run_folder import model_files


def listing(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def earlier(tiny_teacher: Path, reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("earlier") / "run"
    stillery.distill(teacher=tiny_teacher, data=reviews, layers=1, max_steps=1, method="kd", out=out)
    return out


@pytest.fixture
def run(earlier: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(earlier, tmp_path / "run"))


@pytest.fixture
def distil(command, tiny_teacher, reviews):
    def distil(out: Path, *more: object, teacher: Path = tiny_teacher):
        options = ("--layers", 2, "--max-steps", 1, "--method", "kd", "--overwrite")
        return command("distill", "--teacher", teacher, "--data", reviews, "--out", out, *options, *more)

    return distil


def test_a_run_is_replaced_and_its_run_file_does_not_say_so(command, run, distil, tmp_path):
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "best-1.safetensors").write_text("of the earlier run")
    # As XLM-R and CamemBERT have it.
    (run / "sentencepiece.bpe.model").write_text("of the earlier run")
    done = distil(run)
    assert done.code == 0, done.err
    text = (run / "run.toml").read_text()
    assert "layers = 2" in text and "overwrite" not in text and not (run / "checkpoints").exists()
    weights = (run / "model.safetensors").read_bytes()
    # The same run as one that replaced nothing: another one like it is this run already.
    done = command("distill", "--config", run / "run.toml", "--out", run)
    assert done.code == 2 and "holds this run already, finished: read it with --resume" in done.err
    assert done.err.endswith("or --overwrite\n")
    done = distil(run)
    assert done.code == 0 and (run / "model.safetensors").read_bytes() == weights
    assert distil(tmp_path / "new").code == 0


def test_an_earlier_run_stays_until_everything_is_checked(run, distil, tmp_path):
    before = listing(run)
    for options, words in (
        (("--layers", 9), "--layers 9"),
        (("--text", "txt"), "'txt'"),
        (("--resume",), "--overwrite starts again and --resume continues: give one"),
    ):
        done = distil(run, *options)
        assert done.code == 2 and words in done.err
        assert listing(run) == before
    inside = run / "given"
    inside.mkdir()
    for path in model_files(run):
        shutil.copy(path, inside)
    done = distil(run, teacher=inside)
    assert done.code == 2
    assert done.err == f"stillery: --out {run} is not overwritten, for --teacher is in it: give another folder\n"
    done = distil(run, teacher=run)
    assert done.code == 2 and "for --teacher is in it" in done.err
    assert all(path in listing(run) for path in before)


@pytest.mark.parametrize("kept", ["notes.txt", "thesis/chapter.txt", "student/run.toml"])
def test_a_folder_with_more_than_a_run_is_never_removed(run, distil, kept):
    (run / kept).parent.mkdir(exist_ok=True)
    (run / kept).write_text("years of work")
    before = listing(run)
    done = distil(run)
    assert done.code == 2 and len(done.err.splitlines()) == 1
    assert f"is not overwritten, for it holds more than a run ({Path(kept).parts[0]})" in done.err
    assert listing(run) == before


def test_what_is_no_run_is_never_removed(distil, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "metrics.json").write_text("{}")
    done = distil(folder)
    assert done.code == 2 and done.err == (
        f"stillery: --out {folder} is not empty and holds no run: give another folder\n"
    )
    # A run file by hand does not make a run of it.
    (folder / "run.toml").write_text('job = "distill"\nteacher = "t"\ndata = "d.csv"\n')
    done = distil(folder)
    assert done.code == 2 and "its run.toml was not written by a run, so it is not overwritten" in done.err
    assert len(listing(folder)) == 2


def test_stopped_before_it_begins_the_earlier_run_is_as_it_was(run, distil, monkeypatch):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = listing(run)
    monkeypatch.setattr("stillery.jobs.run.tokenised", stopped)
    done = distil(run)
    assert done.code == 130 and done.err.endswith(f"stillery: interrupted; the earlier run in {run} is as it was\n")
    assert listing(run) == before


def test_restarts_replace_a_run_too(command, run, tiny_teacher, reviews):
    done = command(
        *("finetune", "--model", tiny_teacher, "--data", reviews, "--max-steps", 1, "--restarts", 1),
        *("--out", run, "--overwrite"),
    )
    assert done.code == 0, done.err
    assert 'job = "finetune"' in (run / "run.toml").read_text() and (run / "seed-0").is_dir()


def test_files_of_predictions_are_replaced_on_request_only(command, tiny_teacher, reviews, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("years of work")
    for line, option in (
        (("predict", tiny_teacher, "--data", reviews, "--out", out), "--out"),
        (("evaluate", tiny_teacher, "--data", reviews, "--predictions", out), "--predictions"),
        (("tasks", "synth", "--from", reviews, "--size", 5, "--out", out), "--out"),
    ):
        done = command(*line)
        assert done.code == 2
        assert done.err == (
            f"stillery: {option}: {out} is there already: give another name, or --overwrite to replace it\n"
        )
        assert out.read_text() == "years of work"
        done = command(*line, "--overwrite")
        assert done.code == 0, done.err
        assert out.read_text() != "years of work" and list(tmp_path.iterdir()) == [out]
        out.write_text("years of work")


def test_a_failure_on_the_way_leaves_what_was_there(command, tiny_teacher, reviews, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("years of work")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stillery.data.readers.writer.Writer.write", full)
    done = command("predict", tiny_teacher, "--data", reviews, "--out", out, "--overwrite")
    assert done.code == 2 and out.read_text() == "years of work" and list(tmp_path.iterdir()) == [out]


def test_overwrite_in_python(run, tiny_teacher, reviews):
    asked = {"teacher": tiny_teacher, "data": reviews, "layers": 2, "max_steps": 1, "out": run}
    with pytest.raises(UserError, match="holds another run"):
        stillery.distill(**asked)
    with pytest.raises(UserError, match="--overwrite starts again and --resume continues"):
        stillery.distill(**asked, overwrite=True, resume=True)
    result = stillery.distill(**asked, overwrite=True)
    assert result.metrics["training"]["steps"] == 1
    predictions = run.parent / "new.csv"
    assert stillery.predict(result, data=reviews, out=predictions) == 160
    with pytest.raises(UserError, match="is there already"):
        stillery.predict(result, data=reviews, out=predictions)
    assert stillery.predict(result, data=reviews, out=predictions, overwrite=True) == 160
