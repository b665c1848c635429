"""Machines that are network namespaces at a bridge, whose ways to each other can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from time import monotonic

NETWORK, OTHER = "10.77.0", "10.78.0"
TOOLS = ("unshare", "nsenter", "ip", "bridge")


def within() -> tuple[list[str], str]:
    """The command that runs a program in a separate network, and why it cannot, or ""."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        return [], f"not installed: {', '.join(missing)}"
    enter = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tried = subprocess.run(
        [*enter, "ip", "link", "add", "bridge", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return enter, tried.stderr.strip()


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


class Island:
    """A machine at the bridge of this one.

    Args:
        number: the last of its address.
    """

    def __init__(self, number: int):
        self.address = f"{NETWORK}.{number}"
        self._number = number
        self._port = f"island{number}"
        self._holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        own, until = os.readlink("/proc/self/ns/net"), monotonic() + 30
        while os.readlink(f"/proc/{self._holder.pid}/ns/net") == own:
            assert monotonic() < until, "no network namespace was made"
        self.within = ("nsenter", "--target", str(self._holder.pid), "--net")
        add = ("ip", "link", "add", self._port, "type", "veth", "peer", "name", "eth0")
        _run(*add, "netns", self._holder.pid)
        _run("ip", "link", "set", self._port, "master", "bridge", "up")
        _run(*self.within, "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        for name in ("eth0", "lo"):
            _run(*self.within, "ip", "link", "set", name, "up")

    def join(self, network: str, *, leave: str = "") -> None:
        """Give it an address of another network, and take that of ``leave`` from it."""
        change = (*self.within, "ip", "address")
        if leave:
            _run(*change, "del", f"{leave}.{self._number}/24", "dev", "eth0")
        self.address = f"{network}.{self._number}"
        _run(*change, "add", f"{self.address}/24", "dev", "eth0")

    def link(self, state: str) -> None:
        """Let its link to all others be "up" or "down"."""
        _run("ip", "link", "set", self._port, state)

    def isolate(self, state: str) -> None:
        """Let it reach this machine alone, and no other that is isolated: "on" or "off"."""
        _run("bridge", "link", "set", "dev", self._port, "isolated", state)

    def close(self) -> None:
        """Give it up."""
        self._holder.communicate()


def build(numbers: Sequence[int]) -> list[Island]:
    """Make islands; this process must be in a separate network."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "bridge", "type", "bridge")
    for network in (NETWORK, OTHER):
        _run("ip", "address", "add", f"{network}.1/24", "dev", "bridge")
    _run("ip", "link", "set", "bridge", "up")
    return [Island(number) for number in numbers]
