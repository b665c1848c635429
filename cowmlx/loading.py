"""A model being loaded: a unit of the scheduler, so that others step meanwhile."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import Canceled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cowmlx.calls import Call
    from cowmlx.models.model import Model


class Loading:
    """Runs a loader, one weight group a turn, and tells its host how far it is."""

    priority = 0

    def __init__(
        self,
        call: Call,
        loader: Generator[tuple[float, str], None, Model],
        stream: mx.Stream,
        on_end: Callable[[Model | None], int],
    ) -> None:
        self._call = call
        self._loader = loader
        self._stream = stream
        self._on_end = on_end
        self.finished = False

    def turn(self) -> bool:
        """Load one group, unless the host still looks at the last one's progress."""
        if self.finished:
            return False
        if self._call.refused:
            self.abandon("the progress callback returned false; nothing was loaded")
            return True
        if not self._call.ready:
            return False
        try:
            with mx.stream(self._stream):
                fraction, stage = next(self._loader)
        except StopIteration as stop:
            self._end(stop.value)
        except BaseException as error:  # ends this load, and nothing else
            self._fail(error)
        else:
            self._call.post_progress(fraction, stage)
        return True

    def _end(self, model: Model) -> None:
        self.finished = True
        try:
            handle = self._on_end(model)
        except BaseException as error:  # no handle is free
            self._call.fail(error)
        else:
            self._call.succeed_with_handle(handle)

    def _fail(self, error: BaseException) -> None:
        self.finished = True
        self._on_end(None)
        self._call.fail(error)

    def abandon(self, reason: str) -> None:
        """Stop loading and free what was loaded."""
        self._loader.close()
        self._fail(Canceled(reason))
