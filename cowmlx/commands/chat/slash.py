"""Commands of the chat: lines that begin with a slash."""

from __future__ import annotations

import glob
import os
from difflib import get_close_matches

from cowmlx.commands.chat import saved
from cowmlx.commands.chat.errors import ChatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.commands.chat.session import Session


HELP = "Enter sends; Alt-Enter, or \\ at the end of a line, begins another line"


def run(session: Session, line: str) -> None:
    """Do a command.

    Raises:
        ChatError: there is no such command, or it cannot be done.
    """
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = get_close_matches(name, COMMANDS, 1)
        meant = f"did you mean /{near[0]}? " if near else ""
        raise ChatError(f"there is no /{name}; {meant}/help lists what there is")
    command(session, rest.strip())


def completions(line: str) -> list[str]:
    """Return what the last word of a line can become: names of commands, or of files."""
    name, space, rest = line.partition(" ")
    if not space:
        return [
            f"/{known} " if (command.__doc__ or "").partition(":")[0].isupper() else f"/{known}"
            for known, command in COMMANDS.items()
            if name and f"/{known}".startswith(name)
        ]
    if name not in ("/save", "/load"):
        return []
    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(rest))}*"))
    return [f"{path}/" if os.path.isdir(path) else path for path in found]


def _help(session: Session, rest: str) -> None:
    """Tell what there is."""
    lines = [f"/{name:8} {command.__doc__}" for name, command in COMMANDS.items()]
    session.screen.note("\n".join([*lines, f"{HELP}. Ctrl-C ends an answer, Ctrl-D the chat."]))


def _save(session: Session, rest: str) -> None:
    """FILE: write the conversation, and beside it what the model has processed."""
    saved.save(session.conversation, _path(rest))
    session.screen.note(f"saved as {rest}")


def _load(session: Session, rest: str) -> None:
    """FILE: go on with a saved conversation."""
    cached = saved.load(session.conversation, _path(rest))
    count = len(session.conversation.messages)
    again = "" if cached else "; they are processed again with the next answer"
    session.screen.note(f"{count} messages{again}")


def _fork(session: Session, rest: str) -> None:
    """Go on in a copy; the conversation as it is now stays, see /switch."""
    session.conversations.append(session.conversation.fork())
    session.at = len(session.conversations) - 1
    session.screen.note(f"conversation {session.at + 1}; /switch 1 goes back to the first")


def _switch(session: Session, rest: str) -> None:
    """NUMBER: go on with another conversation."""
    count = len(session.conversations)
    if not rest.isdecimal() or not 1 <= int(rest) <= count:
        raise ChatError(f"/switch takes a number from 1 to {count}")
    session.at = int(rest) - 1
    session.screen.note(f"conversation {rest}, {len(session.conversation.messages)} messages")


def _system(session: Session, rest: str) -> None:
    """TEXT: what the model is told before all messages; without a text, nothing."""
    session.conversation.set_system(rest)


def _retry(session: Session, rest: str) -> None:
    """Answer the last message again."""
    with session.unless_given_up():
        if not session.conversation.take_back():
            raise ChatError("there is no message to answer")
        session.answer()


def _think(session: Session, rest: str) -> None:
    """Show what was thought before the last answer, and unfold or fold it from now on."""
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
    """Begin anew; what the system is told stays."""
    conversation = session.conversation
    conversation.messages = conversation.messages[: conversation.has_system()]


def _quit(session: Session, rest: str) -> None:
    """End the chat."""
    raise EOFError


def _path(rest: str) -> str:
    if not rest:
        raise ChatError("which file?")
    return rest


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f} tokens/s" if seconds > 0 else "no time"


COMMANDS: dict[str, Callable[[Session, str], None]] = {
    "help": _help,
    "save": _save,
    "load": _load,
    "fork": _fork,
    "switch": _switch,
    "system": _system,
    "retry": _retry,
    "think": _think,
    "stats": _stats,
    "clear": _clear,
    "quit": _quit,
}
