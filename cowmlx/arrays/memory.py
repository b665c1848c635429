"""Elements in memory become an array of mlx's."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.arrays import dtypes
from cowmlx.generated.constants import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    Format = Literal["?", "b", "B", "h", "H", "i", "I", "q", "Q", "f"]

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
