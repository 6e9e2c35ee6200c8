"""Workers on a Ray cluster: a Ray task for each share of a GPU or of a machine, which does what a local worker does.

Ray only places workers and notices that they end. Which worker runs which cell is settled by the claims in the folder
of the study, as on one machine: a node that is lost takes no cell with it, and none is run twice.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from stillery.errors import Stopped, UserError
from stillery.progress import say
from stillery.study.cells import PlannedCell
from stillery.study.claims import Claims, Pace
from stillery.study.folder import StudyFolder
from stillery.study.ray_cluster import Node, check_nodes, connected, is_there, nodes, on_node
from stillery.study.ray_node import nothing
from stillery.study.workers import MOST_DEATHS, Order, ended_often, no_space, set_up, threads_of, work

__all__ = ["RayWorkers"]

_LOOK, _PATIENCE, _END = 5.0, 30.0, 5.0
"""Seconds between two looks at the nodes, without a worker or a head until that is said, and for workers to end."""

_FULL = "full disk"


@dataclass(kw_only=True)
class _Slot:
    """A worker on a node; when it has crashed, a task that asks whether the node is still there."""

    node: Node
    task: Any
    order: Order
    asked: Any = None


class RayWorkers:
    """The workers of a study on a cluster; one that crashed is started again, new nodes get workers as they come.

    `number` is how many there are for each GPU, or for each machine where the cluster has none.
    """

    def __init__(
        self, folder: StudyFolder, cells: Sequence[PlannedCell], number: int, pace: Pace, address: str | None
    ) -> None:
        # Nodes have working directories of their own.
        self._folder, self._cells = StudyFolder(folder.path.absolute()), tuple(cells)
        self._number, self._pace, self._address = number, pace, address
        self._claims = Claims(folder.claims, pace=pace)
        self._slots: list[_Slot] = []
        self._known: set[str] = set()
        self._deaths: dict[str | None, int] = {}
        self._done = False
        self._lost = False
        self._looked = self._began = self._heard = 0.0
        self._told: set[str] = set()
        self._stack = ExitStack()

    def __enter__(self) -> RayWorkers:
        with ExitStack() as stack:
            stack.enter_context(connected(self._address))
            there = nodes()
            if not there:
                raise UserError("no node of the Ray cluster has CPUs or GPUs: see `ray status`")
            wrong = check_nodes(self._folder, self._cells, there)
            if wrong:
                raise UserError(*wrong.values())
            self._begin(there)
            self._looked = self._began = self._heard = time.monotonic()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        try:
            left = [] if self._lost else [slot.task for slot in self._slots]
            for task in left if not self._done else ():
                ray.cancel(task, force=True)
            # Those that are done end by themselves.
            if left:
                ray.wait(left, num_returns=len(left), timeout=_END)
        finally:
            self._stack.close()

    def _begin(self, some: Sequence[Node]) -> None:
        """Start the workers of nodes, unless the cluster has GPUs and these have none."""
        gpus = any(node.gpus for node in nodes())
        for node in some:
            self._known.add(node.name)
            count = node.gpus * self._number if gpus else self._number
            self._slots += [self._started(node, count, place) for place in range(count)]

    def _started(self, node: Node, count: int, place: int) -> _Slot:
        log = self._folder.path / "logs" / f"{socket.gethostname()}-ray-{node.address}-{node.name[:6]}-{place}.log"
        order = Order(
            folder=self._folder.path, cells=self._cells, pace=self._pace, threads=threads_of(node.cpus, count),
            device=None, log=log, owner=uuid.uuid4().hex,
        )  # fmt: skip
        # More CPUs than there are for it would keep it waiting; Ray counts them to four digits.
        share = {"num_cpus": int(1e4 * node.cpus / count) / 1e4}
        if node.gpus:
            share = {"num_cpus": min(1.0, share["num_cpus"]), "num_gpus": int(1e4 / self._number) / 1e4}
        # A process of its own, whose memory is free when it ends.
        return _Slot(node=node, task=on_node(node, _worker, order, max_calls=1, **share), order=order)

    def look(self) -> str | None:
        """Start again what crashed, and use nodes that are new; gives the reason why the study cannot continue."""
        now = time.monotonic()
        if now - self._heard > _LOOK:
            if is_there():
                self._heard = now
            elif now - self._heard > _PATIENCE:
                self._lost = True
                raise Stopped(
                    "the head of the Ray cluster is lost; everything finished is kept: start the cluster, and run the "
                    "same command to continue"
                )
            else:
                return None
        for slot in list(self._slots):
            wrong = self._asked(slot) if slot.asked is not None else self._at_work(slot)
            if wrong is not None:
                return wrong
        if now - self._looked > _LOOK:
            self._looked = now
            self._look_at_nodes(now)
        return None

    def _at_work(self, slot: _Slot) -> str | None:
        """See whether a worker has ended."""
        import ray

        if not ray.wait([slot.task], timeout=0)[0]:
            return None
        try:
            ended = ray.get(slot.task)
        except ray.exceptions.RayError:
            # The node may be gone as well, which Ray knows only later: a task on it tells.
            slot.asked = on_node(slot.node, nothing)
            return None
        if ended == _FULL:
            return no_space(self._folder)
        # It ends when no cell is left, not even one that somebody else is at.
        self._done = True
        return None

    def _asked(self, slot: _Slot) -> str | None:
        """See whether the node of a crashed worker is there, and start another worker on it."""
        import ray

        if not ray.wait([slot.asked], timeout=0)[0]:
            return None
        try:
            ray.get(slot.asked)
        except ray.exceptions.RayError:
            if slot.node.name in [node.name for node in nodes()]:
                slot.asked = on_node(slot.node, nothing)
                return None
            self._slots.remove(slot)
            self._say(f"warning: node {slot.node.address} is lost; other workers take over its cells", slot.node.name)
            return None
        self._slots.remove(slot)
        cell = self._claims.held_by(slot.order.owner, [cell.name for cell in self._cells])
        self._deaths[cell] = self._deaths.get(cell, 0) + 1
        if self._deaths[cell] >= MOST_DEATHS:
            wrong = ended_often(self._folder, cell, "", slot.order.log)
            if wrong is not None:
                return wrong
        place = int(slot.order.log.stem.rpartition("-")[2])
        self._slots.append(self._started(slot.node, self._count(slot.node), place))
        return None

    def _count(self, node: Node) -> int:
        return node.gpus * self._number if node.gpus else self._number

    def _look_at_nodes(self, now: float) -> None:
        """Use the nodes that are new, and say where none is at work."""
        there = nodes()
        new = [node for node in there if node.name not in self._known]
        if new:
            wrong = check_nodes(self._folder, self._cells, new)
            for node, line in wrong.items():
                self._known.add(node.name)
                self._say(f"warning: {line}; it is not used", node.name)
            self._begin([node for node in new if node not in wrong])
        at_work = any(self._claims.has_begun(slot.order.owner or "") for slot in self._slots)
        if not at_work and not self._done and now - self._began > _PATIENCE:
            what = "its CPUs or GPUs are in use" if there else "it has no nodes left"
            self._say(f"waiting for the Ray cluster: {what} (see `ray status`)", "waiting")
        elif at_work:
            self._began = now
            self._told.discard("waiting")

    def _say(self, line: str, about: str) -> None:
        if about not in self._told:
            self._told.add(about)
            say(line)

    @property
    def busy(self) -> bool:
        """Whether cells are left; one worker that has ended has found none."""
        return not self._done


def _worker(order: Order) -> str | None:
    """A worker, in a process of Ray."""
    from stillery.study.run_cell import FULL
    from stillery.verbosity import Verbosity, verbosity_as

    set_up(order)
    folder = StudyFolder(order.folder)
    claims = Claims(folder.claims, pace=order.pace, owner=order.owner or uuid.uuid4().hex)
    try:
        with verbosity_as(Verbosity.VERBOSE):
            work(folder, order.cells, claims)
    except OSError as error:
        if error.errno in FULL:
            return _FULL
        raise
    return None
