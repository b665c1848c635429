"""A file descriptor that tells a host's event loop of pieces."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from cowmlx.errors import InputOutput


class WakeDescriptor:
    """A pipe that holds one byte while there is something to take.

    The host has a descriptor of its own for the reading end, and must only wait for it. If it
    reads the byte, its next call puts it back; if it closes the descriptor, it can ask for another.
    Nothing here blocks, and what the host opens under a number that it closed is left alone.

    Raises:
        InputOutput: the process has too many open files.
    """

    def __init__(self) -> None:
        try:
            self._reading, self._writing = os.pipe()  # not inherited by programs that are executed
        except OSError as error:
            raise _no_descriptor(error) from error
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)
        self._raised = False
        self._fd = -1
        try:
            self.fd()
        except BaseException:
            self.close()
            raise

    def fd(self) -> int:
        """Return the host's descriptor, the same one as long as it is open.

        Raises:
            InputOutput: it was closed, and the process has too many open files.
        """
        if not self._is_open():
            try:
                self._fd = os.dup(self._reading)
            except OSError as error:
                raise _no_descriptor(error) from error
        return self._fd

    def _is_open(self) -> bool:
        """Whether the host's descriptor is still one for this pipe."""
        if self._fd < 0:
            return False
        try:
            return os.path.sameopenfile(self._fd, self._reading)
        except OSError:
            return False

    def show(self, ready: bool) -> None:
        """Be readable, or not."""
        if ready and not self._poll.poll(0):
            os.write(self._writing, b"1")
        elif not ready and self._raised:
            with suppress(BlockingIOError):  # the host has read the byte
                os.read(self._reading, 1)
        self._raised = ready

    def close(self) -> None:
        """Close the pipe, and the host's descriptor unless the host has."""
        ours = [self._fd] if self._is_open() else []
        for descriptor in (*ours, self._reading, self._writing):
            with suppress(OSError):
                os.close(descriptor)


def _no_descriptor(error: OSError) -> InputOutput:
    return InputOutput(f"no descriptor can be opened: {error.strerror}", reason="no_descriptors")
