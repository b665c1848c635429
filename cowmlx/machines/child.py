"""The process of the first rank, on this machine: started, and ended, by the host alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from cowmlx.errors import NotFound
from cowmlx.machines.wire import Connection

REAP_SECONDS = 0.05  # to wait for its end; later ends are handled with the next process
_MAX_PATHS = 1 << 15  # bytes of JSON; a rank reads a line of 64 KiB
_INHERITED = 3  # its end of the connection, as the rank sees it
_ending: list[int] = []  # killed processes that were not waited for


class Child:
    """A rank's process; its config is in ``cowmlx.ranks.start``."""

    def __init__(self, config: dict[str, Any]) -> None:
        reap()
        ours, its = socket.socketpair()
        self.connection = Connection(ours)
        try:
            more = {"parent": os.getpid(), "paths": _paths()}
            self.pid: int = _spawn(its.fileno(), {**config, **more})
        except BaseException:
            self.connection.close()
            raise
        finally:
            its.close()

    def end(self) -> None:
        """Kill it, if it is still there."""
        self.connection.close()
        if self.pid:
            if _is_there(self.pid):
                with suppress(OSError):
                    os.kill(self.pid, signal.SIGKILL)
                _ending.append(self.pid)
            self.pid = 0
        until = time.monotonic() + REAP_SECONDS
        while _ending and time.monotonic() < until:
            reap()
            time.sleep(0.001)


def reap() -> None:
    """Remove ended processes from the system's table."""
    _ending[:] = [pid for pid in _ending if _is_there(pid)]


def _is_there(pid: int) -> bool:
    """Whether a child still runs; false if the host's own code has waited for it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except OSError:
        return False


def _spawn(descriptor: int, config: dict[str, Any]) -> int:
    program = python(sys.prefix)
    lines, given = _high(os.pipe())
    try:
        # The thread that starts it blocks all signals, and the host may ignore some.
        pid = os.posix_spawn(
            program,
            [program, "-I", "-c", _PROGRAM, _place()],
            os.environ,
            file_actions=[
                # First: a host without standard streams may have it in the place of one.
                (os.POSIX_SPAWN_DUP2, descriptor, _INHERITED),
                (os.POSIX_SPAWN_DUP2, lines, 0),
                # mlx's ring prints messages; the output belongs to the host.
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP),
        )
        os.write(given, json.dumps(config).encode() + b"\n")
    finally:
        os.close(lines)
        os.close(given)
    return pid


def _high(ends: tuple[int, int]) -> list[int]:
    """Return copies of a pipe's ends, above the descriptors of the child."""
    moved: list[int] = []
    try:
        for end in ends:
            moved.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _INHERITED + 1))
    except BaseException:
        for end in moved:
            os.close(end)
        raise
    finally:
        for end in ends:
            os.close(end)
    return moved


# Imports this package, whatever packages the Python has.
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import cowmlx.ranks.start as s; s.main()"


def _place() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _paths() -> list[str]:
    """Return this process's folders of modules: a host in Python may have others."""
    paths, room = [], _MAX_PATHS
    for path in dict.fromkeys(path for path in sys.path if isinstance(path, str)):
        size = len(json.dumps([path]))
        if size <= room and os.path.isabs(path) and os.path.exists(path):
            room -= size
            paths.append(path)
    return paths


def python(prefix: str) -> str:
    """Return the Python that runs ranks, which is the engine's.

    Raises:
        NotFound: the environment has no executable.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    names = [os.path.join(prefix, "bin", name) for name in (version, "python3", "python")]
    for path in names:
        if os.access(path, os.X_OK):
            return path
    message = (
        f"a model on several machines needs {names[0]} to run its first rank, and the engine's "
        "environment has no such file, as a bundle has none: link an installation of make install "
        "or of a package, or be a program in Python"
    )
    raise NotFound(message, reason="python_not_found", file=names[0])
