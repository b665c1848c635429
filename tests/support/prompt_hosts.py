"""Processes whose runtimes tests start and stop."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from support.paths import ROOT

HOST = ROOT / "tests/engine/hosts/restarts.py"


class Process:
    """A host in a process, to which methods are sent."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOST)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **arguments: Any) -> Any:
            if given:
                arguments["folder"], arguments["tokens"] = str(given[0]), given[1]
            self.process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            assert answer, "the host has ended"
            return json.loads(answer)

        return call

    def end(self) -> None:
        """Let the process end."""
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
