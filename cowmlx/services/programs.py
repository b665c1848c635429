"""The calls of programs: made, derived, run, described, freed."""

from __future__ import annotations

import mlx.core as mx

from cowmlx._constants import DTYPES, KIND_PROGRAM
from cowmlx.arrays import dtypes
from cowmlx.arrays.submitted import Submitted
from cowmlx.calls import keeps_call
from cowmlx.errors import InvalidArgument, OutOfRange
from cowmlx.programs.checking import text
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.program import Program
from cowmlx.services.runs import Inputs, ProgramRun, Submission, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.calls import Call
    from cowmlx.programs.dimensions import Shape
    from cowmlx.programs.operations.row import Spec
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime

    Wanted = Sequence[tuple[int, tuple[int, ...]] | None]


class Programs:
    """Owns the programs.

    Args:
        runtime: what all calls work with.
        arrays: the arrays that runs take and give.
    """

    def __init__(self, runtime: Runtime, arrays: Arrays) -> None:
        self._runtime = runtime
        self._arrays = arrays

    def get(self, handle: int) -> Program:
        """Return the program of a handle.

        Raises:
            UnknownHandle: it is not open.
        """
        return self._runtime.handles.get(KIND_PROGRAM, handle)  # type: ignore[return-value]

    def program_create(self, source: str, params: dict[str, Any]) -> int:
        """Check a program and open it."""
        is_gpu = self._runtime.streams.device.type == mx.gpu
        with mx.stream(self._arrays.stream):
            program = Program.parse(source, is_gpu)
        return self._runtime.handles.add(KIND_PROGRAM, program)

    def program_derive(self, handle: int, spec: str) -> int:
        """Open what is derived of a program."""
        program = self.get(handle)
        with mx.stream(self._arrays.stream):
            derived = program.derive(spec, self._bound(spec))
        return self._runtime.handles.add(KIND_PROGRAM, derived)

    def _bound(self, spec: str) -> dict[str, mx.array]:
        """Return the arrays that a derivation binds, if it does."""
        names = text.read(spec, "the derivation").get("bind")
        return (
            {name: self._array(name, handle) for name, handle in names.items()}
            if isinstance(names, dict)
            else {}
        )

    def _array(self, name: str, handle: object) -> mx.array:
        if isinstance(handle, int) and not isinstance(handle, bool):
            return self._arrays.get(handle)
        raise ProgramError(
            "wrong_type",
            f"bind has {shown(handle)} for {shown(name)}, must be the handle of an array",
            argument=name,
            value=shown(handle),
            accepted="the handle of an array",
        )

    @keeps_call
    def program_run(
        self,
        call: Call,
        handle: int,
        inputs: list[Held],
        wanted: Wanted,
        params: dict[str, Any],
    ) -> None:
        """Run a program once everything that can be checked is."""
        program = self.get(handle)
        given = _donated(inputs, params["donate"])
        stream, finite = self._arrays.stream, params["check_finite"]
        with mx.stream(stream):
            values = [self._arrays.value_of(held) for held in inputs]
            lazy = [
                value
                for held, value in zip(inputs, values, strict=True)
                if isinstance(value, mx.array) and not (held.is_computed or held.handle == 0)
            ]
            stand_ins = [
                _stand_in(held) if isinstance(value, Submitted) else value
                for held, value in zip(inputs, values, strict=True)
            ]
            planned = program.run(stand_ins, check_finite=finite)
        specs = planned.specs
        _require_fits(program, specs, wanted)
        self._arrays.require_room(planned.bytes, "the run")
        del stand_ins, planned
        epoch = call.cancel_epoch

        def is_canceled() -> bool:
            known = self._runtime.handles.find(KIND_PROGRAM, handle)
            return known is program and self._runtime.cancel_epoch(handle) != epoch

        end = self._submitted(call, specs) if params["submit"] else Waiting(call, self._hold)
        if end is None:
            return
        for array in given:
            self._arrays.close(array)
        inputs.clear()
        run = ProgramRun(end, program, Inputs(values, lazy), finite, self._arrays, is_canceled)
        self._runtime.scheduler.add(run)

    def _hold(self, result: mx.array) -> Held:
        return self._arrays.hold(result, dtypes.value_of(result.dtype), result.shape, True)

    def _submitted(self, call: Call, specs: Sequence[Spec]) -> Submission | None:
        """Answer a call with arrays that are still to come; None if it cannot take them."""
        results = [Submitted() for _ in specs]
        held = [
            self._arrays.hold(result, DTYPES[spec.dtype][0], _numbers(spec.shape), False)
            for result, spec in zip(results, specs, strict=True)
        ]
        return Submission(results) if call.succeed(held) else None

    def program_info(self, handle: int, dimensions: str | None) -> dict[str, Any]:
        """Return what ``program_info`` tells."""
        program = self.get(handle)
        if dimensions is None:
            return program.info()
        return program.info(text.read(dimensions, "dimensions"))

    def program_free(self, handle: int) -> None:
        """Close a program; its runs go on, but for those that were cancelled before."""
        program = self.get(handle)
        for unit in self._runtime.scheduler.units:
            if isinstance(unit, ProgramRun) and unit.subject is program:
                unit.attend()
        self._runtime.handles.remove(KIND_PROGRAM, handle)


def _numbers(shape: Shape) -> list[int]:
    """Return a shape of a run, which has no names."""
    return [side for side in shape if isinstance(side, int)]


def _stand_in(held: Held) -> mx.array:
    """Return an array of a type whose values are still to come; it is never computed."""
    return mx.zeros(held.shape, dtypes.type_of(held.dtype))


def _donated(inputs: Sequence[Held], indices: Sequence[int]) -> list[int]:
    """Return the handles of inputs that are given up.

    Raises:
        InvalidArgument: there is no such input, or it is no array.
    """
    found = []
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
        found.append(inputs[index].handle)
    return found


def _require_fits(program: Program, specs: Sequence[Spec], wanted: Wanted) -> None:
    """Check that results fit where the host wants them.

    Raises:
        ProgramError: there are more or fewer, or memory is of another dtype or shape.
    """
    if len(wanted) != len(specs):
        names = ", ".join(shown(each.name) for each in program.outputs[:16])
        raise ProgramError(
            "missing" if len(wanted) < len(specs) else "out_of_range",
            f"the run has {len(wanted)} outputs, must have {len(specs)}: {names}",
            argument="outputs",
            value=len(wanted),
            accepted=f"{len(specs)}",
        )
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
