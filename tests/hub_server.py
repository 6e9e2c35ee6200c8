"""A hub on this machine: answers for the models of a folder, or takes requests and never answers."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse

REVISION = "c0ffee" * 6 + "c0de"


@contextmanager
def serving(
    models: dict[str, Path], uploads: dict[str, dict[str, bytes]] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A hub with these models, by name: its address, and what it is asked for.

    With `uploads` it knows everybody as `someone`, and keeps the files that are uploaded there, by repository and name.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_POST(self) -> None:
            path = urlparse(self.path).path
            asked.append(f"{self.command} {path}")
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if uploads is None:
                self.send_error(403)
                return
            if path == "/api/repos/create":
                said = json.loads(sent)
                assert said.get("private") or said.get("visibility") == "private"
                name = f"someone/{said['name']}"
                uploads.setdefault(name, {})
                self._send(json.dumps({"url": f"https://{self.headers['Host']}/{name}", "name": name}).encode(), True)
            elif "/preupload/" in path:
                files = [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for one in json.loads(sent)["files"]
                ]
                self._send(json.dumps({"files": files}).encode(), True)
            elif "/commit/" not in path:
                # The check of a card's header.
                self._send(b'{"errors": [], "warnings": []}', True)
            else:
                name = path.removeprefix("/api/models/").partition("/commit/")[0]
                for line in map(json.loads, sent.splitlines()):
                    if line["key"] == "file":
                        uploads[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                about = {"commitUrl": f"https://{self.headers['Host']}/{name}/commit/{REVISION}", "commitOid": REVISION}
                self._send(json.dumps(about).encode(), True)

        def _answer(self, *, body: bool) -> None:
            path = urlparse(self.path).path
            asked.append(f"{self.command} {path}")
            found = self._found(path)
            if found is not None:
                self._send(found, body)
                return
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _found(self, path: str) -> bytes | None:
            for name, folder in models.items():
                files = sorted(file for file in folder.iterdir() if file.is_file())
                if path.startswith(f"/{name}/resolve/"):
                    return next((file.read_bytes() for file in files if file.name == path.rpartition("/")[2]), None)
                if path.startswith(f"/api/models/{name}/tree/"):
                    rows = [{"type": "file", "path": one.name, "size": one.stat().st_size, "oid": "0"} for one in files]
                    return json.dumps(rows).encode()
                if path.startswith(f"/api/models/{name}"):
                    about = {"id": name, "sha": REVISION, "siblings": [{"rfilename": one.name} for one in files]}
                    return json.dumps(about).encode()
            if uploads is not None and path == "/api/whoami-v2":
                return json.dumps({"type": "user", "name": "someone", "orgs": []}).encode()
            return b"a hub" if path == "/" else None

        def _send(self, data: bytes, body: bool) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.end_headers()
            if body:
                self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()


@contextmanager
def stalled() -> Iterator[str]:
    """The address of a hub that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def hold() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=hold, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            for one in held:
                one.close()
