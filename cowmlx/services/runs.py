"""Units of the scheduler for programs: opened, described, prepared and run."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from cowmlx.arrays.table import Submitted
from cowmlx.errors import Canceled
from cowmlx.generated.constants import KIND_PROGRAM
from cowmlx.programs.program import Run
from cowmlx.services.computing import ArrayWork, ComputingCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.programs.program import Program
    from cowmlx.programs.traced import Traced
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime

    Hold = Callable[[mx.array], Held]


class Inputs:
    """What a run is given: some of it may be lazy, or be made by runs that were submitted.

    Args:
        values: in the program's order.
        lazy: those that have to be computed first.
    """

    def __init__(self, values: Sequence[mx.array | Submitted], lazy: Sequence[mx.array]) -> None:
        self._values = list(values)
        self._lazy = list(lazy)
        self._pending = [value for value in values if isinstance(value, Submitted)]

    @property
    def are_there(self) -> bool:
        """Whether the runs that make them have ended."""
        self._pending = [value for value in self._pending if not value.is_settled]
        return not self._pending

    def compute(self) -> Generator[list[mx.array] | None, None, list[mx.array]]:
        """Compute what is lazy; return all, and hold none any more.

        Raises:
            CowMlxError: that of a run.
        """
        if self._lazy:
            yield self._lazy
            self._lazy.clear()
        found = [value.get() if isinstance(value, Submitted) else value for value in self._values]
        self._values.clear()
        return found


class ProgramRun(ArrayWork):
    """One run, which waits for its inputs and then takes a turn for each of its steps.

    Args:
        call: ends with the results.
        program: what is run.
        prepared: what is computed.
        inputs: what it is given; nobody else holds what may be computed in place.
        arrays: knows what memory there may be, and on which stream is computed.
        is_canceled: whether the host has cancelled it.
    """

    shares_time = True

    def __init__(
        self,
        call: Waiting | Submission,
        program: Program,
        prepared: Traced,
        inputs: Inputs,
        arrays: Arrays,
        is_canceled: Callable[[], bool],
    ) -> None:
        # All of a call that it needs is how that ends.
        ending = cast("Call", call)
        steps = _steps(program, prepared, inputs, arrays)
        super().__init__(ending, steps, arrays.streams, program)
        self._inputs = inputs
        self._is_canceled = is_canceled

    def _may_step(self) -> bool:
        return self._is_canceled() or (self._inputs.are_there and super()._may_step())

    def _broken_off(self) -> Canceled | None:
        return Canceled("the program was cancelled") if self._is_canceled() else None


class Waiting:
    """The end of a run that a call waits for.

    Args:
        call: the call.
        hold: holds the array of a result for the caller.
    """

    def __init__(self, call: Call, hold: Hold) -> None:
        self._call = call
        self._hold = hold

    def succeed(self, results: list[mx.array]) -> bool:
        """Give the results."""
        return self._call.succeed([self._hold(result) for result in results])

    def fail(self, error: BaseException) -> None:
        """Give the error."""
        self._call.fail(error)


class Submission:
    """The end of a run that nobody waits for.

    Args:
        results: what stands for each.
    """

    def __init__(self, results: Sequence[Submitted]) -> None:
        self._results = results

    def succeed(self, results: list[mx.array]) -> bool:
        """Settle every result."""
        for submitted, result in zip(self._results, results, strict=True):
            submitted.succeed(result)
        return True

    def fail(self, error: BaseException) -> None:
        """Let every result have the error."""
        for submitted in self._results:
            submitted.fail(error)


def _steps(
    program: Program, prepared: Traced, inputs: Inputs, arrays: Arrays
) -> Generator[list[mx.array] | None, None, list[mx.array]]:
    values = yield from inputs.compute()
    arrays.require_room(prepared.bytes, "the run")  # others may have run since it was checked
    results = yield from Run(program, prepared, values).steps()
    found = [result if _is_row_major(result) else mx.contiguous(result) for result in results]
    copies = [one for one, result in zip(found, results, strict=True) if one is not result]
    if copies:
        yield copies
    return found


def row_major(array: mx.array) -> mx.array:
    """Return an evaluated array as hosts read it."""
    if _is_row_major(array):
        return array
    found = mx.contiguous(array)
    mx.eval(found)
    return found


def _is_row_major(array: mx.array) -> bool:
    return array.size == 0 or memoryview(array).c_contiguous  # type: ignore[arg-type]


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


class Preparation(_Work):
    """Prepares the first run for new dimensions; the call continues with it.

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
