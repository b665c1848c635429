"""Drives a headless Chromium over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
OPTIONS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
OPTIONS += ["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"]
PATIENCE = 60.0  # seconds, for a machine under load


def installed() -> str | None:
    """The path of a Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class NoBrowserError(Exception):
    """There is a program, but it does not work here."""


class Browser:
    """A browser with one page.

    Attributes:
        requests: what the page has asked for.
        complaints: its uncaught errors, and those it wrote to the console.

    Args:
        path: of the program.
        profile: an empty folder.
    """

    def __init__(self, path: str, profile: Path):
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._count, self._buffer = 0, b""
        self._loaded = False
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads descriptor 3 and writes 4.
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        command = ["bash", "-c", script, path, *OPTIONS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        self._context: str | None = None
        try:
            self.renew()
        except (AssertionError, OSError) as error:
            self.close()
            raise NoBrowserError(f"{path} does not start") from error

    def renew(self) -> None:
        """Forget all that was shown, stored and heard, and show an empty page."""
        self._session = None
        if self._context:
            self.call("Target.disposeBrowserContext", browserContextId=self._context)
        self.requests.clear()
        self.complaints.clear()
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        place = {"url": "about:blank", "browserContextId": self._context}
        target = self.call("Target.createTarget", **place)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)  # it ends with its pipe
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        """The next message; events are noted."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            left = max(0, deadline - time.monotonic())
            assert select.select([self._in], [], [], left)[0], "the browser does not answer"
            data = os.read(self._in, 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        params = message.get("params", {})
        if message.get("sessionId") != self._session:
            return message  # of a page that was closed
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.complaints.append(json.dumps(params))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(json.dumps(params))
        return message

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a page, and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.call("Page.navigate", url=url)
        while not self._loaded:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Evaluate until the value is true; that value."""
        deadline = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.02)
        return value

    def screenshot(self, path: Path) -> None:
        """Write what is shown as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
