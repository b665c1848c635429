"""The loop of a chat: read, answer, show."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

from cowmlx.commands.chat import slash
from cowmlx.commands.chat.errors import ChatError
from cowmlx.host.generated import declarations as abi
from cowmlx.host.library import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cowmlx.commands.chat.conversation import Answer, Conversation
    from cowmlx.commands.chat.screen import PlainScreen

_LONG = 0.5  # seconds after which a prompt's progress is shown


class Session:
    """Conversations of one terminal.

    Args:
        conversation: the first.
        screen: shows.
        read: reads a message behind a prompt; None: there is one message, given to :meth:`ask`.
        interactive: whether somebody is there, so that what fails is shown and the chat goes on;
            otherwise it is raised.
        commands: whether lines that begin with a slash are commands.
    """

    def __init__(
        self,
        conversation: Conversation,
        screen: PlainScreen,
        read: Callable[[str], str] | None,
        *,
        interactive: bool,
        commands: bool,
    ):
        self.conversations = [conversation]
        self.at = 0
        self.screen = screen
        self.folded = True
        self._read = read
        self._interactive = interactive
        self._commands = commands

    @property
    def conversation(self) -> Conversation:
        """The one that goes on."""
        return self.conversations[self.at]

    def run(self) -> None:
        """Talk until the input ends."""
        assert self._read is not None
        while True:
            try:
                text = self._read("> ")
                if self._commands and text.startswith("/"):
                    slash.run(self, text)
                elif text.strip():
                    self.ask(text)
            except EOFError:
                return
            except KeyboardInterrupt:  # a line that is given up
                if not self._interactive:
                    raise
            except (ChatError, HostError) as error:
                if not self._interactive:
                    raise
                self.screen.note(str(error))

    def ask(self, text: str) -> None:
        """Answer a message; one that cannot be answered is not part of the conversation."""
        with self.unless_given_up():
            self.conversation.say(text)
            self.answer()

    @contextmanager
    def unless_given_up(self) -> Iterator[None]:
        """Leave the messages as they are, should what is done meanwhile fail or be given up."""
        conversation = self.conversation
        before = [*conversation.messages]
        try:
            yield
        except BaseException:
            conversation.messages = before
            raise

    def answer(self) -> None:
        """Answer, and ask for what the model's tools give until it needs no more of them."""
        while True:
            answer = self._answer_once()
            if answer.cancelled and not self._interactive:
                raise KeyboardInterrupt
            if answer.cancelled:
                self.screen.note("(ended)")
            if answer.cancelled or not answer.calls or self._read is None:
                return
            for number, (name, _) in enumerate(answer.calls):
                self.conversation.tell(name, self._read(f"what {name} gives: "), number)

    def _answer_once(self) -> Answer:
        begun = time.monotonic()
        with _interrupts() as interrupted:

            def on_event(kind: int, text: str, name: str) -> bool:
                if kind == abi.EVENT_TEXT:
                    self.screen.text(text)
                elif kind == abi.EVENT_REASONING:
                    self.screen.reasoning(text, folded=self.folded)
                elif kind == abi.EVENT_TOOL_CALL:
                    self.screen.tool_call(name, text)
                return not interrupted

            def on_prompt(processed: int, total: int) -> bool:
                if time.monotonic() - begun > _LONG:
                    self.screen.prompt(processed, total)
                return not interrupted

            self.screen.begin()
            try:
                answer = self.conversation.answer(on_event, on_prompt)
                self.screen.end()
                self.screen.finished(answer)
            finally:
                self.screen.close()
        return answer


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that Ctrl-C fills meanwhile, in place of what it does otherwise."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
