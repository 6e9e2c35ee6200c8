"""A study on a Ray cluster of two nodes on this machine: one is killed, and every cell is done once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stillery.study.cells import planned
from stillery.study.folder import State, StudyFolder
from stillery.study.plan import read_plan

pytestmark = pytest.mark.slow

STORE = 80 * 2**20


def owners(folder: StudyFolder, cell: str) -> list[str]:
    """The workers that were at a cell, in order."""
    files = sorted((folder.claims / cell).glob("*.json"), key=lambda path: int(path.stem))
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [note["owner"] for note in notes if note["owner"] is not None]


def worker_at(folder: StudyFolder, cells: list[str]) -> dict[str, int]:
    """The cells that somebody is at, with the number of the process."""
    found = {}
    for cell in cells:
        files = sorted((folder.claims / cell).glob("*.json"), key=lambda path: int(path.stem))
        note = json.loads(files[-1].read_text(encoding="utf-8")) if files else {}
        if note.get("owner"):
            found[cell] = int(note["process"])
    return found


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    nodes = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    # A lost node is noticed within seconds; by default it takes half a minute.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    cluster = Cluster(initialize_head=True, head_node_args={**nodes, "_system_config": health})
    cluster.add_node(num_cpus=1, object_store_memory=STORE)
    yield cluster
    cluster.shutdown()


def test_a_node_is_killed_and_every_cell_is_done_once(write_plan, tmp_path, cluster):
    plan = write_plan("seeds = [0, 1, 2]\n", student="max_steps = 60\ncheckpoint_every = 5")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "stillery", "study", str(plan), "--out", str(out), "--engine", "ray"]
    begun = subprocess.Popen(
        [*command, "--address", cluster.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    folder = StudyFolder(out)
    cells = [cell.name for cell in planned(read_plan(plan))[0]]
    (second,) = cluster.worker_nodes
    raylet = psutil.Process(second.all_processes["raylet"][0].process.pid)
    deadline = time.monotonic() + 240
    # A worker of the second node is in the middle of a student, and one of the first node at another.
    while True:
        assert time.monotonic() < deadline and begun.poll() is None, begun.communicate()
        there = [raylet, *raylet.children(recursive=True)]
        at = worker_at(folder, cells)
        hit = [name for name, process in at.items() if process in {one.pid for one in there}]
        if len(at) == 2 and hit and list((folder.run(hit[0]) / "checkpoints").glob("step-*")):
            break
        time.sleep(0.02)
    done = {path.parent.name: path.stat().st_mtime_ns for path in folder.cells.glob("*/metrics.json")}
    for process in there:
        process.send_signal(signal.SIGKILL)
    said, wrong = begun.communicate(timeout=240)
    assert begun.returncode == 0, wrong
    assert "cells: 7 finished" in said and "| kd |" in said
    assert "is lost; other workers take over its cells" in wrong
    assert "Traceback" not in wrong and "[20" not in wrong and "raylet" not in wrong
    # The cell that was hit went to one other worker, which went on with it; no other was touched twice.
    assert {name: len(owners(folder, name)) for name in cells} == {name: 2 if name == hit[0] else 1 for name in cells}
    for name, changed in done.items():
        assert (folder.run(name) / "metrics.json").stat().st_mtime_ns == changed
    for name in cells:
        steps = [json.loads(line)["step"] for line in (folder.run(name) / "log.jsonl").read_text().splitlines()]
        assert steps == sorted(steps)
    assert len({owner for name in cells for owner in owners(folder, name)}) == 2


def test_workers_are_shares_of_gpus_where_there_are_some(write_plan, tmp_path, cluster, stillery):
    """A GPU that Ray only counts: two workers get half of it each, and the nodes without one get none."""
    cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=STORE)
    plan, out = write_plan("seeds = [0, 1]\n"), tmp_path / "out"
    done = stillery("study", plan, "--out", out, "--engine", "ray", "--address", cluster.address, "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert "cells: 5 finished" in done.stdout
    logs = [path.name for path in (out / "logs").iterdir()]
    assert len(logs) == 2 and len({name.split("-")[-2] for name in logs}) == 1
    # From here on nothing has to be done, and no cluster is needed.
    again = stillery("study", plan, "--out", out, "--engine", "ray", "--address", "127.0.0.1:1")
    assert again.returncode == 0 and again.stdout == done.stdout


def test_ray_on_this_machine_for_one_study(write_plan, tmp_path):
    """Without an address: a killed worker is started again, and nothing is left of Ray afterwards."""
    plan = write_plan("seeds = [0, 1]\n", "[methods.kd]\n", student="max_steps = 60\ncheckpoint_every = 5")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "stillery", "study", str(plan), "--out", str(out), "--engine", "ray"]
    begun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    folder, cells = StudyFolder(out), planned(read_plan(plan))[0]
    names = [cell.name for cell in cells]
    deadline = time.monotonic() + 240
    while not (at := worker_at(folder, names[1:])):
        assert time.monotonic() < deadline and begun.poll() is None, begun.communicate()
        time.sleep(0.02)
    of_ray = psutil.Process(begun.pid).children(recursive=True)
    os.kill(next(iter(at.values())), signal.SIGKILL)
    _, wrong = begun.communicate(timeout=240)
    assert begun.returncode == 0, wrong
    assert [folder.state(cell) for cell in cells] == [State.FINISHED] * 3
    assert "warning" not in wrong and "Traceback" not in wrong
    assert [len(owners(folder, name)) for name in names] == [1, 2, 1]
    gone, alive = psutil.wait_procs(of_ray, timeout=20)
    assert len(gone) > 2 and not alive


def test_a_cluster_that_is_none_is_one_line_within_seconds(write_plan, tmp_path, stillery):
    """Something else listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        began = time.monotonic()
        threading.Thread(target=lambda: [server.accept() for _ in range(3)], daemon=True).start()
        done = stillery(
            "study", write_plan(), "--out", tmp_path / "out", "--engine", "ray", "--address", f"127.0.0.1:{port}"
        )
    assert time.monotonic() - began < 90
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--address 127.0.0.1:{port}: no Ray cluster can be used (no answer in 30 s)" in line


def test_nodes_that_do_not_share_the_disk_are_named(write_plan, tmp_path, cluster, monkeypatch):
    import ray

    from stillery.study import ray_cluster

    plan = write_plan()
    cells, _ = planned(read_plan(plan))
    out = StudyFolder(tmp_path / "out")
    with ray_cluster.connected(cluster.address):
        there = ray_cluster.nodes()
        assert len(there) == 2
        assert ray_cluster.check_nodes(out, cells, there) == {}
        assert not list(out.path.iterdir())
        # A disk of this process alone: the nodes look where nothing is.
        look = ray_cluster.look
        monkeypatch.setattr(ray_cluster, "look", lambda marker, *rest: look(Path("/nowhere") / marker.name, *rest))
        wrong = ray_cluster.check_nodes(out, cells, there)
        assert ray.is_initialized()
    assert {line.partition(": ")[2] for line in wrong.values()} == {
        "/nowhere is not there: give an --out on a disk that all nodes share"
    }
