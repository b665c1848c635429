"""A file descriptor that tells a host's event loop of pieces."""

from __future__ import annotations

import os

from cowmlx.errors import InputOutput


class WakeDescriptor:
    """The reading end of a pipe, which holds one byte while there is something to take.

    Raises:
        InputOutput: the process has too many open files.
    """

    def __init__(self) -> None:
        try:
            self.fd, self._writing = os.pipe()
        except OSError as error:
            raise InputOutput(f"no descriptor can be opened: {error.strerror}") from error
        self._raised = False

    def show(self, ready: bool) -> None:
        """Be readable, or not."""
        if ready and not self._raised:
            os.write(self._writing, b"1")
        elif not ready and self._raised:
            os.read(self.fd, 1)
        self._raised = ready

    def close(self) -> None:
        """Close both ends."""
        os.close(self.fd)
        os.close(self._writing)
