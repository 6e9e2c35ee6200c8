"""The trainings of a search: by worker processes or in this one, with a line for each that is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stillery.errors import Stopped
from stillery.progress import bar, console, quiet, say
from stillery.study.cells import PlannedCell
from stillery.study.claims import Claims, Pace
from stillery.study.folder import State, StudyFolder
from stillery.study.run import devices, spent
from stillery.study.workers import Wanted, Workers, work

__all__ = ["Trainings"]

_LOOK = 0.5


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """How cells are run: by worker processes or in this one, and what each that is done is said to have come to."""

    folder: StudyFolder
    workers: int
    pace: Pace

    def run(
        self, cells: Sequence[PlannedCell], came_to: Callable[[PlannedCell], str], wanted: Wanted | None = None
    ) -> None:
        """Run the cells, or those of them that are wanted, until none is left."""
        folder = self.folder
        needed = cells if wanted is None else wanted(folder)
        if not any(self._is_left(cell) for cell in needed):
            return
        told, began = {cell.name for cell in cells if folder.state(cell) is not State.OPEN}, time.monotonic()
        with bar("students", None) as shown:

            def tell() -> None:
                for cell in cells:
                    if cell.name not in told and folder.state(cell) is not State.OPEN:
                        told.add(cell.name)
                        line = came_to(cell)
                        shown.advance(1, [line])
                        if not console.is_terminal:
                            say(f"{line} ({spent(time.monotonic() - began)})")

            if self.workers:
                self._by_workers(cells, wanted, tell)
            else:
                self._here(cells, wanted, tell)
            tell()

    def _is_left(self, cell: PlannedCell) -> bool:
        state = self.folder.state(cell)
        return state is State.OPEN or (state is State.FINISHED and self.folder.damage(cell) is not None)

    def _by_workers(self, cells: Sequence[PlannedCell], wanted: Wanted | None, tell: Callable[[], None]) -> None:
        with Workers(self.folder, cells, self.workers, self.pace, devices(), wanted) as running:
            while True:
                wrong = running.look()
                tell()
                if wrong is not None:
                    raise Stopped(f"{wrong}; everything finished is kept: run the same command to continue")
                if not running.busy:
                    return
                time.sleep(_LOOK)

    def _here(self, cells: Sequence[PlannedCell], wanted: Wanted | None, tell: Callable[[], None]) -> None:
        def needed(folder: StudyFolder) -> Sequence[PlannedCell]:
            tell()
            return cells if wanted is None else wanted(folder)

        with quiet():
            work(self.folder, cells, Claims(self.folder.claims, pace=self.pace), wanted=needed)
