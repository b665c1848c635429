"""Shapes that files declare: numbers, names, and dimensions without either."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported
from cowmlx.programs import dimensions
from cowmlx.programs.dimensions import MAX_DIMENSION, MAX_RANK, Dim, DimensionError
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.operations.row import Spec


def declared_spec(value: Any, what: str, sizes: Mapping[str, Any], seen: set[str]) -> Spec:
    """Return the dtype and shape that a ValueInfoProto declares.

    Args:
        value: the declaration.
        what: it is, for messages.
        sizes: numbers of named dimensions.
        seen: receives the names of dimensions.
    """
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise Unsupported(f"{what} is {(kind or 'of no type').replace('_type', '')}, no tensor")
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, what)
    if not tensor.HasField("shape"):
        raise Unsupported(f"{what} declares no shape: its rank must be known")
    if len(tensor.shape.dim) > MAX_RANK:
        raise Unsupported(f"{what} has more than {MAX_RANK} dimensions")
    shape = [
        _side(side, f"{_name(value.name)}_{at}", what, sizes, seen)
        for at, side in enumerate(tensor.shape.dim)
    ]
    return Spec(tuple(shape), dtype)


def _side(side: Any, unnamed: str, what: str, sizes: Mapping[str, Any], seen: set[str]) -> Dim:
    if side.WhichOneof("value") == "dim_value" and side.dim_value >= 0:
        if side.dim_value > MAX_DIMENSION:
            raise BadFormat(f"{what} has a dimension of {side.dim_value}")
        return int(side.dim_value)
    text = side.dim_param or unnamed
    if not isinstance(text, str):
        raise BadFormat(f"{what} has a dimension {shown(text)}, whose name is no text in UTF-8")
    name = text if text in sizes else _name(text)
    if name in sizes:
        seen.add(name)
        number = sizes[name]
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise InvalidArgument(
                f"fixed has {shown(number)} for the dimension {shown(name)}, must be a number "
                "from 0",
                argument=name,
                accepted="a number from 0",
            )
        return number
    try:
        whole = dimensions.parse(text)
        if isinstance(whole, dimensions.Symbolic) and dimensions.names_of([whole]) <= seen:
            return whole
    except DimensionError:
        pass
    try:
        seen.add(name)
        return dimensions.named(name)
    except DimensionError as error:
        raise BadFormat(f"{what}: {error}") from None


def _name(text: str) -> str:
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)[:64] or "dimension"
    return plain if not plain[0].isdigit() else f"_{plain}"
