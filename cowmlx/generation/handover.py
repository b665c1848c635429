"""The side of a generation that its host sees: what it waits for, and how it gets pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from math import inf
from time import perf_counter

from cowmlx.generated import constants
from cowmlx.generation.pieces import Piece
from cowmlx.generation.sampling.samples import settled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from cowmlx.cache.sequence import Sequence
    from cowmlx.call import LogitsQuestion
    from cowmlx.errors import CowMlxError
    from cowmlx.generation.drafting import Drafts
    from cowmlx.generation.host_logits import HostLogits
    from cowmlx.generation.outlet import Outlet
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.pieces import Stats
    from cowmlx.generation.prompt import Prompt
    from cowmlx.generation.sampling.samples import RowLogits, Step
    from cowmlx.generation.waiters import Waiter

RUN_AHEAD = 1  # tokens that may wait for their host while the next is computed


class Phase(Enum):
    """The work that a generation does in its turns.

    PROMPT -> TOKENS when the prompt is processed, TOKENS -> PROMPT when the window rolls, and to
    ENDED from both: by its last token, a cancel, the timeout or an error. ``finish`` says which.
    """

    PROMPT = "processes the prompt, or the tokens that stay when the window rolls"
    TOKENS = "generates tokens"
    ENDED = "makes no more tokens; some may wait in the outbox"


class Handover(ABC):
    """What is asked of a :class:`Generation`, and what it has given. Its state is set there."""

    params: GenerationParams
    prompt: Prompt
    phase: Phase
    finish: int
    error: CowMlxError | None
    stats: Stats
    cancel_epoch: int
    drafts: Drafts | None
    host_logits: HostLogits
    logits: RowLogits | None
    last: Piece | None
    outbox: deque[Piece]
    waiter: Waiter | None
    wanted: bool
    _deadline: float
    _held: Step | None
    _outlet: Outlet
    _sequence: Sequence

    @abstractmethod
    def cancel(self, finish: int = constants.FINISH_CANCELED, *, discard: bool = False) -> None:
        """End now."""

    @abstractmethod
    def take_answer(self) -> None:
        """Sample from logits that the host's function has changed; it may cancel."""

    # ----------------------------------------------------------------- State

    @property
    def ended(self) -> bool:
        """Whether no more tokens come, but for those in the outbox."""
        return self.phase is Phase.ENDED

    @property
    def prefilling(self) -> bool:
        """Whether tokens of the prompt, or of a window that rolls, are still to be processed."""
        return self.phase is Phase.PROMPT

    @property
    def decoding(self) -> bool:
        """Whether its steps are plain decode steps."""
        return self.phase is Phase.TOKENS and self.drafts is None

    @property
    def over(self) -> bool:
        """Whether the host has been given everything."""
        return self.phase is Phase.ENDED and not self.outbox

    @property
    def can_be_taken_back(self) -> bool:
        """Whether it has ended, and a cancel would take back pieces that wait for their host."""
        return self.ended and bool(self.outbox) and self.finish != constants.FINISH_CANCELED

    @property
    def hungry(self) -> bool:
        """Whether a call waits for a step."""
        return self.waiter is not None and not self.awaits_host and self.waiter.hungry(self)

    @property
    def awaits_host(self) -> bool:
        """Whether its next sample is held until the host's function has changed the logits."""
        return self.phase is Phase.TOKENS and self.host_logits.is_open

    @property
    def wants_step(self) -> bool:
        """Whether a step has a use: for the call that waits, or to run ahead."""
        if self.phase is Phase.ENDED or self.awaits_host:
            return False
        if self.waiter is not None:
            if self.waiter.hungry(self):
                return True
        elif (self.wanted or self._outlet.is_open) and not self.outbox:
            return True
        return self.phase is Phase.TOKENS and self.has_room(RUN_AHEAD)

    def has_room(self, ahead: int) -> bool:
        """Whether another token may wait for the host, of at most ``ahead``."""
        if self.awaits_host or len(self.outbox) >= ahead:
            return False
        return self._sequence.can_take_back(len(self.outbox) + 1)

    # -------------------------------------------------------------- The host

    def wait(self, waiter: Waiter) -> None:
        """Let a call wait here until :meth:`serve` has ended it."""
        if waiter.takes:
            self._outlet.take_back(self)
        else:
            self.wanted = True
        self.waiter = waiter

    def serve(self, cancel_epoch: int) -> bool:
        """Let the host take all pieces; a cancel or the deadline ends the generation.

        Args:
            cancel_epoch: the context's count of cancellations now.
        Returns:
            whether the call that waited has ended.
        """
        if self.awaits_host and self.host_logits.is_answered:
            self.take_answer()
        self._outlet.note_taken(self)
        finish = constants.FINISH_NONE
        if cancel_epoch != self.cancel_epoch:
            finish = constants.FINISH_CANCELED
        elif self._deadline != inf and not self.ended and perf_counter() >= self._deadline:
            finish = constants.FINISH_TIMEOUT
        if finish and self.finish != finish and not self.over:
            self.cancel(finish)
        if self.outbox:
            self.wanted = False
        self.show()
        if self.waiter is None:
            if self._outlet.is_open and not self.outbox:
                self.ask_host(self._outlet.ask)
            return False
        if not self.waiter.advance(self):
            if self.waiter.call.ready and self.waiter.hungry(self):
                self.ask_host(self.waiter.call.ask_logits)
            return False
        self.waiter = None
        self._outlet.resume(self)
        self.show()
        return True

    def ask_host(self, ask: Callable[[LogitsQuestion], None]) -> None:
        """Ask the host to change the logits of the next sample, unless it was asked."""
        if self.awaits_host:
            self.host_logits.ask(ask)

    def show(self) -> None:
        """Let the outlet offer all pieces, unless a call takes them."""
        if self.waiter is None or not self.waiter.takes:
            self._outlet.show(self)

    def note_taken(self) -> None:
        """Take note of the pieces that the host has taken from the outlet."""
        self._outlet.note_taken(self)

    def take(self) -> Piece:
        """Return the next piece: the host has it from now on."""
        piece = self.outbox.popleft()
        self.last, self.logits = piece, piece.logits
        self.stats.generated_tokens = piece.count
        self.stats.generation_seconds = piece.seconds
        return piece

    def last_piece(self) -> Piece:
        """Return the piece that every call gets once all are delivered."""
        stats = self.stats
        last = self.outbox[-1] if self.outbox else self.last
        token, logprob = (-1, None) if last is None else (last.token, last.logprob)
        numbers = len(self._sequence.tokens), stats.generated_tokens, stats.generation_seconds
        return Piece(token, b"", self.finish, True, *numbers, logprob=logprob)

    @property
    def unseen(self) -> int:
        """Tokens in the sequence that the host has not been given."""
        unseen = self.outbox[0] if self.outbox else self._held
        return 0 if unseen is None else max(0, len(self._sequence.tokens) - unseen.before)

    def settle(self) -> None:
        """Compute the logits that are kept, and let go of the batch that they were a row of."""
        if self.last is not None:
            self.last.logits = None  # they are in self.logits
        every: list[Handover | Piece] = [self, *self.outbox]
        kept = [
            (generation, generation.logits) for generation in every if generation.logits is not None
        ]
        for (each, _), row in zip(kept, settled([own for _, own in kept]), strict=True):
            each.logits = row
