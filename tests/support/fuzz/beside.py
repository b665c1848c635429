"""A generation beside all cases: its tokens stay right, and it never waits long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from support.library import Library
from support.paths import CALF
from support.signatures import DONE

TOKENS = 48
PAUSE = 0.03
LONGEST = 4.0
"""Seconds that a token may take on a machine that does much else."""


class Beside:
    """Generates the same text over and over on a separate thread, with pauses."""

    def __init__(self, lib: Library) -> None:
        self._lib = lib
        model = lib.load(CALF)
        self._context = lib.context(model)
        self._prompt = lib.tokenize(model, "Once upon a time")
        self._wanted = [piece.token for piece in self._whole()]
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._rests = threading.Event()
        self._over = threading.Event()
        self._findings: list[str] = []
        self._begun: float | None = None
        self._thread = threading.Thread(target=self._generate, daemon=True)
        self._thread.start()

    def findings(self) -> list[str]:
        """What was wrong since the last call."""
        begun = self._begun
        if begun is not None and monotonic() - begun > LONGEST:
            self._findings.append(f"generation: waits since {monotonic() - begun:.1f} s")
        found, self._findings = self._findings, []
        return found

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A time in which nothing is generated and the context is empty."""
        self._rests.clear()
        self._goes_on.clear()
        self._rests.wait()
        yield
        self._goes_on.set()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _whole(self) -> list:
        self._lib.begin(self._context, self._prompt, max_tokens=TOKENS, temperature=0)
        pieces = self._lib.drain(self._context)
        self._lib.reset(self._context)
        return pieces

    def _generate(self) -> None:
        while not self._over.is_set():
            try:
                self._once()
            except Exception as error:
                self._findings.append(f"generation: {type(error).__name__}: {error}")
            if not self._goes_on.is_set():
                self._rests.set()
                self._goes_on.wait()

    def _once(self) -> None:
        tokens = []
        longest = 0.0
        self._timed(self._lib.begin, self._context, self._prompt, max_tokens=TOKENS, temperature=0)
        while True:
            piece, seconds = self._timed(self._lib.next, self._context)
            longest = max(longest, seconds)
            tokens.append(piece.token)
            if piece.status == DONE:
                break
            if self._goes_on.is_set():
                sleep(PAUSE)
        self._lib.reset(self._context)
        if tokens != self._wanted:
            self._findings.append(f"generation: tokens {tokens} for {self._wanted}")
        if longest > LONGEST:
            self._findings.append(f"generation: a token took {longest:.1f} s")

    def _timed(self, call, *given, **named):
        self._begun = monotonic()
        try:
            found = call(*given, **named)
            return found, monotonic() - self._begun
        finally:
            self._begun = None
