"""What Python code prints, kept from the host's terminal."""

from __future__ import annotations

import sys


class CapturedOutput:
    """Stands in for ``sys.stdout`` and ``sys.stderr`` of an interpreter that we booted.

    The last LIMIT characters are kept in ``text`` until the next log message
    takes them along.
    """

    LIMIT = 4096
    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def install(self) -> None:
        """Take the place of both streams."""
        sys.stdout = sys.stderr = self

    def write(self, text: str) -> int:
        """Keep the end of what is written."""
        self.text = (self.text + text)[-self.LIMIT :]
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return false: no progress bars, no colours."""
        return False

    def take(self) -> str:
        """Return what was written since the last call."""
        text, self.text = self.text.strip(), ""
        return text
