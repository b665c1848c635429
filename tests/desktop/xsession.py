"""A separate desktop for one program: an X server without a screen, and a bus.

The one bus stands for a user's session bus and for the accessibility bus, on which a program tells
what its window shows.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import accessibility
import pytest

T = TypeVar("T")

REGISTRY = "/usr/libexec/at-spi2-registryd"
PACKAGES = {"Xvfb": "xvfb", "xdotool": "xdotool", "dbus-daemon": "dbus-daemon"}
_BUS = """<busconfig>
  <type>session</type>
  <listen>unix:dir={folder}</listen>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


def require_tools() -> None:
    """Skip the test and name what is missing."""
    for tool, package in PACKAGES.items():
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed (Debian: {package})")
    if not os.path.exists(REGISTRY):
        pytest.skip(f"{REGISTRY} is not installed (Debian: at-spi2-core)")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 120) -> T:
    """Wait until a condition gives something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.01)
    return found


class XSession:
    """The X server and the bus.

    Attributes:
        environment: what a program needs to run on them.
        bus: the connection to the bus.

    Args:
        folder: for sockets and for what programs keep.
    """

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        (folder / "bus.conf").write_text(_BUS.format(folder=folder))
        kept = ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
        self.environment = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(runtime),
            "GDK_BACKEND": "x11",
            "GSETTINGS_BACKEND": "memory",
            "GSK_RENDERER": "cairo",
            "GTK_USE_PORTAL": "0",
            "LC_ALL": "C.UTF-8",
        }
        try:
            self.environment["DISPLAY"] = self._start_display()
            address = self._start_bus(folder / "bus.conf")
            self.environment["DBUS_SESSION_BUS_ADDRESS"] = address
            self.environment["AT_SPI_BUS_ADDRESS"] = address
            self.bus = self._stack.enter_context(accessibility.connect(address))
            self._start([REGISTRY])
            wait_for(self.bus.has_registry, f"{REGISTRY} on the bus")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all that was started, the last first."""
        self._stack.close()

    def do(self, *arguments: object, check: bool = True) -> str:
        """Let xdotool do what a user's hands would do, or search; gives what it prints."""
        command = ["xdotool", *map(str, arguments)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def _start(self, command: list[str], **options) -> subprocess.Popen:
        process = subprocess.Popen(
            command, env=self.environment, stderr=subprocess.DEVNULL, text=True, **options
        )
        self._stack.callback(_end, process)
        return process

    def _start_display(self) -> str:
        read, write = os.pipe()
        with os.fdopen(read) as told:
            command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1000x700x24"]
            self._start([*command, "-nolisten", "tcp", "-noreset"], pass_fds=[write])
            os.close(write)
            number = told.readline().strip()
        assert number, "Xvfb did not start"
        return f":{number}"

    def _start_bus(self, config: Path) -> str:
        command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--print-address"]
        process = self._start(command, stdout=subprocess.PIPE)
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address, "dbus-daemon did not start"
        return address


def _end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
