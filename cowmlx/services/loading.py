"""A model being loaded: a unit of the scheduler, so that others step meanwhile."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import interpreter, resources
from cowmlx.errors import Canceled
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.model import Model


WAIT_SECONDS = 0.002  # for machines, at most, before requests of hosts are looked for


class ModelToCome:
    """What a handle stands for until its model is loaded."""


class Loading(SteppedCall):
    """Runs a loader, one weight group a turn, and reports progress to its host.

    Args:
        call: ends with the model's handle.
        loader: yields how far it is, or what waits for something to go on, given the seconds to
            wait at most; returns the model.
        stream: to compute on.
        on_end: called before the call ends.
        open_model: returns a handle.
        subject: what stands for the model until it is there.
        own_python: whether the host has no Python.
    """

    def __init__(
        self,
        call: Call,
        loader: Generator[tuple[float, str] | Callable[[float], object], None, Model],
        stream: mx.Stream,
        on_end: Callable[[], object],
        open_model: Callable[[Model], int],
        subject: object = None,
        *,
        own_python: bool = False,
    ) -> None:
        super().__init__(call, loader, stream, subject, on_end)
        self._own_python = own_python
        self._wait: Callable[[float], object] | None = None
        self._open_model = open_model

    def turn(self) -> bool:
        """Do one step; false if there is none now."""
        with interpreter.uncollected(self._own_python):
            return super().turn()

    def _may_step(self) -> bool:
        """Whether the host has seen the last step's progress."""
        return self._call.ready or self._call.refused

    def _broken_off(self) -> Canceled | None:
        if not self._call.refused:
            return None
        refused = "the progress callback returned false; nothing was loaded"
        return Canceled(refused, reason="callback_refused")

    def _receive(self, value: Any) -> bool:
        self._wait = value if callable(value) else None
        if self._wait is not None:
            return False
        fraction, stage = value
        self._call.post_progress(fraction, stage)
        return True

    def block(self) -> bool:
        """Wait a little for machines, where a loader waits for some; false if it does not."""
        if self._wait is None or self.finished:
            return False
        self._wait(WAIT_SECONDS)
        return self.turn() or True

    def _release(self) -> None:
        super()._release()
        resources.give_back()  # the weights were there in two forms

    def _succeed(self, result: Any) -> None:
        handle = self._open_model(result)
        loaded = f"model loaded: {result.summary}"
        if result.form.is_slow:
            self._call.warn(
                f"{loaded}; it is computed slowly: on a CPU mlx multiplies quantized weights and "
                f"weights of 16 bits number by number, and {result.form.why_not}"
            )
        else:
            self._call.note(loaded)
        self._call.succeed(handle)
