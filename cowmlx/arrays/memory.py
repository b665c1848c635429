"""Elements in memory become an array of mlx's."""

from __future__ import annotations

import mlx.core as mx

from cowmlx._constants import DTYPES
from cowmlx.arrays import dtypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

# Of an element's bytes, as memoryview calls them. mlx would make float32 of a buffer of doubles,
# and takes no buffer of bfloat16 or of complex numbers: so all come as integers.
_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_BYTES = dict(DTYPES.values())


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
    buffer: Any = memory.cast(_FORMATS[_BYTES[dtype]], shape or (1,))
    integers = mx.array(buffer)
    value = integers if integers.dtype == kind else integers.view(kind)
    value = value if shape else value.reshape(shape)
    mx.eval(value)
    return value
