"""Where a context computes, and which contexts a failure there ends."""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from cowmlx.generation.context import Context

    class Places(Protocol):
        """Gives contexts a stream while they have work."""

        @property
        def idle_stream(self) -> mx.Stream:
            """The stream of short computations for contexts that have none."""

        def enter(self, context: Context) -> mx.Stream:
            """Let a context work; returns its stream."""

        def exit(self, context: Context, stream: mx.Stream, settled: bool) -> None:
            """Take a context's stream back; ``settled``: all computations there succeeded."""

        def note_spoiled(self, context: Context) -> None:
            """Note that a step of a context's batch was not computed."""


@contextmanager
def computing(context: Context, stream: mx.Stream) -> Iterator[None]:
    """Use the results of a step under way, outside the turns of its lane.

    An error ends the generation: mlx reports a failed step once, so no turn would meet it.
    """
    try:
        with mx.stream(stream):
            yield
    except BaseException as error:
        generation = context.generation
        if context.shares_steps or not (generation is None or generation.ended):
            context.fail(error)
        raise
