"""mlx streams for what one network computes side by side on a CPU, shared by all networks."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import blas, resources

MAX_PROCESSORS = 8  # that one network uses


class Branches:
    """Streams for branches, started as they are asked for, and never freed: mlx cannot.

    Attributes:
        started: those that there are, by index.
    """

    def __init__(self) -> None:
        self.started: list[mx.ThreadLocalStream] = []

    def stream(self, index: int) -> mx.ThreadLocalStream:
        """Return a stream of the CPU, for every thread and index the same one.

        There are no more of them than other processors: higher indices share them.

        Raises:
            OutOfMemory: its thread cannot be started.
        """
        index %= max(1, min(blas.processors(), MAX_PROCESSORS) - 1)
        while index >= len(self.started):
            stream = mx.new_thread_local_stream(mx.Device(mx.cpu))
            resources.start(stream)
            self.started.append(stream)
        return self.started[index]


# One for the process, as its streams are.
BRANCHES = Branches()
