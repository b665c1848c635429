"""What the user writes: with history and several lines where prompt_toolkit is installed."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HELP = "Enter sends; Alt-Enter, or \\ at the end of a line, begins another line"


def reader() -> Callable[[str], str]:
    """Return what reads one message; it raises EOFError at the end, KeyboardInterrupt on Ctrl-C."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            return _editing()
        except ModuleNotFoundError:
            pass
    return _plain


def _plain(prompt: str) -> str:
    """Read a message; a line that ends with a backslash goes on with the next."""
    lines = [input(prompt if sys.stdin.isatty() else "")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("  " if sys.stdin.isatty() else ""))
    return "\n".join(lines)


def _editing() -> Callable[[str], str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline()
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    path = _history()
    history = FileHistory(path) if path else InMemoryHistory()
    session: PromptSession[str] = PromptSession(
        history=history, key_bindings=keys, multiline=True, prompt_continuation="  "
    )
    return lambda prompt: session.prompt(ANSI(f"\x1b[1;32m{prompt}\x1b[0m"))


def _history() -> str:
    """Return the file of what was written before, readable by the user alone; "" if none can be."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(state, "cowmlx", "chat_history")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return ""
    return path
