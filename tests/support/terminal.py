"""A program in a pseudo-terminal, driven as a person drives it: wait for text, press keys."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Sequence

# Colours, moves of the cursor, titles: what a terminal acts on.
_CONTROLS = re.compile(
    r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_=>]"
)
_DEADLINE = 60.0


class Terminal:
    """A program with a terminal of 100 columns and 40 rows.

    Args:
        command: the program and its arguments.
        environment: what it sees.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]):
        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def text(self) -> str:
        """All that was written, without what a terminal acts on."""
        return _CONTROLS.sub("", self.raw)

    def press(self, keys: str) -> None:
        """Type; carriage return is Enter, code 3 Ctrl-C, code 27 Escape."""
        os.write(self.master, keys.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until text that was not waited for before matches."""
        found = self._search(pattern, _DEADLINE)
        assert found, f"{pattern!r} did not come; {self.text()[self._seen :]!r} did"
        return found

    def interrupt(self, pattern: str) -> re.Match[str]:
        """Press Ctrl-C until text matches.

        Python's ``input()`` with readline notices a signal only while it waits for a key: one that
        arrives while it shows the last key is noticed with the next signal.
        """
        for _ in range(int(_DEADLINE)):
            self.press("\x03")
            if found := self._search(pattern, 1):
                return found
        raise AssertionError(f"{pattern!r} did not come; {self.text()[self._seen :]!r} did")

    def _search(self, pattern: str, seconds: float) -> re.Match[str] | None:
        """Read until text that was not waited for before matches; None after some seconds."""
        deadline = time.monotonic() + seconds
        while True:
            if found := re.compile(pattern).search(self.text(), self._seen):
                self._seen = found.end()
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not self._is_readable(left):
                return None
            assert self._read(left), f"it ended without {pattern!r}: {self.text()!r}"

    def end(self) -> int:
        """Wait for the program's end; its exit status."""
        while self._read(_DEADLINE):
            pass
        status = self.process.wait(_DEADLINE)
        os.close(self.master)
        return status

    def _is_readable(self, seconds: float) -> bool:
        return bool(select.select([self.master], [], [], seconds)[0])

    def _read(self, seconds: float) -> bool:
        try:
            data = os.read(self.master, 65536) if self._is_readable(seconds) else b""
        except OSError:  # the other side is closed
            data = b""
        self.raw += data.decode(errors="replace")
        self._answer(data)
        return bool(data)

    def _answer(self, data: bytes) -> None:
        """Tell where the cursor is, if that is asked."""
        for _ in range(data.count(b"\x1b[6n")):
            os.write(self.master, b"\x1b[1;1R")
