"""Checks of a request made before any model library is imported: names, paths, output folders, values of options.

Importing torch and transformers takes seconds; a typo in a name is refused without them. Errors found here are
reported together, and so are those that `stillery.jobs.prepare` finds later.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillery.errors import ErrorList, UserError, nearest
from stillery.jobs.config.changed import check_unedited
from stillery.jobs.config.settings import Asked, DataSettings, Distill
from stillery.jobs.output_paths import check_file, check_folder
from stillery.jobs.overwrite import check_replaceable
from stillery.jobs.run_folder import check_place
from stillery.jobs.run_lock import check_free
from stillery.models.model_folder import local_folder, model_folder
from stillery.models.option_words import STARTS
from stillery.near_names import did_you_mean, missing_file
from stillery.words import METHODS, method_words, plugins

__all__ = ["check_first", "check_models", "check_scoring"]


def check_first(asked: Asked[Any], out: Path | None = None, *, resume: bool = False, overwrite: bool = False) -> None:
    """Raise UserError for a run whose settings, files, models or folder are wrong, as far as this is quick to check."""
    errors, run = asked.gathered(), asked.run
    _check_launcher(errors)
    if overwrite and resume:
        errors.add("--overwrite starts again and --resume continues: give one")
    if out is not None:
        with errors.catch():
            check_place(out)
            check_free(out)
            if overwrite:
                check_replaceable(out, run)
            if resume:
                check_unedited(out)
    if run.training.trackers:
        # Imported only where trackers are given: it takes as long as importing torch.
        from stillery.train.trackers import check_trackers

        with errors.catch():
            check_trackers(run.training.trackers)
    if asked.clear("data"):
        _check_data(run.data, errors)
    models: list[tuple[str | None, str | None]] = []
    # Settings with an error already are not checked further.
    if asked.clear("teacher", "model"):
        models.append((None, run.teacher if isinstance(run, Distill) else run.model))
    if isinstance(run, Distill):
        models += _more_models(run, errors)
        _check_method(run, asked, errors)
        if run.method.ild_data is not None and asked.clear("ild_data"):
            _check_file(Path(run.method.ild_data), errors)
    _check_models([(option, name) for option, name in models if name], errors)


_SHARDING = {"FSDP": "--use_fsdp", "DEEPSPEED": "--use_deepspeed", "MEGATRON_LM": "--use_megatron_lm",
             "PARALLELISM_CONFIG": "--use_parallelism_config"}  # fmt: skip
"""What `accelerate launch` sets in the environment, ACCELERATE_USE_..., and by which option."""


def _check_launcher(errors: ErrorList) -> None:
    """Add an error for a launcher that would divide a model over processes."""
    for name, option in _SHARDING.items():
        if os.environ.get(f"ACCELERATE_USE_{name}", "").lower() in ("true", "1", "yes", "on", "y", "t"):
            errors.add(
                f"accelerate launch {option} (ACCELERATE_USE_{name}) is not supported: models are not divided over "
                "processes, each holds them whole; leave it out, or start with torchrun --nproc-per-node"
            )


def check_scoring(
    models: Sequence[str | None],
    data: str | Path | None,
    data_dir: str | None = None,
    *,
    file: tuple[str, Path | None] | None = None,
    submission: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Raise UserError for scoring or prediction with missing models or data, or outputs that cannot be written.

    `file` is the output file, with its option.
    """
    errors = ErrorList()
    _check_data(DataSettings(data=None if data is None else str(data), data_dir=data_dir), errors)
    if file is not None and file[1] is not None:
        with errors.catch():
            check_file(file[1], file[0], data, overwrite=overwrite)
    if submission is not None:
        with errors.catch():
            check_folder(submission, "--submission")
    _check_models([(None, name) for name in models if name is not None], errors)


def check_models(*names: str) -> None:
    """Raise UserError for models that are neither on this machine nor on the hub."""
    _check_models([(None, name) for name in names], ErrorList())


def _more_models(run: Distill, errors: ErrorList) -> list[tuple[str | None, str | None]]:
    """Return the models of a distillation beside its teacher, each with a template for its error message or None."""
    init, words = run.student.init, f"--init: {{}} (or choose from {', '.join(STARTS)})"
    if init is not None and init not in STARTS and not Path(init).exists():
        near = difflib.get_close_matches(init.casefold(), STARTS, n=1, cutoff=0.75)
        if near:
            errors.add(words.format(f"{init}: no such folder; did you mean {near[0]!r}?"))
            init = None
    start = (words, None if init in STARTS else init)
    return [start, (None, run.student.init_from), (None, run.method.ild_teacher)]


def _check_models(models: Sequence[tuple[str | None, str]], errors: ErrorList) -> None:
    """Look for models locally and, only without errors so far, on the hub; a pair is an error template and a name."""
    for look in (local_folder, model_folder):
        for words, name in models:
            try:
                look(name)
            except UserError as error:
                for line in error.lines:
                    errors.add(line if words is None else words.format(line))
        errors.raise_any()


def _check_data(data: DataSettings, errors: ErrorList) -> None:
    if data.data is not None:
        _check_file(Path(data.data), errors)
    if data.data_dir is not None and not Path(data.data_dir).is_dir():
        hint = did_you_mean(Path(data.data_dir), Path.is_dir)
        errors.add(f"--data-dir {data.data_dir}: no such folder{hint}")


def _check_file(path: Path, errors: ErrorList) -> None:
    try:
        there = path.exists()
    except OSError:
        # The code that reads the file reports the reason.
        return
    if not there:
        errors.add(str(missing_file(path)))


def _check_method(run: Distill, asked: Asked[Any], errors: ErrorList) -> None:
    """Add errors for an unknown method or a missing recipe file."""
    method = run.method
    file = Path((method.recipe or "").rpartition(":")[0])
    if method.recipe is not None:
        if file.suffix == ".py" and not file.is_file():
            errors.add(f"--recipe {method.recipe}: no such file: {file}{did_you_mean(file)}")
        return
    # Plugin packages may list methods in a way that only importing them reveals.
    if asked.clear("method") and method.method not in method_words() and not plugins(METHODS):
        hint = nearest(method.method, method_words())
        errors.add(f"unknown method {method.method!r}: {hint} (see `stillery methods`)")
