"""Requests for runs: checked, prepared at the first of their kind, and accepted."""

from __future__ import annotations

from typing import cast

import mlx.core as mx

from cowmlx.arrays import dtypes
from cowmlx.arrays.table import Submitted
from cowmlx.errors import InvalidArgument, OutOfRange
from cowmlx.generated.constants import KIND_PROGRAM
from cowmlx.programs.failure import ProgramError, require_count, shown
from cowmlx.programs.program import Run
from cowmlx.services.runs import (
    RUN,
    Inputs,
    Preparation,
    ProgramRun,
    Submission,
    Waiting,
    row_major,
    types_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.arrays.table import Held, Types
    from cowmlx.call import Call
    from cowmlx.programs.operations.row import Spec
    from cowmlx.programs.program import Program
    from cowmlx.programs.traced import Traced
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime

    Wanted = Sequence[tuple[int, tuple[int, ...]] | None]


class RunRequest:
    """A call of ``program_run`` until its run begins.

    Args:
        runtime: shared by all services.
        arrays: the arrays that runs take and give.
        call: ends with the results, or once the run is accepted.
        handle: the program's handle.
        inputs: the inputs; emptied as the run begins.
        wanted: dtypes and shapes of the host's memory for results; None for handles.
        params: the fields of ``cow_mlx_run_params``.

    Raises:
        UnknownHandle: the program is not open.
        InvalidArgument: ``donate`` names an input that the host cannot give up.
    """

    def __init__(
        self,
        runtime: Runtime,
        arrays: Arrays,
        call: Call,
        handle: int,
        inputs: list[Held],
        wanted: Wanted,
        params: dict[str, Any],
    ) -> None:
        self._program: Program = runtime.handles.get(KIND_PROGRAM, handle)  # type: ignore[assignment]
        self._donated = _donated(inputs, params["donate"])
        self._count = len(inputs)
        if self._program.values and len(inputs) == len(self._program.inputs) - len(
            self._program.values
        ):
            # A run asks an input for its type and value alone.
            given = [Given(value) for value in self._program.values]
            inputs.extend(cast("list[Held]", given))
        self._runtime = runtime
        self._arrays = arrays
        self._call = call
        self._epoch = call.cancel_epoch
        self._handle = handle
        self._inputs = inputs
        self._wanted = wanted
        self._is_submitted: bool = params["submit"]
        self._finite: bool = params["check_finite"]
        self._values: list[mx.array | Submitted] = []
        self._types: list[mx.array] = []
        self._waits = False
        with mx.stream(arrays.stream):
            for held in inputs:
                value = arrays.value_of(held)
                self._values.append(value)
                if isinstance(value, Submitted):
                    self._waits = True
                    value = _stand_in(held)
                self._types.append(value)

    def begin(self) -> None:
        """Accept the run, after preparing it in turns if it is the first of its kind.

        Raises:
            ProgramError, OutOfMemory: as :meth:`accept`.
        """
        prepared = self._program.prepared(self._types, self._finite)
        if prepared is not None:
            self.accept(prepared)
            return
        steps = self._program.prepare(self._types, self._finite)
        unit = Preparation(
            self._call, steps, self._program, self._arrays, self.is_canceled, self.accept
        )
        self._runtime.scheduler.begin(unit)

    def is_canceled(self) -> bool:
        """Whether the host has cancelled the program since the call."""
        known = self._runtime.handles.find(KIND_PROGRAM, self._handle)
        return known is self._program and self._runtime.cancel_epoch(self._handle) != self._epoch

    def accept(self, prepared: Traced) -> None:
        """Check the run and begin it.

        Args:
            prepared: the program for these dimensions.

        Raises:
            ProgramError: dtypes or shapes that do not fit.
            OutOfMemory: it exceeds the memory limit.
        """
        self._types.clear()
        if self._wanted != prepared.fits:
            _require_fits(self._program, prepared.specs, self._wanted)
            prepared.fits = self._wanted
        self._arrays.require_room(prepared.bytes, RUN)
        end = self._submitted(prepared.specs) if self._is_submitted else self._waiting()
        if end is None:
            return
        for array in self._donated:
            self._arrays.close(array)
        if prepared.is_one_turn and self._may_end_at_once:
            types = [(held.dtype, held.shape) for held in self._inputs[: self._count]]
            end.succeed(self._at_once(prepared))
            if not (self._donated or self._finite):
                self._keep_launch(prepared, types)
            return
        lazy = [
            value
            for held, value in zip(self._inputs, self._values, strict=True)
            if isinstance(value, mx.array) and not (held.is_computed or held.handle == 0)
        ]
        inputs = Inputs(self._values, lazy)
        del lazy
        self._inputs.clear()
        self._values.clear()
        run = ProgramRun(end, self._program, prepared, inputs, self._arrays, self.is_canceled)
        self._runtime.scheduler.add(run)

    @property
    def _may_end_at_once(self) -> bool:
        if self._is_submitted or self._waits or not self._runtime.scheduler.is_idle:
            return False
        is_there = all(held.is_computed for held in self._inputs)
        return is_there and self._arrays.streams.ahead_of(None) is None

    def _at_once(self, prepared: Traced) -> list[mx.array]:
        """Compute a run of one turn now, as no other unit waits."""
        values = [value for value in self._values if isinstance(value, mx.array)]
        self._inputs.clear()
        self._values.clear()
        with mx.stream(self._arrays.stream):
            results = Run(self._program, prepared, values).at_once()
            return [row_major(result) for result in results]

    def _keep_launch(self, prepared: Traced, types: Types) -> None:
        """Let the bridge repeat a run that has been computed at once."""
        left_out = self._program.values if len(types) < len(self._program.inputs) else ()
        found = prepared.launch([*range(len(types)), *left_out])
        if found is None:
            return
        results = types_of(prepared.specs)
        launch = self._runtime.arrays.launch(*found, types, results, prepared.bytes, RUN)
        self._program.keep_launch(tuple(types), launch)

    def _waiting(self) -> Waiting:
        return Waiting(self._call, self._hold)

    def _hold(self, result: mx.array) -> Held:
        """Hold a result; :class:`Run` has checked its type."""
        table = self._runtime.arrays
        return table.hold(result, dtypes.value_of(result.dtype), result.shape, is_computed=True)

    def _submitted(self, specs: Sequence[Spec]) -> Submission | None:
        """End the call with arrays that are settled later; None if its buffers are too small."""
        results = [Submitted() for _ in specs]
        held = [
            self._runtime.arrays.hold(result, dtype, shape, is_computed=False)
            for result, (dtype, shape) in zip(results, types_of(specs), strict=True)
        ]
        return Submission(results) if self._call.succeed(held) else None


class Given:
    """An array of a file, in place of one that a host gives.

    Args:
        value: the array, evaluated.
    """

    __slots__ = ("dtype", "shape", "value")
    handle = 0
    is_computed = True

    def __init__(self, value: mx.array) -> None:
        self.value = value
        self.dtype = dtypes.value_of(value.dtype)
        self.shape = tuple(value.shape)


def _stand_in(held: Held) -> mx.array:
    """Return a lazy array of the same type, which is never computed."""
    return mx.zeros(held.shape, dtypes.type_of(held.dtype))


def _donated(inputs: Sequence[Held], indices: Sequence[int]) -> list[int]:
    """Return the handles of donated inputs.

    Raises:
        InvalidArgument: there is no such input, or it is no array.
    """
    donated = []
    for at, index in enumerate(indices):
        if not 0 <= index < len(inputs):
            raise OutOfRange(f"donate[{at}]", index, f"0 to {len(inputs) - 1}")
        if not inputs[index].handle:
            raise InvalidArgument(
                f"donate[{at}] is {index}, but inputs[{index}] is host memory; donate takes "
                "inputs that are arrays",
                reason="conflict",
                argument=f"donate[{at}]",
                value=index,
                accepted="inputs that are arrays",
            )
        donated.append(inputs[index].handle)
    return donated


def _require_fits(program: Program, specs: Sequence[Spec], wanted: Wanted) -> None:
    """Check that results match the host's outputs.

    Raises:
        ProgramError: the number, a dtype or a shape differs.
    """
    require_count("outputs", len(wanted), len(specs), program.outputs)
    for at, (output, spec, host) in enumerate(zip(program.outputs, specs, wanted, strict=True)):
        if host is None:
            continue
        dtype, shape = dtypes.name_of(host[0]), host[1]
        if dtype != spec.dtype:
            raise ProgramError(
                "dtype_mismatch",
                f"outputs[{at}].host is of {dtype}, but {shown(output.name)} is of {spec.dtype}",
                argument=f"outputs[{at}].host",
                value=dtype,
                accepted=spec.dtype,
            )
        if shape != spec.shape:
            raise ProgramError(
                "shape_mismatch",
                f"outputs[{at}].host has the shape {list(shape)}, but {shown(output.name)} has "
                f"{[*spec.shape]}",
                argument=f"outputs[{at}].host",
                value=f"{list(shape)}",
                accepted=f"{[*spec.shape]}",
            )
