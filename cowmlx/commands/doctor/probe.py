"""Runs ``cowmlx-probe``, a host in C: a start as every host makes it, in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = Path(__file__).resolve().parent.parent.parent / "lib" / "cowmlx-probe"


@dataclass(frozen=True)
class Step:
    """What the probe told of one step: its status's name, and what came out or went wrong."""

    status: str
    text: str


class Probe:
    """One run of the probe.

    Args:
        library: to open.
        model: a model folder to load, or None.
        seconds: after which it is ended.

    Attributes:
        steps: what it told, by step: ``open``, ``start``, ``load``, ``generate``.
        failure: why it ended without telling, or "".
        errors: what was written to the standard error stream.
    """

    def __init__(self, library: Path, model: str | None, seconds: float) -> None:
        command = [str(PROGRAM), str(library), *([model] if model else [])]
        self.steps: dict[str, Step] = {}
        self.failure = self.errors = output = ""
        try:
            done = subprocess.run(command, capture_output=True, timeout=seconds)
        except OSError as error:
            self.failure = f"cannot run {PROGRAM}: {error.strerror or error}"
            return
        except subprocess.TimeoutExpired as error:
            self.failure = f"did not end within {seconds:g} s"
            output = (error.stdout or b"").decode(errors="replace")
        else:
            output = done.stdout.decode(errors="replace")
            self.errors = done.stderr.decode(errors="replace").strip()
            if done.returncode < 0:
                name = signal.Signals(-done.returncode).name
                self.failure = f"the process was ended by {name}"
            elif done.returncode > 1:
                self.failure = f"the process ended with {done.returncode}"
        for line in output.splitlines():
            name, _, rest = line.partition("\t")
            status, _, text = rest.partition("\t")
            self.steps[name] = Step(status, text)

    @property
    def info(self) -> dict[str, Any]:
        """What ``runtime_info`` told, or nothing."""
        step = self.steps.get("start")
        if step is None or step.status != "OK":
            return {}
        found: dict[str, Any] = json.loads(step.text)
        return found
