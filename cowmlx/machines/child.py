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

from cowmlx.errors import NotFound
from cowmlx.machines.wire import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REAP_SECONDS = 0.05  # that its end is waited for; what takes longer is seen to later
_MAX_PATHS = 1 << 14  # characters, of which JSON may make several bytes each
_INHERITED = 3  # its end of the connection, as the rank sees it
_ending: list[int] = []  # processes that were killed and have not been waited for


class Child:
    """A rank's process.

    Args:
        config: what it is started with, see ``cowmlx.ranks.start``.

    Attributes:
        connection: with it.
        pid: its number.
    """

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
    """Let processes that have ended leave the system's table."""
    _ending[:] = [pid for pid in _ending if _is_there(pid)]


def _is_there(pid: int) -> bool:
    """Whether a child still runs: one that the host's own code has waited for is nobody's."""
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
                # mlx's ring prints what it meets; the host's output is the host's.
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
    """Return a pipe's ends again, none of them in a place that the child has something else in."""
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


# The package is found where this one lies, whatever else the Python has.
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import cowmlx.ranks.start as s; s.main()"


def _place() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _paths() -> list[str]:
    """Return where this process finds modules: a host in Python may have places of its own."""
    found, room = [], _MAX_PATHS
    for path in dict.fromkeys(sys.path):
        if os.path.isabs(path) and os.path.exists(path) and (room := room - len(path)) > 0:
            found.append(path)
    return found


def python(prefix: str) -> str:
    """Return the Python that runs ranks: that of the environment that the engine is in.

    Args:
        prefix: of the environment.

    Raises:
        NotFound: the environment has no executable.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    names = [os.path.join(prefix, "bin", name) for name in (version, "python3", "python")]
    for path in names:
        if os.access(path, os.X_OK):
            return path
    raise NotFound(
        f"a model on several machines needs {names[0]} to run its first rank, and the engine's "
        "environment has no such file, as a bundle has none: link an installation of make install "
        "or of a package, or be a program in Python",
        reason="python_not_found",
        file=names[0],
    )
