"""The Python that libcowmlx boots: its captured output, and when it collects garbage.

A host's Python keeps its own settings: a thread of the host that saved and restored them meanwhile,
as timeit does, would keep ours for good.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator


class CapturedOutput:
    """A replacement of ``sys.stdout`` and ``sys.stderr``, which belong to the host's terminal.

    ``text`` keeps the last LIMIT characters until the next log message includes them.
    """

    LIMIT = 4096
    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def install(self) -> None:
        """Replace both streams."""
        sys.stdout = sys.stderr = self

    def write(self, text: str) -> int:
        """Keep the end of the text."""
        self.text = (self.text + text)[-self.LIMIT :]
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return false: no progress bars, no colors."""
        return False

    def take(self) -> str:
        """Return the text since the last call."""
        text, self.text = self.text.strip(), ""
        return text


@contextmanager
def uncollected(is_own: bool) -> Generator[None, None, None]:
    """Collect no garbage in the body, if the Python is our own: imports and loading leave none."""
    if not is_own:
        yield
        return
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def collect_from_now() -> None:
    """Collect garbage among new objects alone; for a Python of our own."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.enable()
