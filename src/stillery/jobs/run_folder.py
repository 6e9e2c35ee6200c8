"""Run folders: made for one run, resumed by the same run, and overwritten only with `--overwrite`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillery.atomic import atomic_file, is_part, remove_leftovers, remove_whole
from stillery.errors import UserError
from stillery.jobs.config.changed import changed_inputs, input_in_words
from stillery.jobs.config.run_file import AS_IT_BEGAN, machine_toml, read_toml, to_toml, values_of
from stillery.jobs.config.run_paths import ELSEWHERE, MACHINE, comparable, machine_paths
from stillery.jobs.config.settings import GROUPS, Distill, Finetune, SearchSettings, setting_names
from stillery.jobs.config.step_size import CUT, check_division, in_words, step_size
from stillery.jobs.metrics_file import SHOWN, read_metrics
from stillery.jobs.output_paths import check_folder
from stillery.jobs.result import Result
from stillery.jobs.run_lock import LOCK
from stillery.models.model_folder import model_in, old_place
from stillery.progress import say
from stillery.setting import option_name

__all__ = [
    "RUN_FILES",
    "begin",
    "check_place",
    "finished",
    "is_done",
    "mark_finished",
    "model_files",
    "read_back",
    "read_metrics",
    "write_json",
]

_DEFAULTS = {
    item.name: item.default
    for group in GROUPS.values()
    for item in dataclasses.fields(group)
    if item.default not in (None, dataclasses.MISSING)
}


_NO_DIFFERENCE = {"fingerprints", "processes", "stored_stages", "given_in_python", "checkpoint_seconds", *CUT}
"""Settings that may differ between a run and the one that resumes it."""


RUN_FILES = {
    "run.toml", "metrics.json", "log.jsonl", "predictions.parquet", "conditions.json", "similarity.json", "start.json",
    "trackers.json", "machine.toml", "checkpoints", "given", "projections", "snapshots", "tensorboard",
}  # fmt: skip
"""Files and folders of a run folder beside the model."""


_WRITTEN_INTO = ("checkpoints", "given", "projections", "snapshots")


def finished(out: Path) -> bool:
    """Return whether the folder holds a finished run."""
    return (out / "metrics.json").is_file() and model_in(out) is not None


def check_place(out: Path) -> None:
    """Raise UserError for a path where no run can be: a file, or a folder that holds something else."""
    check_folder(out, "--out")
    try:
        if out.is_dir() and not (out / "run.toml").is_file() and _holds_more_than_a_beginning(out):
            raise UserError(f"--out {out} is not empty and holds no run: give another folder")
    except OSError as error:
        raise UserError(f"--out {out} cannot be read ({error.strerror or error}): give another folder") from None


def _holds_more_than_a_beginning(out: Path) -> bool:
    """Return whether a folder holds anything but what a run writes before its run file, where it was killed then."""
    begun = {LOCK, MACHINE}
    if (out / LOCK).is_dir():
        # Only then: a user's own data may be in a folder of this name.
        begun.add("given")
    return any(entry.name not in begun and not is_part(entry) for entry in out.iterdir())


def is_done(out: Path, run: Finetune | Distill, *, resume: bool, by_batch: bool = False) -> bool:
    """Return whether this same run is finished in the folder; raise UserError if it may not write there.

    A run with steps of the same size counts as the same however they are divided; `by_batch` as for `check_division`.
    """
    check_place(out)
    if not (out / "run.toml").is_file():
        return False
    before, now = _DEFAULTS | comparable(read_toml(out / "run.toml")), comparable(values_of(run))
    different = _differences(before, now)
    divided = [name for name in ("processes", *CUT) if before.get(name, now.get(name)) != now.get(name)]
    searched = bool(different) and resume and _only_search(different, run)
    if (different and not searched) or (divided and not resume and step_size(before, now) != step_size(now, now)):
        names = ", ".join(sorted([*different, *divided]))
        raise UserError(f"--out {out} holds another run (it differs in {names}): give another folder, or --overwrite")
    if divided and resume:
        check_division(out, before, now, by_batch=by_batch)
    if searched:
        return _searched_otherwise(out, different)
    if resume:
        if divided and not finished(out):
            say(f"{out}: the run continues with {in_words(now)}, before it was {in_words(before)}; dropout draws anew")
        return finished(out)
    if finished(out):
        raise UserError(
            f"--out {out} holds this run already, finished: read it with --resume, give another folder, or --overwrite"
        )
    raise UserError(
        f"--out {out} holds this run, unfinished: continue with --resume, give another folder, or --overwrite"
    )


def _only_search(different: Sequence[str], run: Finetune | Distill) -> bool:
    """Return whether only search settings differ, which do not change the training."""
    trained_on = isinstance(run, Distill) and run.method.sequence_level
    return not trained_on and set(different) <= set(setting_names(SearchSettings))


def _searched_otherwise(out: Path, different: Sequence[str]) -> bool:
    """Resume an unfinished run with other search settings; refuse for a finished one, which is scored already."""
    names = ", ".join(map(option_name, different))
    if finished(out):
        raise UserError(
            f"--out {out} holds this run, finished with another {names}: score it with stillery evaluate {out}"
        )
    say(f"{out}: the run continues, and its texts are searched for with the {names} given now")
    return False


def begin(out: Path, run: Finetune | Distill) -> None:
    """Make the folder of a run and write its run file; in an existing one, remove partial files of a killed process."""
    try:
        for place in (out, *(out / name for name in _WRITTEN_INTO)):
            remove_leftovers(place)
        if not (out / "run.toml").is_file():
            far = machine_paths(values_of(run), out)
            if far:
                what = ", ".join(far)
                say(f"{out / MACHINE} has the paths of {what}, which lie elsewhere: leave it out to share the folder")
        # For a resumed run too: its search settings may have changed.
        paths = machine_toml(run, out)
        if paths is None:
            (out / MACHINE).unlink(missing_ok=True)
        else:
            _write_text(out / MACHINE, paths)
        written = to_toml(run, out)
        # Removed first: a copy of other settings would say that the run file was edited.
        (out / AS_IT_BEGAN).unlink(missing_ok=True)
        _write_text(out / "run.toml", written)
        _write_text(out / AS_IT_BEGAN, written)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}): give another folder") from None


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two runs differ, and the inputs whose content differs.

    Not compared are the division of steps and the stages that read the teacher cache: a run resumes with its own.

    A setting that an older file does not have is at its default. Inputs without a path are compared by content only.
    """
    unknown = ours.get(ELSEWHERE, {}).keys() | {ELSEWHERE}
    prints = changed_inputs(_inputs(ours), _inputs(theirs))
    names = sorted((ours.keys() | theirs.keys()) - _NO_DIFFERENCE - unknown)
    ours, theirs = _DEFAULTS | dict(ours), _DEFAULTS | dict(theirs)
    settings = [name for name in names if ours.get(name) != theirs.get(name)]
    named = [(name, input_in_words(name)) for name in prints if name not in settings]
    return settings + [said if "'s " in said else f"the content of {name}" for name, said in named]


def _inputs(values: Mapping[str, Any]) -> Mapping[str, Any]:
    found = values.get("fingerprints")
    return found if isinstance(found, Mapping) else {}


def _write_text(path: Path, text: str) -> None:
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    _write_text(path, json.dumps(value, indent=2) + "\n")


def mark_finished(out: Path, metrics: Mapping[str, Any]) -> None:
    """Write the metrics of a run whose model is written, which marks it as finished."""
    before = old_place(out)
    # An earlier version had already exported this run's model to `student` when it was stopped.
    if before is not None and "stillery" in _card(before):
        remove_whole(before)
    write_json(out / "metrics.json", metrics)


def _card(folder: Path) -> str:
    try:
        return (folder / "README.md").read_text(encoding="utf-8")
    except OSError:
        return ""


def model_files(out: Path) -> list[Path]:
    """Return the files and folders of a finished run's model."""
    folder = model_in(out)
    assert folder is not None
    return [path for path in folder.iterdir() if path.name not in RUN_FILES and not path.name.startswith(".")]


def read_back(out: Path) -> Result:
    """Return the result of a finished run."""
    return Result(out=out, student=model_in(out) or out, metrics=read_metrics(out, SHOWN))
