"""A real Chromium without a window, driven by its DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


class Browser:
    """One page of a browser: what it shows, and all that its console and its network were told."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._number, self._buffer = write, read, 0, b""
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a command to the page; returns its result."""
        return self._send(method, self._session, **parameters)

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            found = os.read(self._read, 1 << 20)
            assert found, "chromium ended"
            self._buffer += found
        line, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(line)
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.problems.append(" ".join(str(one.get("value", one)) for one in parameters["args"]))
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:500])
        if message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        return message

    def open(self, address: str) -> float:
        """Open an address; returns the seconds until it was loaded and its script had run."""
        began = time.monotonic()
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && !!document.documentElement.dataset.theme")
        return time.monotonic() - began

    def run(self, code: str) -> Any:
        """Return what JavaScript gives."""
        found = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (code, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, condition: str, seconds: float = 20) -> None:
        """Wait until a condition in JavaScript holds."""
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {condition}"
            time.sleep(0.03)

    def click(self, selector: str) -> None:
        """Click an element."""
        self.run(f"document.querySelector({selector!r}).click()")

    def press(self, key: str) -> None:
        """Press a key on the keyboard."""
        codes = {"Enter": 13, "Tab": 9}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def choose(self, name: str, value: str) -> None:
        """Type into a field, or choose of a list, by its id."""
        self.run(
            f"(() => {{ const one = document.getElementById({name!r}); one.value = {value!r};"
            " one.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the size of the window in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip

    def prefers(self, scheme: str) -> None:
        """Set what the system prefers: dark or light."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def draw_all(self) -> None:
        """Scroll through the page until every chart is drawn."""
        for place in range(self.run("document.querySelectorAll('.chart').length")):
            self.run(f"document.querySelectorAll('.chart')[{place}].scrollIntoView()")
            self.until(f"document.querySelectorAll('.chart')[{place}].dataset.state === 'drawn'")
        self.run("window.scrollTo(0, 0)")

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """Write a PNG of what is seen, or of the whole page."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with a profile of its own; it is ended with the block."""
    assert CHROMIUM is not None, "chromium is missing: apt install chromium"
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()

    def pipes() -> None:
        # DevTools reads from 3 and writes to 4; the copies first, as either number may be taken.
        read, write = os.dup(theirs_read), os.dup(theirs_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
        "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={profile}", "about:blank"], preexec_fn=pipes, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_read)
        os.close(theirs_write)
        try:
            yield Browser(ours_write, ours_read)
        finally:
            process.terminate()
            process.wait(30)
            os.close(ours_read)
            os.close(ours_write)
