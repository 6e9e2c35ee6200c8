"""Workers: processes that take cells from the folder of a study until none is left."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from stillery.progress import console
from stillery.study.cells import PlannedCell
from stillery.study.claims import Claims, Pace
from stillery.study.folder import State, StudyFolder
from stillery.verbosity import Verbosity, verbosity_as

__all__ = [
    "FULL_DISK", "MOST_DEATHS", "Order", "Wanted", "Workers", "ended_often", "no_space", "set_up", "threads_of", "work",
]  # fmt: skip

FULL_DISK = 28
"""The exit code of a worker that stopped because the disk is full."""

MOST_DEATHS = 3
"""How often a cell may end its worker before it counts as failed."""

Wanted = Callable[[StudyFolder], Sequence[PlannedCell]]
"""Which cells are needed, by what is finished so far; those that are finished may be among them."""

POLL = 1.0
# Longer than nearly every step takes; a worker that is killed loses what it did since its last checkpoint.
_PATIENCE_SECONDS = 30.0


def work(
    folder: StudyFolder, cells: Sequence[PlannedCell], claims: Claims, poll: float = POLL, wanted: Wanted | None = None
) -> None:
    """Run cells until every one is finished, failed or blocked, waiting for those that other workers are at.

    Where `wanted` is given, it is asked before every cell which of them are needed by what is known then.
    """
    # Not at the top: whoever only looks at a study needs no torch.
    from stillery.jobs.warm import kept_warm
    from stillery.study.run_cell import run_cell

    with claims, kept_warm():
        checked: set[str] = set()
        while True:
            needed = cells if wanted is None else wanted(folder)
            left = [cell for cell in needed if _is_left(folder, cell, checked)]
            if not left:
                return
            taken = next((cell for cell in left if folder.ready(cell) and claims.take(cell.name)), None)
            if taken is None:
                time.sleep(poll)
                continue
            try:
                if _is_left(folder, taken, set()):
                    run_cell(folder, taken)
            finally:
                claims.release(taken.name)


def _is_left(folder: StudyFolder, cell: PlannedCell, checked: set[str]) -> bool:
    """Whether a cell is to be run; the results of a finished one are looked at once."""
    state = folder.state(cell)
    if state is State.FINISHED and cell.name not in checked:
        if folder.damage(cell) is not None:
            return True
        checked.add(cell.name)
    return state is State.OPEN


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker process is started with; on a Ray cluster whoever starts it also gives it its name in claims."""

    folder: Path
    cells: tuple[PlannedCell, ...]
    pace: Pace
    threads: int
    device: str | None
    log: Path
    owner: str | None = None
    wanted: Wanted | None = None


def set_up(order: Order) -> None:
    """Prepare the process of a worker: its threads and its device; it prints nothing but into its log."""
    os.environ["OMP_NUM_THREADS"] = str(order.threads)
    if order.device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = order.device
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    order.log.parent.mkdir(parents=True, exist_ok=True)
    log = order.log.open("a", encoding="utf-8")
    sys.stdout = sys.stderr = log
    console.file = log
    import torch

    torch.set_num_threads(order.threads)


def _main(order: Order) -> None:
    """A worker process on this machine."""
    # Without its parent nobody would know of it.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(order)
    try:
        folder = StudyFolder(order.folder)
        with verbosity_as(Verbosity.VERBOSE):
            work(folder, order.cells, Claims(folder.claims, pace=order.pace), wanted=order.wanted)
    except KeyboardInterrupt:
        os._exit(130)
    except OSError as error:
        from stillery.study.run_cell import FULL

        if error.errno in FULL:
            os._exit(FULL_DISK)
        raise


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def threads_of(cores: float, workers: int) -> int:
    """The threads of each of several workers that share the cores of a machine, unless OMP_NUM_THREADS says."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() else max(1, int(cores) // workers)


def no_space(folder: StudyFolder) -> str:
    """Why a study ends whose disk is full."""
    return f"{folder.path}: no space left on the disk"


def ended_often(folder: StudyFolder, cell: str | None, how: str, log: Path) -> str | None:
    """Record that a cell has failed, as it ends its workers; without one, gives why the study cannot continue."""
    if cell is None:
        return f"a worker ended {MOST_DEATHS} times before it had a cell{how}: see {log}"
    folder.fail(cell, f"it ended its worker {MOST_DEATHS} times{how}; is there enough memory? See {log}")
    return None


class Workers:
    """The workers that this process has started; one that is killed is started again."""

    def __init__(
        self, folder: StudyFolder, cells: Sequence[PlannedCell], number: int, pace: Pace,
        devices: Sequence[str | None], wanted: Wanted | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._cells, self._pace = folder, tuple(cells), pace
        # A start method that shares nothing with this process, which may hold threads.
        self._context = multiprocessing.get_context("spawn")
        threads = threads_of(os.cpu_count() or 1, number * len(devices))
        self._orders = [
            Order(
                folder=folder.path, cells=self._cells, pace=pace, threads=threads, device=device,
                log=folder.path / "logs" / f"{socket.gethostname()}-{os.getpid()}-{place}.log", wanted=wanted,
            )
            for place, device in enumerate(device for device in devices for _ in range(number))
        ]  # fmt: skip
        self._processes: list[BaseProcess] = []
        self._claims = Claims(folder.claims, pace=pace)
        self._deaths: dict[str | None, int] = {}

    def __enter__(self) -> Workers:
        self._processes = [self._started(order) for order in self._orders]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + _PATIENCE_SECONDS
        for process in self._processes:
            # It saves a checkpoint at the end of its step.
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _started(self, order: Order) -> BaseProcess:
        process = self._context.Process(target=_main, args=(order,), daemon=True)
        process.start()
        return process

    def look(self) -> str | None:
        """Start again what was killed; gives the reason why the study cannot continue, if there is one."""
        for place, process in enumerate(self._processes):
            if process.is_alive() or process.exitcode in (0, None):
                continue
            if process.exitcode == FULL_DISK:
                return no_space(self._folder)
            cell = self._claims.held_by(process.pid, [cell.name for cell in self._cells])
            self._deaths[cell] = self._deaths.get(cell, 0) + 1
            if self._deaths[cell] >= MOST_DEATHS:
                wrong = ended_often(self._folder, cell, f" (exit code {process.exitcode})", self._orders[place].log)
                if wrong is not None:
                    return wrong
            self._processes[place] = self._started(self._orders[place])
        return None

    @property
    def busy(self) -> bool:
        """Whether a worker is at work."""
        return any(process.is_alive() for process in self._processes)
