"""How the elements that a host has given become mlx's: where they are, or copied in parts."""

from __future__ import annotations

from math import inf

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.arrays import dtypes
from cowmlx.arrays.table import Submitted
from cowmlx.generated.constants import DTYPES
from cowmlx.services.computing import Computation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from cowmlx.arrays.table import Held

    Format = Literal["?", "b", "B", "h", "H", "i", "I", "q", "Q", "f"]


PART = 4 << 20
"""Bytes that are copied in one turn, where they have to be: about a millisecond."""


def at_once(held: Held) -> mx.array | None:
    """Return the value of an array that is only memory; None if it has to be copied in turns."""
    size = held.memory().nbytes
    if size and kernels.available():
        value = held.adopted(_adopt)
        if value is not None:
            return value
    if size > PART:
        return None
    value = from_memory(held.memory(), held.dtype, held.shape)
    held.set_value(value, is_computed=True)
    return value


def _adopt(
    address: int, room: int, let_go: int, shape: tuple[int, ...], dtype: int
) -> tuple[mx.array, bool] | None:
    adopted: tuple[mx.array, bool] | None = kernels.module().adopt(
        address, room, let_go, shape, dtypes.type_of(dtype)
    )
    return adopted


class Upload:
    """Copies an array's memory, a part a turn: a unit of the scheduler.

    Args:
        held: the array, which has the result from then on.
        result: what is given the value, or the error.
        stream: to put the parts together on.
    """

    priority = 0
    patience = 0.0
    due = wakes = inf
    shares_time = True

    def __init__(self, held: Held, result: Submitted, stream: mx.Stream) -> None:
        self._held = held
        self._result = result
        self._stream = stream
        self._memory = held.memory()
        self._parts: list[mx.array] = []
        self._begin = 0
        self._value: mx.array | None = None
        self._computation: Computation | None = None
        self.finished = False

    def attend(self) -> None:
        """Nothing ends it early: others may wait for the array, too."""

    def block(self) -> bool:
        """Wait a short time for the whole, and continue if it is computed."""
        if self._computation is not None and not self._computation.advance(waits=True):
            return True
        return self.turn()

    def turn(self) -> bool:
        """Copy a part; false while the whole is put together, behind what is computed there."""
        if self._computation is not None and not self._computation.advance():
            return False
        try:
            with mx.stream(self._stream):
                self._step()
        except BaseException as error:  # ends what waits for the array, and nothing else
            self.finished = True
            self._result.fail(error)
        return True

    def _step(self) -> None:
        if self._value is not None:
            assert self._computation is not None
            if self._computation.error is not None:
                raise self._computation.error
            self.finished = True
            self._held.set_value(self._value, is_computed=True)
            self._result.succeed(self._value)
        elif self._begin < self._memory.nbytes:
            part = self._memory[self._begin : self._begin + PART]
            self._parts.append(from_memory(part, DTYPE_OF_BYTES, (part.nbytes,)))
            self._begin += PART
        else:
            whole = mx.concatenate(self._parts).view(dtypes.type_of(self._held.dtype))
            self._parts.clear()
            self._value = whole.reshape(self._held.shape)
            self._computation = Computation([self._value])
            self._computation.advance()


DTYPE_OF_BYTES = dtypes.value_of(mx.uint8)


# As memoryview calls them. mlx would make float32 of a buffer of doubles, and memoryview makes no
# buffer of 16-bit floats or of complex numbers: these come as integers of as many bytes.
_OWN: dict[str, Format] = {
    "bool": "?",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float32": "f",
}
_INTEGERS: dict[int, Format] = {2: "H", 8: "Q"}
_FORMATS: dict[int, Format] = {
    value: _OWN.get(name) or _INTEGERS[size] for name, (value, size) in DTYPES.items()
}


def from_memory(memory: memoryview, dtype: int, shape: tuple[int, ...]) -> mx.array:
    """Return an evaluated array with a copy of the elements.

    Args:
        memory: the elements, row-major, as bytes.
        dtype: one of ``DTYPES``'s values.
        shape: sizes; their product times the element's bytes is the memory's length.
    """
    kind = dtypes.type_of(dtype)
    if not memory.nbytes:
        empty = mx.zeros(shape, kind)
        mx.eval(empty)
        return empty
    buffer: Any = memory.cast(_FORMATS[dtype], shape)
    value = mx.array(buffer)
    if value.dtype != kind:
        value = value.view(kind)
        mx.eval(value)
    return value
