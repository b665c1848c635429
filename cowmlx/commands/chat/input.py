"""Input of a chat: lines edited with prompt_toolkit or readline, or the lines of a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from cowmlx.commands.chat import session as sessions
from cowmlx.commands.terminal import CommandError

_MAX_HISTORY = 1000  # lines
_MAX_MESSAGE = 64 << 20  # bytes


def is_terminal() -> bool:
    """Whether a user writes and reads here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def reader() -> Callable[[str], str]:
    """Return a function that reads a message; it raises EOFError or KeyboardInterrupt."""
    if is_terminal():
        try:
            return _editing()
        except ModuleNotFoundError:
            _use_readline()
    return _plain


def advice() -> str:
    """Return how to get a better chat than plain text; "" where there is nothing to add."""
    lacking = [name for name in ("prompt_toolkit", "rich") if find_spec(name) is None]
    if not lacking or not is_terminal():
        return ""
    return (
        f"\nMarkdown and a better editor come with the extra chat: "
        f"{sys.executable} -m pip install {' '.join(lacking)}"
    )


def whole() -> str:
    """Read the standard input to its end, as one message.

    Raises:
        CommandError: it is no text, or too long.
    """
    data = sys.stdin.buffer.read(_MAX_MESSAGE + 1)
    if len(data) > _MAX_MESSAGE:
        raise CommandError(f"the standard input has more than {_MAX_MESSAGE:,} bytes", 2)
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        what = f"{error.reason} at byte {error.start}"
        raise CommandError(f"the standard input is not UTF-8: {what}", 2) from None


def _plain(prompt: str) -> str:
    """Read a message; in a terminal, a line that ends with a backslash continues in the next."""
    lines = [_line(prompt)]
    while sys.stdin.isatty() and lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_line("  "))
    return "\n".join(lines)


def _line(prompt: str) -> str:
    if not sys.stdin.isatty():
        prompt = ""
    elif not sys.stdout.isatty():  # where the answers go
        sys.stderr.write(prompt)
        sys.stderr.flush()
        prompt = ""
    try:
        text = input(prompt)
        text.encode()  # Python lets odd bytes through in some locales
        return text
    except UnicodeError:
        raise CommandError("the standard input is not UTF-8", 2) from None
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            sys.stderr.write("\n")  # the line has no end yet
        raise


def _use_readline() -> None:
    """Let input() edit lines, go through earlier ones, and complete names."""
    try:
        import readline
    except ModuleNotFoundError:  # a Python that was built without it
        return
    choices: list[str] = []

    def complete(_: str, state: int) -> str | None:
        if state == 0:
            choices[:] = sessions.completions(readline.get_line_buffer()[: readline.get_endidx()])
        return choices[state] if state < len(choices) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    if path := _history("chat_lines"):
        import atexit

        with contextlib.suppress(OSError):
            readline.read_history_file(path)
        readline.set_history_length(_MAX_HISTORY)
        atexit.register(_write_history, readline, path)


def _write_history(readline: Any, path: str) -> None:
    with contextlib.suppress(OSError):
        readline.write_history_file(path)


def _editing() -> Callable[[str], str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.shortcuts import CompleteStyle

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

    class Commands(Completer):
        """Completes the chat's commands, and their files."""

        def get_completions(self, document: Any, _: Any) -> Iterable[Completion]:
            line = document.text_before_cursor
            length = len(line.partition(" ")[2]) if " " in line else len(line)
            for text in sessions.completions(line):
                yield Completion(text, -length)

    path = _history("chat_history")
    history = FileHistory(path) if path else InMemoryHistory()
    session: PromptSession[str] = PromptSession(
        history=history,
        key_bindings=keys,
        multiline=True,
        prompt_continuation="  ",
        completer=Commands(),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        reserve_space_for_menu=0,
    )
    return lambda prompt: session.prompt(ANSI(f"\x1b[1;32m{prompt}\x1b[0m"))


def _history(name: str) -> str:
    """Return the history's file, readable by the user alone; "" if it cannot be written."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(state, "cowmlx", name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        return ""
    return path
