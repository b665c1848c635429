"""What comes before the runs of a program, in turns: checking, deriving, telling, tracing it."""

from __future__ import annotations

from cowmlx.errors import Canceled
from cowmlx.generated.constants import KIND_PROGRAM
from cowmlx.services.computing import ComputingCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.programs.program import Program
    from cowmlx.programs.traced import Traced
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime


class _Work(ComputingCall):
    """Work on programs, beside which generations have their half of the time."""

    shares_time = True


class Opening(_Work):
    """Makes a program; the call ends with its handle.

    Args:
        call: the call.
        steps: makes it.
        runtime: opens it.
        arrays: on whose stream mlx traces.
    """

    def __init__(
        self, call: Call, steps: Generator[Any, None, Program], runtime: Runtime, arrays: Arrays
    ) -> None:
        super().__init__(call, steps, arrays.stream)
        self._handles = runtime.handles

    def _succeed(self, result: Program) -> None:
        handle = self._handles.add(KIND_PROGRAM, result)
        if not self._call.succeed(handle):
            self._handles.remove(KIND_PROGRAM, handle)


class Telling(_Work):
    """Describes something; the call ends with the text."""

    def _succeed(self, result: str) -> None:
        self._call.succeed(result)


class Preparation(_Work):
    """Prepares the first run for new dimensions; the call goes on with it.

    Args:
        call: the run's.
        steps: prepares it.
        program: what is run.
        arrays: on whose stream mlx traces.
        is_canceled: whether the host has cancelled it.
        accept: begins the run, or raises what is wrong with it.
    """

    def __init__(
        self,
        call: Call,
        steps: Generator[Any, None, Traced],
        program: Program,
        arrays: Arrays,
        is_canceled: Callable[[], bool],
        accept: Callable[[Traced], None],
    ) -> None:
        super().__init__(call, steps, arrays.stream, program)
        self._is_canceled = is_canceled
        self._accept = accept

    def _broken_off(self) -> Canceled | None:
        return Canceled("the program was cancelled") if self._is_canceled() else None

    def _succeed(self, result: Traced) -> None:
        self._accept(result)
