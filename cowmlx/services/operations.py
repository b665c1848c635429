"""The calls of single operations: the table, and one of its rows on arrays."""

from __future__ import annotations

import json
from functools import cache

import mlx.core as mx

from cowmlx.arrays.table import Submitted
from cowmlx.call import keeps_call
from cowmlx.programs import single
from cowmlx.programs.control import control_table
from cowmlx.programs.operations import table
from cowmlx.services.computing import ArrayWork
from cowmlx.services.runs import types_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from cowmlx.arrays.table import Launch, Types
    from cowmlx.call import Call
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.runtime import Runtime

    Given = Sequence[mx.array | Submitted | None]

MOST_LAUNCHES = 8
"""Types of inputs for which an operation is repeated."""


class Operations:
    """Applies operations of the table.

    Args:
        runtime: shared by all services.
        arrays: the arrays.

    Attributes:
        launches: what repeats operations, by names and attributes, then by the types of inputs.
    """

    def __init__(self, runtime: Runtime, arrays: Arrays) -> None:
        self._runtime = runtime
        self._arrays = arrays
        self.launches: dict[tuple[str, str | None], dict[tuple[Any, ...], Launch]] = {}

    def stop(self) -> None:
        """Repeat nothing: the next start may choose another device."""
        self.launches.clear()

    def operations_info(self) -> str:
        """Return the table of operations as JSON."""
        return _table()

    @keeps_call
    def array_apply(
        self, call: Call, operation: str, inputs: list[int], attributes: str | None
    ) -> None:
        """Apply an operation: at once, unless inputs or checks have to be computed."""
        prepared = single.prepare(operation, attributes)
        arrays, waits = self._arrays, prepared.row.checks is not None
        held = [arrays.held(handle) if handle else None for handle in inputs]
        given: list[Any] = []
        for one in held:
            value = None if one is None else arrays.value_of(one)
            waits = waits or isinstance(value, Submitted)
            given.append(value)
        gpu = self._runtime.streams.device.type == mx.gpu
        if waits:
            self._runtime.scheduler.begin(Application(call, prepared, given, gpu, arrays))
            return
        with mx.stream(arrays.stream):
            results, is_computed, _ = single.apply(prepared, given, gpu, arrays.require_room)
        call.succeed(arrays.add_all(results, is_computed))
        if is_computed:
            known = single.known(prepared, given, gpu)
            types = [(one.dtype, one.shape) for one in held if one is not None]
            self._keep_launch(prepared.row.name, (operation, attributes), known, types)

    def _keep_launch(
        self, name: str, key: tuple[str, str | None], known: single.Known, types: Types
    ) -> None:
        """Let the bridge repeat an operation that has been computed at once."""
        if known.launch is None or len(key[0]) + len(key[1] or "") > single.MAX_TEXT:
            return
        order: list[mx.array | int] = [*range(len(types))]
        launch = self._runtime.arrays.launch(
            known.launch, order, types, types_of(known.specs), known.size, name
        )
        if key not in self.launches and len(self.launches) == single.MAX_KNOWN:
            self.launches.clear()
        launches = self.launches.setdefault(key, {})
        if len(launches) == MOST_LAUNCHES:
            launches.clear()
        launches[tuple(types)] = launch


class Application(ArrayWork):
    """One operation, which waits for inputs that submitted runs make.

    Args:
        call: ends with the handles of the results.
        prepared: the operation and its attributes.
        given: the inputs.
        gpu: whether the device is a GPU.
        arrays: opens the results.
    """

    shares_time = True

    def __init__(
        self, call: Call, prepared: single.Prepared, given: Given, gpu: bool, arrays: Arrays
    ) -> None:
        super().__init__(call, _steps(prepared, given, gpu, arrays), arrays.streams)
        self._arrays = arrays
        self._pending = [value for value in given if isinstance(value, Submitted)]

    def _may_step(self) -> bool:
        self._pending = [value for value in self._pending if not value.is_settled]
        return not self._pending and super()._may_step()

    def _succeed(self, result: tuple[list[mx.array], bool]) -> None:
        self._call.succeed(self._arrays.add_all(*result))


def _steps(
    prepared: single.Prepared, given: Given, gpu: bool, arrays: Arrays
) -> Generator[list[mx.array], None, tuple[list[mx.array], bool]]:
    values = [value.get() if isinstance(value, Submitted) else value for value in given]
    results, is_computed, checks = single.apply(prepared, values, gpu, arrays.require_room)
    if checks:
        looked = [check.found for check in checks]
        yield looked
        for check in checks:
            error = check.look()
            if error is not None:
                raise error
    return results, is_computed


@cache
def _table() -> str:
    return json.dumps([*table(), *control_table()], ensure_ascii=False, allow_nan=False)
