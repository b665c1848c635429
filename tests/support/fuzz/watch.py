"""A child that carries out cases, and what its end, silence and growth tell."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
HANG = 100.0
"""Seconds that a case takes at most, on a machine with a processor for it."""
BUSY = 10
"""How often as long where its threads mostly wait for a processor."""
LARGEST = 3 << 30
"""Bytes that a child may have resident."""
CLOSED = "generation: StatusError: EHANDLE"


class Watched:
    """A child process, which is begun anew after one that ended or hung.

    Attributes:
        history: the cases that the child was given, since an earlier one may have harmed it.
    """

    def __init__(self, *, beside: bool = True, limit: float = HANG) -> None:
        self._arguments = [] if beside else ["--alone"]
        self._limit = limit
        self._child: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._trace = Path(self._folder.name) / "trace"
        self._printed = Path(self._folder.name) / "printed"
        self.history: list[dict[str, Any]] = []
        self._rest = b""

    def carry_out(self, case: dict[str, Any]) -> dict[str, Any]:
        """The findings of a case, a crash and a hang among them."""
        child = self._child or self._begin()
        self.history.append(case)
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(case).encode() + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        answer = self._answer()
        if answer is not None:
            size = _resident(child.pid)
            if size > LARGEST:
                answer["findings"].append(f"memory: {size >> 20} MiB resident")
                self.stop()
            if any(each.startswith(CLOSED) for each in answer["findings"]):
                self.stop()  # the library has closed all handles: later cases would say no more
            return answer
        if child.poll() is None:
            os.kill(child.pid, signal.SIGABRT)
            child.wait()
            text = self._traced()
            self._child = None
            return {"findings": [f"hang: no answer after {self._limit:.0f} s: {text}"], "done": []}
        return self._ended()

    def stop(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def _begin(self) -> subprocess.Popen[bytes]:
        self._rest = b""
        self.history = []
        self._child = subprocess.Popen(
            [
                *(sys.executable, "-m", "support.fuzz.child"),
                *(str(self._trace), str(self._printed), *self._arguments),
            ],
            cwd=TESTS,
            env={
                **os.environ,
                "PYTHONPATH": f"{TESTS.parent}:{TESTS}",
                "OPENBLAS_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self._child

    def _answer(self) -> dict[str, Any] | None:
        """A line of the child's; None if it has ended or says nothing for too long."""
        assert self._child is not None and self._child.stdout is not None
        stream = self._child.stdout.fileno()
        silences, delay = 0, _delay(self._child.pid)
        while b"\n" not in self._rest:
            if not select.select([stream], [], [], self._limit)[0]:
                before, delay = delay, _delay(self._child.pid)
                silences += 1
                if silences == BUSY or delay - before < self._limit / 2:
                    return None
                continue
            data = os.read(stream, 1 << 16)
            if not data:
                self._child.wait()
                return None
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def _ended(self) -> dict[str, Any]:
        assert self._child is not None
        status = self._child.wait()
        self._child = None
        name = signal.Signals(-status).name if status < 0 else f"exit {status}"
        return {"findings": [f"crash: {name}: {self._traced()}"], "done": []}

    def _traced(self) -> str:
        """What the child printed last, and the stacks of its threads when it ended."""
        texts = [
            path.read_text(errors="replace") if path.exists() else ""
            for path in (self._printed, self._trace)
        ]
        return f"{texts[0][-300:]}\n{texts[1][:1500]}"


def _resident(pid: int) -> int:
    statm = Path(f"/proc/{pid}/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def _delay(pid: int) -> float:
    """Seconds that the threads of a process have waited for a processor, together."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            total += int(path.read_text().split()[1])
    return total / 1e9
