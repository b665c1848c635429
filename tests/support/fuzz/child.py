"""The process that carries out cases: a JSON object on a line of stdin, an answer on stdout.

What the library itself prints is a finding, so both descriptors of output lead to a file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import traceback
import warnings
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from support.fuzz import graphs, operation, runs
from support.fuzz.beside import Beside
from support.fuzz.session import Session
from support.library import Library

MEMORY = 384 << 20
"""What mlx may hold, so that extremes are refused and not computed."""
GROWTH = 1 << 20
BETWEEN = 100

KINDS = {
    "operation": operation.carry_out,
    "graph": graphs.carry_out,
    "runs": runs.carry_out,
}


class Child:
    """The library, and what it held before the first case."""

    def __init__(self, beside: bool) -> None:
        self.lib = Library()
        self.lib.start(memory_limit=MEMORY, threads=1)
        self.beside = Beside(self.lib) if beside else None
        self.handles = self._handles()
        self.active: int | None = None
        self.count = 0

    def carry_out(self, case: dict[str, Any]) -> dict[str, Any]:
        """What was found wrong, and what was done."""
        session = Session(self.lib)
        begun = monotonic()
        try:
            KINDS[case["kind"]](session, case)
        finally:
            session.free_programs()
        if self._handles() != self.handles:
            session.find(f"handles: {self._handles()} for {self.handles}")
            self.handles = self._handles()
        self.count += 1
        if self.beside is not None:
            for finding in self.beside.findings():
                session.find(finding)
        if self.count % BETWEEN == 10:
            self._check_memory(session)
        return {
            "findings": session.findings,
            "done": sorted(session.done),
            "seconds": monotonic() - begun,
        }

    def _handles(self) -> dict[str, int]:
        found = self.lib.info()["handles"]
        return {name: found[name] for name in ("array", "program")}

    def _check_memory(self, session: Session) -> None:
        if self.beside is None:
            self._compare_memory(session)
            return
        with self.beside.paused():
            self._compare_memory(session)

    def _compare_memory(self, session: Session) -> None:
        self.lib.trim_memory()
        active = self.lib.info()["memory"]["active"]
        if self.active is not None and active > self.active + GROWTH:
            session.find(f"memory: {active} bytes are held for {self.active} before")
        self.active = active if self.active is None else max(self.active, active)


def main() -> None:
    """Answer until stdin ends."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # the parent's is lower
    answers = os.fdopen(os.dup(1), "w")
    with open(sys.argv[2], "w+b", buffering=0) as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        faulthandler.enable(open(sys.argv[1], "w"))  # noqa: SIM115
        np.seterr(all="ignore")
        warnings.simplefilter("ignore")
        child = Child("--alone" not in sys.argv)
        end = 0
        for line in sys.stdin:
            try:
                answer = child.carry_out(json.loads(line))
            except Exception:
                answer = {"findings": ["fuzzer: " + traceback.format_exc()[-1500:]], "done": []}
            size = os.fstat(printed.fileno()).st_size
            if size > end:
                text = os.pread(printed.fileno(), 500, end).decode(errors="replace")
                answer["findings"].append(f"printed: {text}")
                end = size
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
