"""Without a name of the hub nothing asks the network: a whole run works where no socket can be made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUN = """
import socket
import sys

class Refused(socket.socket):
    def __init__(self, family=socket.AF_INET, *rest, **more):
        # Local sockets of processes on this machine are no network.
        if family in (socket.AF_INET, socket.AF_INET6, -1):
            raise AssertionError("a socket was made")
        super().__init__(family, *rest, **more)

def refused(*_, **__):
    raise AssertionError("the network was asked")

socket.socket = Refused
socket.create_connection = socket.getaddrinfo = socket.gethostbyname = refused

from stillery.cli.main import main

for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{line}: {ended.code}")
try:
    socket.create_connection(("127.0.0.1", 9))
except AssertionError:
    print("no sockets")
"""
LINES = (
    "finetune --model {teacher} --data {data} --out tuned --max-steps 2",
    "distill --teacher tuned --data {data} --layers 1 --out small --max-steps 2",
    "evaluate small --data {data}",
    "predict small --data {data} --out predicted.csv --overwrite",
    "compare small tuned",
    "report small --out page.html",
)


def test_a_whole_run_makes_no_socket(tiny_teacher: Path, reviews: Path, tmp_path: Path) -> None:
    lines = [line.format(teacher=tiny_teacher, data=reviews) for line in LINES]
    # Without its offline mode the hub's client would be free to ask.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *lines], capture_output=True, text=True, cwd=tmp_path, timeout=200, env=clean
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("no sockets\n")
    assert (tmp_path / "page.html").is_file()
