"""The outlet of a context: pieces that its host takes without waiting for this thread.

It offers the front of the outbox, once a call on the context has returned at once or its host has
a descriptor. Pieces stay in the outbox until the host is known to have taken them.
"""

from __future__ import annotations

import os

from cowmlx import failures
from cowmlx.errors import InputOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cowmlx.call import LogitsQuestion
    from cowmlx.generation.handover import Handover
    from cowmlx.generation.pieces import Piece

    class Outlets(Protocol):
        """All outlets, by the handles of their contexts; the bridge implements it."""

        def begin(self, handle: int, round: int, cancel_epoch: int) -> int:
            """Begin a generation; returns the round of its pieces, 0: none is offered.

            Args:
                handle: of the context.
                round: of the call that has returned at once; 0: one that waits.
                cancel_epoch: when the call was made.
            """

        def clear(self, handle: int) -> None:
            """Forget the generation."""

        def watch(self, handle: int) -> int:
            """Return the host's descriptor, or a negative errno; pieces are offered from now on."""

        def offer(self, handle: int, round: int, piece: Piece, is_end: bool, counts: bool) -> None:
            """Let the host take a piece, or see the end.

            Args:
                handle: of the context.
                round: pieces of other rounds are dropped.
                piece: at the end one with the reason.
                is_end: it stays when the host takes it.
                counts: :meth:`taken` counts it.

            Raises:
                MemoryError: there is no memory for it.
            """

        def ask(self, handle: int, round: int, question: LogitsQuestion) -> None:
            """Let the thread that looks next answer a question."""

        def offer_failure(self, handle: int, round: int, error: BaseException) -> None:
            """Let the host see why no piece will come."""

        def taken(self, handle: int, back: bool) -> int:
            """Return how many pieces the host has taken since the last time.

            Args:
                handle: of the context.
                back: take all others back.
            """


class Outlet:
    """The outlet of one context.

    Args:
        outlets: of all contexts; None: it offers nothing.
        handle: returns the context's.
    """

    def __init__(self, outlets: Outlets | None, handle: Callable[[], int]) -> None:
        self._outlets = outlets
        self._handle = handle
        self._round = 0
        self._offered = 0  # pieces, the first of the outbox
        self._ended = False  # whether the end is offered

    @property
    def is_open(self) -> bool:
        """Whether it offers pieces, so that one is computed before the host asks."""
        return self._round != 0

    def begin(self, round: int, cancel_epoch: int) -> None:
        """Begin a generation, for a call of this round; 0: one that waits, with a descriptor."""
        if self._outlets is not None:
            self._round = self._outlets.begin(self._handle(), round, cancel_epoch)
        self._offered, self._ended = 0, False

    def clear(self) -> None:
        """Forget the generation; calls of the host come to this thread until another begins."""
        if self._outlets is not None:
            self._outlets.clear(self._handle())
        self._round = self._offered = 0

    def resume(self, generation: Handover) -> None:
        """Offer pieces once no call waits for them, if the host has a descriptor."""
        if not self._round and generation.waiter is None:
            self.begin(0, generation.cancel_epoch)

    def watch(self, generation: Handover | None) -> int:
        """Return a descriptor that is readable while there is something to take.

        Raises:
            InputOutput: the process has too many open files.
        """
        assert self._outlets is not None  # only a library calls this
        fd = self._outlets.watch(self._handle())
        if fd < 0:
            problem = os.strerror(-fd)
            failures.reraise_shortage(OSError(-fd, problem))
            raise InputOutput(f"no descriptor can be opened: {problem}", reason="no_descriptors")
        if generation is not None:
            self.resume(generation)
        return fd

    def note_taken(self, generation: Handover) -> None:
        """Let a generation know what its host has taken."""
        if self._outlets is not None and self._offered:
            self._take(generation, self._outlets.taken(self._handle(), back=False))

    def take_back(self, generation: Handover) -> None:
        """Offer nothing any more, and let the generation know what its host has taken."""
        if self._outlets is not None and (self._offered or self._ended):
            self._take(generation, self._outlets.taken(self._handle(), back=True))
            self._offered, self._ended = 0, False

    def _take(self, generation: Handover, count: int) -> None:
        for _ in range(count):
            generation.take()
        self._offered -= count

    def ask(self, question: LogitsQuestion) -> None:
        """Let the host answer a question when it looks."""
        assert self._outlets is not None
        self._outlets.ask(self._handle(), self._round, question)

    def show(self, generation: Handover) -> None:
        """Offer all pieces of the outbox, and the end."""
        if self._outlets is None or not self._round or self._ended:
            return
        handle, round, outbox = self._handle(), self._round, generation.outbox
        while self._offered < len(outbox):
            piece = outbox[self._offered]
            self._outlets.offer(handle, round, piece, piece.silent, counts=True)
            self._offered += 1
            self._ended = piece.silent
        if self._ended or not generation.ended:
            return
        self._ended = True
        if generation.error is not None:
            self._outlets.offer_failure(handle, round, generation.error)
        else:
            self._outlets.offer(handle, round, generation.last_piece(), True, counts=False)
