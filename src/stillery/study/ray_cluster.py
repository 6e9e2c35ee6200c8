"""The Ray cluster that workers are placed on: connected to within seconds, and checked node by node."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.jobs.config.run_file import values_of
from stillery.jobs.config.run_paths import places
from stillery.study.cells import PlannedCell
from stillery.study.folder import StudyFolder
from stillery.study.ray_node import comes, installed, look

__all__ = ["Node", "check_nodes", "connected", "is_there", "nodes", "on_node"]

_LISTEN, _CONNECT, _ANSWER = 5.0, 30.0, 120.0
"""Seconds within which an address, a cluster and its nodes have to answer."""

_STORE = 100 * 2**20
"""Bytes of the object store of a cluster of one's own: what goes through it are names of cells."""

_TRY = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=50)
except Exception as error:
    print(" ".join(str(error).split()) or type(error).__name__)
    sys.exit(1)
"""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster: its number, its address, and what Ray gives out of it."""

    name: str
    address: str
    cpus: float
    gpus: int


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A connection to a cluster; without an address to one on this machine that ends with the block."""
    # Nothing is sent to anybody, and no folder is packed: nodes have stillery installed and --out on a shared disk.
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    settings |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "error"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError('--engine ray needs the package ray: pip install "stillery[ray]"') from None
    named = "--address" if address else "RAY_ADDRESS"
    address = address or os.environ.get("RAY_ADDRESS") or None
    said: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
    if address is None:
        said |= {"address": "local", "include_dashboard": False, "object_store_memory": _STORE}
    else:
        _check_address(address, f"{named} {address}")
        said["address"] = address
    try:
        with _without_logs():
            ray.init(**said)
    except Exception as error:
        where = "Ray on this machine" if address is None else f"{named} {address}"
        raise UserError(_unreachable(where, str(error))) from None
    try:
        yield
    finally:
        # Of a cluster whose head is lost nothing is left to end, and Ray would wait for it.
        if is_there():
            with _without_logs():
                ray.shutdown()


def is_there() -> bool:
    """Whether the head of the cluster answers; without it calls of Ray block for a minute and end the process."""
    import ray

    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTEN).close()
    except OSError:
        return False
    return True


def _check_address(address: str, said: str) -> None:
    """Raise an error for a cluster that cannot be reached, within seconds; Ray itself takes minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or (address != "auto" and not (host and port.isdigit())):
        raise UserError(
            f"{said}: give HOST:PORT of the cluster's head, as `ray start` prints it, or auto for the "
            "cluster of this machine"
        )
    if address != "auto":
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTEN).close()
        except (OSError, OverflowError) as error:
            raise UserError(_unreachable(said, getattr(error, "strerror", None) or str(error))) from None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _TRY, address], capture_output=True, text=True, timeout=_CONNECT, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(_unreachable(said, f"no answer in {_CONNECT:.0f} s")) from None
    if tried.returncode:
        lines = tried.stdout.strip().splitlines() or ["it ended without a word"]
        none = address == "auto" and "Could not find any running" in lines[-1]
        cure = "start one with `ray start --head`, or leave --address out for one that ends with the study"
        raise UserError(f"{said}: no Ray cluster runs here: {cure}" if none else _unreachable(said, lines[-1]))


def _unreachable(said: str, why: str) -> str:
    return f"{said}: no Ray cluster can be used ({' '.join(why.split())[:300].rstrip('.')})"


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep what Ray's libraries write to stderr, past Python, out of it."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def nodes() -> list[Node]:
    """The machines that are alive and have CPUs or GPUs to give."""
    import ray

    found = []
    for one in ray.nodes():
        has = one.get("Resources", {})
        node = Node(
            name=one["NodeID"],
            address=one["NodeManagerAddress"],
            cpus=float(has.get("CPU", 0)),
            gpus=int(has.get("GPU", 0)),
        )
        if one["Alive"] and (node.cpus or node.gpus):
            found.append(node)
    return found


def on_node(node: Node, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Start a task on that node only, which Ray starts again nowhere; gives a reference to what it returns."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node.name, soft=False)
    return ray.remote(**{"num_cpus": 0, "scheduling_strategy": where, "max_retries": 0, **options})(function).remote(
        *arguments
    )


def check_nodes(folder: StudyFolder, cells: Sequence[PlannedCell], some: Sequence[Node]) -> dict[Node, str]:
    """What is wrong with nodes, in a line each: --out has to be on a disk that all share, the plan's files as well."""
    import ray

    marker = folder.path / f".nodes-{uuid.uuid4().hex[:8]}"
    marker.mkdir(parents=True)
    try:
        (marker / "driver").write_text(marker.name, encoding="utf-8")
        paths = sorted({str(path) for cell in cells for path in places(values_of(cell.asked.run)).values()})
        needed = ("optuna",) if any(cell.search is not None for cell in cells) else ()
        asked = {node: on_node(node, look, marker, node.name, paths, needed, installed()) for node in some}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER)
        found = {node: _answer(one, marker, node) for node, one in asked.items()}
        return {node: f"node {node.address}: {wrong}" for node, wrong in found.items() if wrong is not None}
    finally:
        shutil.rmtree(marker, ignore_errors=True)


def _answer(asked: Any, marker: Path, node: Node) -> str | None:
    import ray

    try:
        wrong: str | None = ray.get(asked, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return f"no answer in {_ANSWER:.0f} s"
    except Exception as error:
        # An exception of Ray ends with that of the node.
        return f"stillery cannot be run there ({str(error).strip().splitlines()[-1]})"
    if wrong is None and not comes(marker / node.name):
        return f"what it writes to {marker.parent} is not seen here: give an --out on a disk that all nodes share"
    return wrong
