"""The calls of arrays that need the engine."""

from __future__ import annotations

import time

import mlx.core as mx

from cowmlx.arrays import dtypes
from cowmlx.arrays.table import Submitted, no_handles
from cowmlx.call import keeps_call
from cowmlx.errors import BadState, InvalidArgument, TimedOut, UnknownHandle
from cowmlx.generation.waiters import FOREVER
from cowmlx.services import uploads
from cowmlx.services.computing import LAZY, ArrayStreams, ArrayWork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.services.runtime import Runtime


class Arrays:
    """Opens arrays and returns the values of open ones.

    Args:
        runtime: shared by all services.
    """

    MOST_AT_ONCE = uploads.PART  # bytes of which `value_of` needs no turns

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = runtime.arrays
        self.streams = ArrayStreams(runtime)

    @property
    def stream(self) -> mx.Stream:
        """The stream of operations on arrays."""
        return self.streams.current

    @property
    def _has_float64(self) -> bool:
        return self._runtime.streams.device.type == mx.cpu

    def start(self) -> None:
        """Let hosts open arrays."""
        self._table.start(self._has_float64)
        self._runtime.note_memory()

    def require_room(self, size: int, what: str) -> None:
        """Check the runtime's memory limit.

        Raises:
            OutOfMemory: ``size`` bytes exceed it.
        """
        self._runtime.require_room(size, what)

    def stop(self) -> None:
        """Close every array."""
        self._table.stop()
        self.streams.stop()

    def free_all(self) -> None:
        """Close every array; hosts can open others."""
        self._table.stop()
        self.start()

    def get(self, handle: int) -> mx.array:
        """Return the value of an open array, which may be lazy.

        Raises:
            UnknownHandle: it is not open.
            BadState: a run that was submitted has not given it yet.
            CowMlxError: the error of that run.
        """
        value = self.value_of(self.held(handle))
        return _settled(handle, value) if isinstance(value, Submitted) else value

    def value_of(self, held: Held) -> mx.array | Submitted:
        """Return the value of an array, which may be lazy, or the ``Submitted`` that stands for it.

        A run settles that, or an upload of the host's memory.
        """
        value = held.value
        if isinstance(value, Submitted):
            if value.value is not None:
                value = value.value
                held.set_value(value, is_computed=True)
            elif value.error is not None and held.is_computed:
                value = None  # it could not be copied then; C still has it
        if value is None:
            value = uploads.at_once(held)
        if value is None:
            self.require_room(held.memory().nbytes, "the array")
            value = Submitted()
            held.set_value(value, is_computed=False)
            self._runtime.scheduler.add(uploads.Upload(held, value, self.stream))
        return value

    def held(self, handle: int) -> Held:
        """Return the array of a handle, and keep it open meanwhile.

        Raises:
            UnknownHandle: it is not open.
        """
        # JSON's integers have no end.
        held = self._table.take(handle) if 0 < handle < 1 << 63 else None
        if held is None:
            raise UnknownHandle(f"{handle} is not an open array", handle=handle, kind="array")
        return held

    def bytes_of(self, handle: int) -> memoryview:
        """Return the elements of an open array of bytes.

        Raises:
            UnknownHandle: it is not open.
            InvalidArgument: it has another dtype, or more axes than one.
            BadState: a run that was submitted has not given it yet.
        """
        held = self.held(handle)
        if dtypes.type_of(held.dtype) != mx.uint8 or len(held.shape) != 1:
            raise InvalidArgument(
                f"array {handle} is {dtypes.name_of(held.dtype)} of {list(held.shape)}; a saved "
                "context is uint8 of one axis",
                reason="dtype_mismatch",
                argument="array",
                value=dtypes.name_of(held.dtype),
                accepted="uint8",
            )
        for arrays in self.compute(handle, held):
            mx.eval(arrays)
        return held.memory()

    def add(self, value: mx.array) -> int:
        """Open an array of a value, which may be lazy, and return its handle.

        Raises:
            OutOfMemory: too many are open.
        """
        return self.add_all([value], is_computed=False)[0]

    def add_all(self, values: Sequence[mx.array], is_computed: bool) -> list[int]:
        """Open an array of each value, or none, and return their handles.

        Args:
            values: the values.
            is_computed: whether they are evaluated; else they may be lazy.

        Raises:
            OutOfMemory: too many are open.
        """
        handles: list[int] = []
        try:
            for value in values:
                dtype = dtypes.value_of(value.dtype)
                handle = self._table.add(value, dtype, value.shape, is_computed)
                if not handle:
                    raise no_handles(self._table)
                handles.append(handle)
                if not is_computed:
                    LAZY.add(value)
        except BaseException:
            for handle in handles:
                self.close(handle)
            raise
        return handles

    def close(self, handle: int) -> None:
        """Close an array, if it is open."""
        self._table.close(handle)

    @keeps_call
    def array_wait(self, call: Call, handle: int, timeout_ms: int) -> None:
        """Wait until an array is computed; compute it if it is lazy."""
        held = self.held(handle)
        if held.is_computed:
            call.succeed()
            return
        self._runtime.scheduler.add(ArrayWait(call, handle, held, timeout_ms, self))

    @keeps_call
    def arrays_load(self, call: Call, path: str, names: list[str]) -> None:
        """Load tensors of a file."""
        from cowmlx.services import array_files  # late: few hosts have files of arrays

        tensors = array_files.wanted(path, names, self._has_float64)
        steps = array_files.load(self._table, path, tensors)
        self._runtime.scheduler.add(ArrayWork(call, steps, self.streams))

    @keeps_call
    def arrays_save(self, call: Call, path: str, names: list[str], handles: list[int]) -> None:
        """Save arrays under names."""
        from cowmlx.services import array_files  # late: few hosts have files of arrays

        array_files.check_names(names)
        arrays = dict(zip(names, [self.held(handle) for handle in handles], strict=True))
        steps = self._save(path, arrays, dict(zip(names, handles, strict=True)))
        self._runtime.scheduler.add(ArrayWork(call, steps, self.streams))

    def arrays_info(self, path: str) -> dict[str, Any]:
        """Describe the tensors of a file."""
        from cowmlx.services import array_files  # late: few hosts have files of arrays

        return array_files.info(path)

    def _save(
        self, path: str, arrays: dict[str, Held], handles: dict[str, int]
    ) -> Generator[list[mx.array] | None, None, None]:
        for name, held in arrays.items():
            yield from self.compute(handles[name], held)
        from cowmlx.services import array_files  # late: few hosts have files of arrays

        yield from array_files.save(path, arrays)

    def compute(self, handle: int, held: Held) -> Generator[list[mx.array], None, None]:
        """Make the elements of an array readable by hosts; yields lazy arrays to compute.

        Raises:
            OutOfMemory: they need more than the limit leaves.
        """
        if held.is_computed:
            return
        value = held.value
        if isinstance(value, Submitted):
            value = _settled(handle, value)
        if value is None:
            return
        self.require_room(value.nbytes, "the array")
        value = mx.contiguous(value)
        yield [value]
        if not held.is_computed:
            held.set_value(value, is_computed=True)


