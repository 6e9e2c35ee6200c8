"""Serve a report on the loopback interface, made anew as a study continues."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stillery.errors import UserError
from stillery.progress import quiet, say
from stillery.reports.build import build
from stillery.reports.page import main_of, page
from stillery.reports.places import find_sources

__all__ = ["PORT", "Server", "serve"]

PORT = 8710
_HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_FILES = ("metrics.json", "log.jsonl", "predictions.parquet", "run.toml")


def serve(places: Sequence[str], port: int = PORT) -> None:
    """Serve a report until Ctrl-C. Raises UserError if nothing is named that it can be of, or the port is taken."""
    with Server(places, port) as server:
        say(f"the report is at {server.address} and follows what is written; Ctrl-C ends it")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("ended")


class Server(ThreadingHTTPServer):
    """A server of one report. It listens on the loopback interface only, and answers no request for another host."""

    daemon_threads = True

    def __init__(self, places: Sequence[str], port: int = PORT) -> None:
        self._places = tuple(places)
        self._making = threading.Lock()
        self._state = ""
        self._pages: dict[str, bytes] = {}
        self._make()
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise UserError(
                f"--port {port}: {error.strerror or error}; give another, or 0 for any that is free"
            ) from None

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{_HOST}:{self.server_address[1]}/"

    @property
    def hosts(self) -> set[str]:
        """The hosts by whose names it may be asked."""
        return {f"{name}:{self.server_address[1]}" for name in _NAMES}

    def content(self, path: str) -> bytes | None:
        """Return what stands at a path, made anew if files have changed; None for any other path."""
        with self._making:
            if path in self._pages:
                try:
                    self._make()
                except (UserError, OSError, ValueError) as error:
                    # A file that is being written can be read in a moment; until then the last page stands.
                    say(f"warning: the report is not updated: {error}")
            return self._pages.get(path)

    def _make(self) -> None:
        state = self._seen()
        if state == self._state:
            return
        with quiet():
            report = build(self._places, waiting=True)
            self._pages = {"/": page(report, served=True).encode(), "/main": main_of(report).encode()}
        self._state = state

    def _seen(self) -> str:
        """Return a hash of the files that the report is of, as far as their sizes and times tell."""
        sources, digest = find_sources(self._places), hashlib.blake2b(digest_size=12)
        folders = [Path(run) for run in sources.runs]
        for study in sources.studies:
            folders += [one for one in sorted((study / "cells").glob("*")) if one.is_dir()]
            folders += [study / "failed", study / "claims"]
        files = [folder / name for folder in folders for name in _FILES]
        for path in [*files, *folders, *sources.analyses]:
            try:
                found = path.stat()
            except OSError:
                continue
            digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
        return digest.hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "stillery", ""

    def do_GET(self) -> None:
        """Answer with the page or its content; 304 where the asker has it already."""
        # A page elsewhere could otherwise read this one by a name of its own that leads to this machine.
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"this server answers only to 127.0.0.1\n", "text/plain")
            return
        content = self.server.content(self.path.partition("?")[0])
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, b"there is one page here: /\n", "text/plain")
            return
        tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", "text/html", tag)
        else:
            self._answer(HTTPStatus.OK, content, "text/html", tag)

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""
