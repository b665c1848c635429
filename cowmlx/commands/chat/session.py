"""The loop of a chat: read, answer, show; and its commands, lines that begin with a slash."""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from cowmlx.commands.chat.conversation import (
    MAX_BYTES,
    Answer,
    ChatError,
    Conversation,
    load,
    save,
)
from cowmlx.commands.chat.screen import PlainScreen, shown
from cowmlx.host.generated import declarations as abi
from cowmlx.host.library import HostError

_LONG = 0.5  # seconds after which a prompt's progress is shown


class Session:
    """Conversations of one terminal.

    Args:
        conversation: the first.
        screen: its output.
        read: reads a message behind a prompt; None: there is one message, given to :meth:`ask`.
        interactive: whether a user is there: failures are then shown, otherwise raised.
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
        """The current one."""
        return self.conversations[self.at]

    def run(self) -> None:
        """Talk until the input ends."""
        assert self._read is not None
        while True:
            try:
                text = self._read("> ")
                if self._commands and text.startswith("/"):
                    _run(self, text)
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
        """Restore the messages where the body fails or is interrupted, and images that wait.

        Images that the model cannot see are dropped, or the next message would fail, too.
        """
        conversation = self.conversation
        messages, images = [*conversation.messages], conversation.images
        try:
            yield
        except BaseException as error:
            conversation.messages = messages
            if not (isinstance(error, HostError) and error.status == abi.EUNSUPPORTED):
                conversation.images = images
            raise

    def answer(self) -> None:
        """Answer, and ask for results of tools as long as the model calls some."""
        while True:
            answer = self._answer_once()
            if answer.cancelled and not self._interactive:
                raise KeyboardInterrupt
            if answer.cancelled:
                self.screen.note("(ended)")
            if answer.cancelled or not answer.calls or self._read is None:
                return
            for number, (name, _) in enumerate(answer.calls):
                self.conversation.add_result(name, self._result_of(name), number)

    def _result_of(self, tool: str) -> str:
        assert self._read is not None
        name = " ".join(shown(tool).split("\n"))
        try:
            return self._read(f"what {name} gives: ")
        except EOFError:
            if self._interactive:
                raise
            raise ChatError(f"the input ended before the result of {name}") from None

    def _answer_once(self) -> Answer:
        begun = time.monotonic()
        with interrupts() as interrupted:

            def on_event(kind: int, text: str, name: str) -> bool:
                if kind == abi.EVENT_TEXT:
                    self.screen.text(text)
                elif kind == abi.EVENT_REASONING:
                    self.screen.reasoning(text, folded=self.folded)
                elif kind == abi.EVENT_THINKING_CUT:
                    self.screen.thinking_cut()
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
def interrupts() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C fills; it does nothing else meanwhile."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


HELP = "Enter sends; Alt-Enter, or \\ at the end of a line, begins another line"


def _run(session: Session, line: str) -> None:
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = get_close_matches(name, COMMANDS, 1)
        meant = f"did you mean /{near[0]}? " if near else ""
        raise ChatError(f"there is no /{name}; {meant}/help lists what there is")
    command(session, rest.strip())


def completions(line: str) -> list[str]:
    """Return completions of a line's last word: names of commands, or of files."""
    name, space, rest = line.partition(" ")
    if not space:
        return [
            f"/{known} " if (command.__doc__ or "").partition(":")[0].isupper() else f"/{known}"
            for known, command in COMMANDS.items()
            if name and f"/{known}".startswith(name)
        ]
    if name not in ("/save", "/load", "/image"):
        return []
    paths = sorted(glob.glob(f"{glob.escape(os.path.expanduser(rest))}*"))
    return [f"{path}/" if os.path.isdir(path) else path for path in paths]


def _help(session: Session, rest: str) -> None:
    """List the commands."""
    lines = [f"/{name:8} {command.__doc__}" for name, command in COMMANDS.items()]
    session.screen.note("\n".join([*lines, f"{HELP}. Ctrl-C ends an answer, Ctrl-D the chat."]))


