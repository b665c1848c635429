"""The element types of arrays: the header's values and mlx's types."""

from __future__ import annotations

import mlx.core as mx

from cowmlx._constants import DTYPES

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
