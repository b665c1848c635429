"""Units of the scheduler for programs: opened, described, prepared and run."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from cowmlx.arrays.table import Submitted
from cowmlx.errors import Canceled
from cowmlx.generated.constants import DTYPES, KIND_PROGRAM
from cowmlx.programs.program import Run
from cowmlx.services.computing import ArrayWork, ComputingCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.arrays.table import Held, Types
    from cowmlx.call import Call
    from cowmlx.programs.operations.row import Spec
    from cowmlx.programs.program import Program
    from cowmlx.programs.traced import Traced
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime

    Hold = Callable[[mx.array], Held]

RUN = "the run"
"""What a run is called in messages."""


class Inputs:
    """The inputs of a run, which may be lazy, or the results of submitted runs.

    Args:
        values: in the program's order.
        lazy: those to compute first.
    """

    def __init__(self, values: Sequence[mx.array | Submitted], lazy: Sequence[mx.array]) -> None:
        self._values = list(values)
        self._lazy = list(lazy)
        self._pending = [value for value in values if isinstance(value, Submitted)]

    @property
    def are_there(self) -> bool:
        """Whether the submitted runs have ended."""
        self._pending = [value for value in self._pending if not value.is_settled]
        return not self._pending

    def compute(self) -> Generator[list[mx.array] | None, None, list[mx.array]]:
        """Compute the lazy ones; return all, and drop them here.

        Raises:
            CowMlxError: the error of a submitted run.
        """
        if self._lazy:
            yield self._lazy
            self._lazy.clear()
        values = [value.get() if isinstance(value, Submitted) else value for value in self._values]
        self._values.clear()
        return values


class ProgramRun(ArrayWork):
    """One run, which waits for its inputs and then takes a turn for each of its steps.

    Args:
        call: ends with the results.
        program: the program.
        prepared: the program for these dimensions.
        inputs: its inputs; mlx computes in place those without another reference.
        arrays: has the memory limit and the stream.
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
        # A run uses no more of a call than its end.
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
    """Ends the call that waits for a run.

    Args:
        call: the call.
        hold: holds the array of a result for the caller.
    """

    def __init__(self, call: Call, hold: Hold) -> None:
        self._call = call
        self._hold = hold

    def succeed(self, results: list[mx.array]) -> bool:
        """End the call with the results."""
        return self._call.succeed([self._hold(result) for result in results])

    def fail(self, error: BaseException) -> None:
        """End the call with the error."""
        self._call.fail(error)


class Submission:
    """Settles the results of a submitted run.

    Args:
        results: a ``Submitted`` for each.
    """

    def __init__(self, results: Sequence[Submitted]) -> None:
        self._results = results

    def succeed(self, results: list[mx.array]) -> bool:
        """Settle every result."""
        for submitted, result in zip(self._results, results, strict=True):
            submitted.succeed(result)
        return True

    def fail(self, error: BaseException) -> None:
        """Settle every result with the error."""
        for submitted in self._results:
            submitted.fail(error)


def _steps(
    program: Program, prepared: Traced, inputs: Inputs, arrays: Arrays
) -> Generator[list[mx.array] | None, None, list[mx.array]]:
    values = yield from inputs.compute()
    arrays.require_room(prepared.bytes, RUN)  # other runs may have taken it since the check
    results = yield from Run(program, prepared, values).steps()
    found = [result if _is_row_major(result) else mx.contiguous(result) for result in results]
    copies = [one for one, result in zip(found, results, strict=True) if one is not result]
    if copies:
        yield copies
    return found


def types_of(specs: Sequence[Spec]) -> Types:
    """Return the header's dtypes, and the shapes, of results; these have no names any more."""
    return [
        (DTYPES[spec.dtype][0], tuple(side for side in spec.shape if isinstance(side, int)))
        for spec in specs
    ]


def row_major(array: mx.array) -> mx.array:
    """Return an evaluated array as hosts read it."""
    if _is_row_major(array):
        return array
    copy = mx.contiguous(array)
    mx.eval(copy)
    return copy


def _is_row_major(array: mx.array) -> bool:
    return array.size == 0 or memoryview(array).c_contiguous  # type: ignore[arg-type]


class ProgramWork(ComputingCall):
    """Work on a program; generations have half of the time."""

    shares_time = True


class Opening(ProgramWork):
    """Makes a program and ends the call with its handle.

    Args:
        call: the call.
        steps: makes it.
        runtime: opens it.
        arrays: has the stream for mlx's traces.
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


class Preparation(ProgramWork):
    """Prepares the first run for new dimensions; the call continues with it.

    Args:
        call: the run's.
        steps: prepares it.
        program: the program.
        arrays: has the stream for mlx's traces.
        is_canceled: whether the host has cancelled it.
        accept: begins the run, or raises an error.
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
