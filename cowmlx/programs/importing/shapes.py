"""Shapes that files declare: numbers, names, and dimensions without either."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported
from cowmlx.programs import dimensions
from cowmlx.programs.dimensions import MAX_DIMENSION, MAX_RANK, Dim, DimensionError
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.operations.row import Spec


class Names:
    """The names of a file's dimensions, which may be any texts there.

    Args:
        sizes: numbers of named dimensions.
        values: all declarations of the file: a text that is a name stays as it is.

    Attributes:
        sizes: those given, and those that values of inputs have.
        seen: the names so far.
    """

    def __init__(self, sizes: Mapping[str, Any], values: Iterable[Any] = ()) -> None:
        self.sizes = dict(sizes)
        self.seen: set[str] = set()
        self._names: dict[tuple[str, int | None], str] = {}
        self._numbers: Counter[str] = Counter()
        self._taken = {
            side.dim_param
            for value in values
            for side in value.type.tensor_type.shape.dim[:MAX_RANK]
            if side.dim_param
        }

    def of(self, text: str, axis: int | None = None) -> str:
        """Return the name of a text, or of an input's axis without one."""
        if (text, axis) not in self._names:
            name = base = _plain(text if axis is None else f"{text[:60]}_{axis}")
            if axis is not None or name != text:
                while name in self._taken:
                    self._numbers[base] += 1
                    name = f"{base[:56]}_{self._numbers[base] + 1}"
            self._taken.add(name)
            self._names[text, axis] = name
        return self._names[text, axis]

    def note(self, shape: Sequence[Dim], sides: Sequence[int]) -> None:
        """Note the numbers that names have in the shape of a value."""
        for side, number in zip(shape, sides, strict=True):
            if str(side) in self.seen:
                self.sizes[str(side)] = number


def declared_spec(value: Any, what: str, names: Names) -> Spec:
    """Return the dtype and shape that a ValueInfoProto declares.

    Args:
        value: the declaration.
        what: it is, for messages.
        names: of dimensions; receives those that it has.
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
    shape = [_side(side, (value.name, at), what, names) for at, side in enumerate(tensor.shape.dim)]
    return Spec(tuple(shape), dtype)


def _side(side: Any, place: tuple[str, int], what: str, names: Names) -> Dim:
    if side.WhichOneof("value") == "dim_value" and side.dim_value >= 0:
        if side.dim_value > MAX_DIMENSION:
            raise BadFormat(f"{what} has a dimension of {side.dim_value}")
        return int(side.dim_value)
    text = side.dim_param
    if not isinstance(text, str):
        raise BadFormat(f"{what} has a dimension {shown(text)}, whose name is no text in UTF-8")
    name = text if text and text in names.sizes else names.of(text) if text else names.of(*place)
    if name in names.sizes:
        names.seen.add(name)
        number = names.sizes[name]
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
        if isinstance(whole, dimensions.Symbolic) and dimensions.names_of([whole]) <= names.seen:
            return whole
    except DimensionError:
        pass
    try:
        names.seen.add(name)
        return dimensions.named(name)
    except DimensionError as error:
        raise BadFormat(f"{what}: {error}") from None


def _plain(text: str) -> str:
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)[:64] or "dimension"
    return plain if not plain[0].isdigit() else f"_{plain}"
