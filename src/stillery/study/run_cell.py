"""One cell from its settings to a finished run folder, or to the reason why there is none."""

from __future__ import annotations

import errno
import traceback
from dataclasses import replace

from stillery.errors import Stopped, UserError
from stillery.jobs.distill import run_distill
from stillery.jobs.finetune import run_finetune
from stillery.study.cells import PlannedCell
from stillery.study.folder import State, StudyFolder

__all__ = ["CHECKPOINT_SECONDS", "FULL", "run_cell"]

CHECKPOINT_SECONDS = 30.0
"""How far apart checkpoints of a cell are at most, unless the plan says otherwise; most are written sooner."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk that is full; no cell is to blame for them."""


def run_cell(folder: StudyFolder, cell: PlannedCell) -> None:
    """Run a cell that this process has claimed, or continue it.

    What cannot be run is recorded; only a full disk, and whoever stops the process, end more than the cell. Results
    that cannot be read, and a begun run that cannot be continued, are set aside and made again.
    """
    if folder.state(cell) is State.FINISHED:
        wrong = folder.damage(cell)
        if wrong is None:
            return
        folder.set_aside(cell.name, wrong)
    begun = (folder.run(cell) / "run.toml").is_file()
    try:
        _run(folder, cell)
    except UserError as error:
        if not begun:
            folder.fail(cell.name, "; ".join(error.lines))
            return
        folder.set_aside(cell.name, str(error))
        _again(folder, cell)
    except Exception as error:
        _failed(folder, cell, error)


def _again(folder: StudyFolder, cell: PlannedCell) -> None:
    try:
        _run(folder, cell)
    except Exception as error:
        _failed(folder, cell, error)


def _run(folder: StudyFolder, cell: PlannedCell) -> None:
    run, asked = (
        run_distill if cell.job == "distill" else run_finetune,
        cell.run(folder.cells, folder.settled(cell)),
    )
    if asked.run.training.checkpoint_seconds is None:
        # Workers may be killed at any time; it is no part of what is compared, so cells keep their address.
        training = replace(asked.run.training, checkpoint_seconds=CHECKPOINT_SECONDS)
        asked = replace(asked, run=replace(asked.run, training=training))
    run(asked, folder.run(cell), resume=True)


def _failed(folder: StudyFolder, cell: PlannedCell, error: Exception) -> None:
    """Record why a cell failed; a full disk is raised again."""
    if isinstance(error, OSError) and error.errno in FULL:
        raise error
    if isinstance(error, UserError | Stopped):
        folder.fail(cell.name, str(error))
        return
    reason = str(error).strip().split("\n")[0] or "no message"
    folder.fail(cell.name, f"{type(error).__name__}: {reason}", traceback.format_exc())
    if "CUDA error" in str(error):
        # Nothing runs on the device in this process any more; another one is started in its place.
        raise SystemExit(1)