def _save(session: Session, rest: str) -> None:
    """FILE: write the conversation, and beside it the processed tokens."""
    save(session.conversation, _path(rest))
    session.screen.note(f"saved as {rest}")


def _load(session: Session, rest: str) -> None:
    """FILE: continue a saved conversation."""
    cached = load(session.conversation, _path(rest))
    count = len(session.conversation.messages)
    again = "" if cached else "; they are processed again with the next answer"
    session.screen.note(f"{count} messages{again}")


def _image(session: Session, rest: str) -> None:
    """FILE: add an image to the next message; without FILE, drop those that wait."""
    if not rest:
        session.conversation.images = []
        session.screen.note("no image waits")
        return
    path = _path(rest)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ChatError(f"{path} cannot be read: {error}") from None
    if len(data) > MAX_BYTES:
        raise ChatError(f"{path} has more than {MAX_BYTES} bytes")
    about = session.conversation.add_image(data)
    session.screen.note(f"an image of {about['width']} x {about['height']} with the next message")


def _fork(session: Session, rest: str) -> None:
    """Continue in a copy; the conversation as it is now stays, see /switch."""
    session.conversations.append(session.conversation.fork())
    session.at = len(session.conversations) - 1
    session.screen.note(f"conversation {session.at + 1}; /switch 1 goes back to the first")


def _switch(session: Session, rest: str) -> None:
    """NUMBER: continue another conversation."""
    count = len(session.conversations)
    if not rest.isdecimal() or not 1 <= int(rest) <= count:
        raise ChatError(f"/switch takes a number from 1 to {count}")
    session.at = int(rest) - 1
    session.screen.note(f"conversation {rest}, {len(session.conversation.messages)} messages")


def _system(session: Session, rest: str) -> None:
    """TEXT: set the system message; without a text, remove it."""
    session.conversation.set_system(rest)


def _retry(session: Session, rest: str) -> None:
    """Answer the last message again."""
    with session.unless_given_up():
        if not session.conversation.take_back():
            raise ChatError("there is no message to answer")
        session.answer()


def _think(session: Session, rest: str) -> None:
    """Show the reasoning of the last answer, and unfold or fold it from now on."""
    session.folded = not session.folded
    last = session.conversation.last
    if not session.folded and last and last.reasoning:
        session.screen.note(last.reasoning)
    session.screen.note(f"thinking is {'folded' if session.folded else 'shown'} from now on")


def _stats(session: Session, rest: str) -> None:
    """Sizes and times of the last answer and of the context."""
    info = session.conversation.info()
    lines = [f"context: {info['tokens']:,} tokens, {info['bytes'] / 1e6:,.1f} MB"]
    if last := session.conversation.last:
        stats = last.stats
        read = stats.prompt_tokens - stats.reused_tokens
        lines.append(
            f"prompt: {stats.prompt_tokens:,} tokens, {stats.reused_tokens:,} of them kept, "
            f"{_rate(read, stats.prompt_seconds)}"
        )
        lines.append(
            f"answer: {stats.generated_tokens:,} tokens, "
            f"{_rate(stats.generated_tokens, stats.generation_seconds)}, the first after "
            f"{stats.first_token_seconds:.2f} s"
        )
    session.screen.note("\n".join(lines))


def _clear(session: Session, rest: str) -> None:
    """Begin a new conversation; the system message stays."""
    conversation = session.conversation
    conversation.images = []
    conversation.messages = conversation.messages[: conversation.has_system()]


def _quit(session: Session, rest: str) -> None:
    """End the chat."""
    raise EOFError


def _path(rest: str) -> str:
    if not rest:
        raise ChatError("which file?")
    return os.path.expanduser(rest)


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f} tokens/s" if seconds > 0 else "no time"


COMMANDS: dict[str, Callable[[Session, str], None]] = {
    "help": _help,
    "save": _save,
    "load": _load,
    "image": _image,
    "fork": _fork,
    "switch": _switch,
    "system": _system,
    "retry": _retry,
    "think": _think,
    "stats": _stats,
    "clear": _clear,
    "quit": _quit,
}
