"""The calls of programs: made, derived, run, described, freed."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import json_text
from cowmlx.arrays.table import Submitted
from cowmlx.call import keeps_call
from cowmlx.errors import InvalidArgument
from cowmlx.generated.constants import KIND_PROGRAM
from cowmlx.programs.checking import text
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.program import Program
from cowmlx.services.run_requests import RunRequest
from cowmlx.services.runs import Opening, ProgramRun, ProgramWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.programs.bounds import Steps
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.run_requests import Wanted
    from cowmlx.services.runtime import Runtime


class Programs:
    """Owns the programs.

    Args:
        runtime: shared by all services.
        arrays: the arrays that runs take and give.
    """

    def __init__(self, runtime: Runtime, arrays: Arrays) -> None:
        self._runtime = runtime
        self._arrays = arrays
        runtime.device_memory.keep_more()

    def get(self, handle: int) -> Program:
        """Return the program of a handle.

        Raises:
            UnknownHandle: it is not open.
        """
        return self._runtime.handles.get(KIND_PROGRAM, handle)  # type: ignore[return-value]

    @keeps_call
    def program_create(self, call: Call, source: str, params: dict[str, Any]) -> None:
        """Check a program and open it."""
        if params["fixed"] is not None:
            raise InvalidArgument(
                "fixed is for .onnx and .mlxfn files: the dimensions of a program are in its JSON",
                reason="conflict",
                argument="fixed",
            )
        is_gpu = self._runtime.streams.device.type == mx.gpu
        self._runtime.scheduler.begin(
            Opening(call, Program.parse_steps(source, is_gpu), self._runtime, self._arrays)
        )

    @keeps_call
    def program_load(self, call: Call, path: str, params: dict[str, Any]) -> None:
        """Read the program of a file and open it."""
        from cowmlx.programs.importing import load_steps  # late: few hosts load programs

        is_gpu = self._runtime.streams.device.type == mx.gpu
        steps = load_steps(path, params["fixed"], is_gpu)
        self._runtime.scheduler.begin(Opening(call, steps, self._runtime, self._arrays))

    @keeps_call
    def program_derive(self, call: Call, handle: int, spec: str) -> None:
        """Open a program derived from another."""
        steps = self._derived(self.get(handle), spec)
        self._runtime.scheduler.begin(Opening(call, steps, self._runtime, self._arrays))

    def _derived(
        self, program: Program, spec: str
    ) -> Generator[list[mx.array] | None, None, Program]:
        read = yield from text.read_steps(spec, "the derivation")
        names = read.get("bind")
        arrays = {}
        for name, handle in names.items() if isinstance(names, dict) else ():
            arrays[name] = yield from self._array(name, handle)
        return (yield from program.derive_steps(spec, arrays))

    def _array(self, name: str, handle: object) -> Generator[list[mx.array] | None, None, mx.array]:
        """Return an array that a derivation binds, in steps."""
        if isinstance(handle, int) and not isinstance(handle, bool):
            held = self._arrays.held(handle)
            if held.is_computed:  # a host's memory, which may have to be copied first
                value = self._arrays.value_of(held)
                while isinstance(value, Submitted) and not value.is_settled:
                    yield None
            array = self._arrays.get(handle)
            yield [array]
            return array
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
        """Check a run and begin it."""
        request = RunRequest(self._runtime, self._arrays, call, handle, inputs, wanted, params)
        request.begin()

    def to_repeat(self, handle: int) -> Program | None:
        """Return an open program if runs of it may be computed at once, ahead of no other work."""
        program = self._runtime.handles.find(KIND_PROGRAM, handle)
        if not self._runtime.scheduler.is_idle or self._arrays.streams.ahead_of(None) is not None:
            return None
        return program  # type: ignore[return-value]

    @keeps_call
    def program_info(self, call: Call, handle: int, dimensions: str | None) -> None:
        """Return the result of ``program_info``."""
        steps = _described(self.get(handle), dimensions)
        self._runtime.scheduler.begin(ProgramWork(call, steps, self._arrays.stream))

    def program_free(self, handle: int) -> None:
        """Close a program; its runs continue unless they were cancelled before."""
        program = self.get(handle)
        for unit in self._runtime.scheduler.units:
            if isinstance(unit, ProgramRun) and unit.subject is program:
                unit.attend()
        self._runtime.handles.remove(KIND_PROGRAM, handle)


def _described(program: Program, dimensions: str | None) -> Steps[str]:
    given = None
    if dimensions is not None:
        given = yield from text.read_steps(dimensions, "dimensions")
    return (yield from json_text.dump_steps((yield from program.info_steps(given))))
