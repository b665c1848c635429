"""The element types of arrays: the header's values and mlx's types."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import CowMlxError
from cowmlx.generated.constants import DTYPES

# mlx calls its type of truth values bool_.
_TYPES: dict[int, mx.Dtype] = {
    value: getattr(mx, "bool_" if name == "bool" else name) for name, (value, _) in DTYPES.items()
}
_VALUES = {dtype: value for value, dtype in _TYPES.items()}
_NAMES = {value: name for name, (value, _) in DTYPES.items()}


def type_of(value: int) -> mx.Dtype:
    """Return mlx's type of a value of the header's."""
    return _TYPES[value]


def value_of(dtype: mx.Dtype) -> int:
    """Return the header's value of a type of mlx's."""
    return _VALUES[dtype]


def name_of(value: int) -> str:
    """Return the name of a value of the header's, such as "float32"."""
    return _NAMES[value]


def require_declared(value: mx.array, dtype: int, shape: tuple[int, ...]) -> None:
    """Check a value's declared dtype and shape, before hosts copy its elements.

    Args:
        value: the value.
        dtype: one of ``DTYPES``'s values.
        shape: sizes.

    Raises:
        CowMlxError: they differ: a fault of the computation.
    """
    if value.shape != shape or value.dtype != _TYPES[dtype]:
        raise CowMlxError(
            f"an array was declared as {_NAMES[dtype]} of {list(shape)}, but {_text(value.dtype)} "
            f"of {list(value.shape)} was computed"
        )


def _text(dtype: mx.Dtype) -> str:
    return _NAMES.get(_VALUES.get(dtype, 0), str(dtype))
