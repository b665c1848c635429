"""Workers of ``python -m cowmlx worker`` on this machine, and the processes of ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SECRET = "a secret that all of these machines have"


class Worker:
    """A worker on a free port of the loopback.

    Args:
        models: the folder of its models.
        secret: the file of its secret.
        options: more of the command's.
        listen: where.
        within: a command that runs it somewhere else.
    """

    def __init__(
        self,
        models: Path,
        secret: Path,
        *options: str,
        listen: str = "127.0.0.1:0",
        within: tuple[str, ...] = (),
    ):
        self.process = subprocess.Popen(
            [
                *within,
                *(sys.executable, "-m", "cowmlx", "worker", "--listen", listen),
                *("--models", str(models), "--secret-file", str(secret), *options),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        found = re.search(r"listens on (\S+);", first)
        assert found, first + self.process.stderr.read()
        self.address = found[1]
        self.log: list[str] = []

    def says(self, pattern: str) -> str:
        """Wait for a line of its log, and return it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"nothing like {pattern} in {self.log}")

    def ranks(self) -> list[int]:
        """The processes of its ranks."""
        return ranks_of(self.process.pid)

    def end(self) -> None:
        """End it, and all that it runs."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.communicate(timeout=30)


def ranks_of(parent: int) -> list[int]:
    """The ranks that a process has started, itself or as a worker."""
    columns = [part for name in ("pid", "ppid", "command") for part in ("-o", f"{name}=")]
    listed = subprocess.run(
        ["ps", "-A", "-ww", *columns], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [
        int(row[0])
        for row in rows
        if len(row) > 2 and int(row[1]) == parent and "cowmlx.ranks" in row[2]
    ]


def local_ranks() -> list[int]:
    """The first ranks of the models that this process has loaded."""
    return ranks_of(os.getpid())


def on(workers: list[Worker], secret: Path, **params: Any) -> dict[str, Any]:
    """The params of a model on these workers."""
    addresses = [worker.address for worker in workers]
    timeouts = {"connect_timeout_ms": 30000}
    return {"workers": addresses, "secret_path": secret, **timeouts, **params}
