"""How long a machine that does much else has kept a process waiting."""

from __future__ import annotations

import threading
from time import monotonic
from types import TracebackType

STEP = 0.01

SLACK = 5.0  # seconds that a bound leaves to a machine that does much else, beside its lag


class Lag:
    """Counts the seconds for which a thread that had something to do did not run.

    Bounds of time hold for a machine that has nothing else to do: what this counts is added.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def _count(self) -> None:
        before = monotonic()
        while not self._over.wait(STEP):
            now = monotonic()
            self.seconds += max(0.0, now - before - 2 * STEP)
            before = now

    def __enter__(self) -> Lag:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