class ArrayWait(ArrayWork):
    """Waits for a submitted array, then makes its elements readable by hosts.

    Args:
        call: ends then.
        handle: the array's, for messages.
        held: the array.
        timeout_ms: how long to wait for a run; ``FOREVER``: no limit.
        arrays: computes it.
    """

    def __init__(
        self, call: Call, handle: int, held: Held, timeout_ms: int, arrays: Arrays
    ) -> None:
        super().__init__(call, arrays.compute(handle, held), arrays.streams, held)
        self._held = held
        self._timeout_ms = timeout_ms
        self._deadline = time.monotonic() + timeout_ms / 1000

    @property
    def shares_time(self) -> bool:
        """Whether it computes; false while it waits for a run."""
        return not isinstance(self._held.value, Submitted)

    def _may_step(self) -> bool:
        value = self._held.value
        if not isinstance(value, Submitted) or value.is_settled:
            return super()._may_step()
        if self._timeout_ms != FOREVER and time.monotonic() >= self._deadline:
            raise TimedOut(
                f"the run has not given the array within timeout_ms, {self._timeout_ms}",
                argument="timeout_ms",
                value=self._timeout_ms,
            )
        return False


def _settled(handle: int, submitted: Submitted) -> mx.array:
    """Return the value of a run that has ended."""
    if not submitted.is_settled:
        raise BadState(f"a run is still computing the array {handle}; call array_wait first")
    return submitted.get()
