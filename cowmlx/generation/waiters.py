"""Waiters: calls that wait for a generation.

``advance`` hands over pieces and returns whether the call has ended; ``hungry`` says whether it
needs a step of the generation; ``takes`` whether it takes pieces.
"""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter

from cowmlx.errors import Canceled, TimedOut
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.call import Call
    from cowmlx.generation.chat import ChatAnswer, ChatEvent
    from cowmlx.generation.handover import Handover


FOREVER = (1 << 32) - 1  # milliseconds: no deadline
HELD = "the context holds the tokens processed so far"


class BeginWaiter:
    """``context_begin``, or a trim: until the prompt, or the tokens that stay, are processed.

    Args:
        call: that waits.
        result: of the call.
    """

    takes = True

    def __init__(self, call: Call, result: object = None) -> None:
        self.call = call
        self._result = result
        self._reported = -1  # tokens of the prompt that the host knows to be processed

    def hungry(self, generation: Handover) -> bool:
        """Whether the host lets the prompt go on."""
        return generation.prefilling and self.call.ready

    def advance(self, generation: Handover) -> bool:
        """Report the progress of the prompt; end the call after it."""
        if self._broken_off(generation):
            return True
        self._report_progress(generation)
        if generation.prefilling or not self.call.ready:
            return False
        self.call.succeed(self._result)
        return True

    def _broken_off(self, generation: Handover) -> bool:
        """End the call if the generation failed, was cancelled, or its host refuses it."""
        if generation.error is not None:
            self.call.fail(generation.error)
        elif self.call.refused or generation.host_logits.refused:
            generation.cancel()
            self.call.fail(
                Canceled(f"the callback returned false; {HELD}", reason="callback_refused")
            )
        elif generation.finish == constants.FINISH_CANCELED:
            self.call.fail(Canceled(f"the context was cancelled; {HELD}"))
        elif generation.finish == constants.FINISH_TIMEOUT:
            seconds = generation.params.timeout
            self.call.fail(
                TimedOut(
                    f"timeout is {seconds:g} s, which have passed; {HELD}",
                    argument="timeout",
                    value=seconds,
                )
            )
        else:
            return False
        return True

    def _report_progress(self, generation: Handover) -> None:
        if self.call.ready and generation.prompt.processed != self._reported:
            self._reported = generation.prompt.processed
            self.call.post_prompt(generation.prompt.processed, generation.stats.prompt_tokens)


class GenerateWaiter(BeginWaiter):
    """``context_generate``: until the generation has ended and all text is handed over."""

    def hungry(self, generation: Handover) -> bool:
        """Whether the host has taken all pieces."""
        return self.call.ready and not generation.outbox

    def advance(self, generation: Handover) -> bool:
        """Hand over a piece's text; end the call after the last."""
        if self._broken_off(generation):
            return True
        self._report_progress(generation)
        while self.call.ready and generation.outbox:
            piece = generation.take()
            if piece.text:
                self.call.post_text(piece.text)
        if not generation.over or not self.call.ready:
            return False
        self.call.succeed(generation.stats)
        return True


class ChatWaiter(BeginWaiter):
    """``context_chat``: until the generation has ended and all events are handed over."""

    def __init__(self, call: Call, answer: ChatAnswer) -> None:
        super().__init__(call)
        self._splitter = answer.splitter
        self._cuts = answer.budget.cuts if answer.budget is not None else ()
        self._triggered = answer.triggered
        self._events: deque[ChatEvent] = deque()
        self._complete = False  # whether the last event is known

    def hungry(self, generation: Handover) -> bool:
        """Whether the host has taken all events."""
        return self.call.ready and not generation.outbox and not self._events

    def advance(self, generation: Handover) -> bool:
        """Hand over an event; end the call after the last."""
        if self._broken_off(generation):
            return True
        self._report_progress(generation)
        while self.call.ready:
            if self._events:
                event = self._events.popleft()
                self.call.post_chat(event.kind, event.text, event.name, event.finish)
            elif generation.outbox:
                piece = generation.take()
                self._note(piece.count - 1)
                self._events.extend(self._splitter.add(piece.text.decode()))
            elif generation.over and not self._complete:
                self._complete = True
                self._events.extend(self._splitter.finish(generation.finish))
            else:
                break
        if not self._complete or self._events or not self.call.ready:
            return False
        self.call.succeed(generation.stats)
        return True

    def _note(self, before: int) -> None:
        """Tell the splitter what the constraint knows of the token behind so many."""
        if before in self._cuts:
            self._splitter.note_cut()
        begin = None if self._triggered is None else self._triggered.verbatim_from
        if begin is not None and before >= begin:
            self._splitter.note_verbatim()


class PollWaiter:
    """``context_poll``: until ``next`` would not block, or the time is over."""

    takes = False

    def __init__(self, call: Call, timeout_ms: int) -> None:
        self.call = call
        self._timeout_ms = timeout_ms
        self._deadline = perf_counter() + timeout_ms / 1000 if timeout_ms != FOREVER else inf

    def hungry(self, generation: Handover) -> bool:
        """Whether there is no piece yet."""
        return not generation.outbox

    def advance(self, generation: Handover) -> bool:
        """End the call when ``next`` would not block, or no time is left."""
        if generation.outbox or generation.ended:
            self.call.succeed()
            return True
        if self.call.ready:
            generation.ask_host(self.call.ask_logits)
        if perf_counter() >= self._deadline:
            self.call.fail(
                TimedOut(
                    f"timeout_ms is {self._timeout_ms}, and no piece is there yet; poll again",
                    argument="timeout_ms",
                    value=self._timeout_ms,
                )
            )
        else:
            return False
        return True


class NextWaiter:
    """``context_next``: until there is a piece, or none to come."""

    takes = True

    def __init__(self, call: Call) -> None:
        self.call = call

    def hungry(self, generation: Handover) -> bool:
        """Whether there is no piece yet."""
        return not generation.outbox

    def advance(self, generation: Handover) -> bool:
        """Hand over one piece. One that does not fit the host's buffer stays."""
        if generation.outbox and generation.outbox[0].silent:
            self.call.done((b"", generation.take()))
        elif generation.outbox:
            if self.call.succeed((generation.outbox[0].text, generation.outbox[0])):
                generation.take()
        elif generation.error is not None:
            self.call.fail(generation.error)
        elif generation.ended:
            self.call.done((b"", generation.last_piece()))
        else:
            return False
        return True


Waiter = BeginWaiter | NextWaiter | PollWaiter
