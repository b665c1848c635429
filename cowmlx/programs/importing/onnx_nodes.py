"""A node of an ONNX graph as its converter reads it, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.bounds import MAX_CONSTANT, Steps
from cowmlx.programs.dimensions import MAX_RANK, Dim
from cowmlx.programs.failure import text_of
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value, is_symbolic

Result = Value | Sequence[Value | None]
Convert = Callable[["OnnxNode"], Result | Steps[Result]]
CONVERTERS: dict[tuple[str, str], Convert] = {}
"""By domain and operator. Those that return steps have long work, or graphs within them."""
MAX_SYMBOLIC = 1 << 12
"""Elements of an array that has symbolic dimensions."""


def converts(*operators: str, domain: str = "") -> Callable[[Convert], Convert]:
    """Return a decorator that adds a converter to the table."""

    def add(convert: Convert) -> Convert:
        for operator in operators:
            CONVERTERS[domain, operator] = convert
        return convert

    return add


class OnnxNode:
    """A node, its inputs as values.

    Args:
        graph: the walk that converts it.
        proto: a NodeProto.
        attributes: its attributes as Python values; graphs and tensors as they are.
        inputs: its inputs; None for one that is left out.
        opset: the version of its domain.

    Attributes:
        scope: the graph that it becomes part of.
    """

    def __init__(
        self,
        graph: Any,
        proto: Any,
        attributes: dict[str, Any],
        inputs: list[Value | None],
        opset: int,
    ) -> None:
        self.graph = graph
        self.scope: Scope = graph.scope
        self.op: str = proto.op_type
        self.name: str = text_of(proto.name or next(iter(proto.output), ""))
        self.outputs = list(proto.output)
        self.inputs = inputs
        self.opset = opset
        self.proto = proto
        self._attributes = attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default."""
        return self._attributes.get(name, default)

    def needed(self, name: str) -> Any:
        """Return an attribute that must be there."""
        if name not in self._attributes:
            raise BadFormat(f"has no attribute {name!r}")
        return self._attributes[name]

    def optional(self, at: int) -> Value | None:
        """Return an input, or None."""
        return self.inputs[at] if at < len(self.inputs) else None

    def input(self, at: int = 0) -> Value:
        """Return an input that must be there."""
        value = self.optional(at)
        if value is None:
            raise BadFormat(f"has no input {at}")
        return value

    def has_output(self, at: int) -> bool:
        """Whether a result is used."""
        return at < len(self.outputs) and bool(self.outputs[at])

    def rest(self) -> Generator[None]:
        """Yield if the turn has been long enough."""
        return self.scope.book.pace.rest()

    def bounded(self, shape: Iterable[int], limit: int = MAX_CONSTANT) -> None:
        """Refuse an array that is computed at load and too large, before it is made.

        Args:
            shape: of the array; a side of 0 counts as 1, as the other sides alone may be arrays.
            limit: how many elements it may have.
        """
        elements = 1
        for side in shape:
            elements *= max(int(side), 1)
            if elements > limit:
                raise Unsupported(
                    f"it needs an array with more than {limit} elements at load", limit=limit
                )

    def known(self, at: int, what: str) -> Any:
        """Return an input's elements, which must be known before a run."""
        value = self.input(at)
        array = self.scope.known(value)
        if array is None:
            raise self.depends(what, self.proto.input[at])
        return array

    def depends(self, what: str, name: str) -> Unsupported:
        """Return the error of something that has to be known before a run."""
        return Unsupported(
            f"its {what} depends on the values of inputs ({name}), so shapes would too; fix that "
            "input's value at load",
            argument=what,
        )

    def numbers(self, at: int, what: str) -> list[int]:
        """Return an input's elements as numbers."""
        array = self.known(at, what)
        if is_symbolic(array):
            shown = np.ravel(array)[:MAX_RANK].tolist()
            raise Unsupported(f"its {what} {shown} depends on dimensions without a number")
        return [int(number) for number in np.ravel(array)]

    def dims(self, at: int, what: str) -> list[Dim]:
        """Return an input's elements as dimensions, one for each axis."""
        array = np.ravel(self.known(at, what))
        if array.size > MAX_RANK:
            raise Unsupported(f"its {what} are {array.size}, arrays have at most {MAX_RANK} axes")
        return [side if is_symbolic(array) else int(side) for side in array]

    def axes(self, rank: int, at: int = 1) -> list[int] | None:
        """Return the axes of an attribute, or of an input, from 0; None if there are none."""
        axes = self.attr("axes")
        if axes is None and self.optional(at) is not None:
            axes = self.numbers(at, "axes")
        if axes is not None and len(axes) > MAX_RANK:
            raise BadFormat(f"has {len(axes)} axes, arrays have at most {MAX_RANK}")
        return None if axes is None else [self.axis_of(axis, rank) for axis in axes]

    def axis(self, default: int, rank: int, name: str = "axis") -> int:
        """Return an axis from 0."""
        return self.axis_of(self.attr(name, default), rank)

    def axis_of(self, axis: int, rank: int) -> int:
        """Return an axis from 0, checked."""
        if not -rank <= axis < max(rank, 1):
            raise BadFormat(f"has the axis {axis}, but its input has {rank} dimensions")
        return axis % max(rank, 1)

    def unsupported(self, reason: str) -> Unsupported:
        """Return the error of something that no program can have."""
        return Unsupported(reason)

    def apply(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Return the one result of an operation of the table."""
        return self.scope.apply(op, *inputs, **attributes)

    def number(self, value: float, like: Value) -> Value:
        """Return a number in the dtype of a value."""
        return self.scope.constant(np.array(value), like.dtype)

    def ints(self, name: str, count: int, default: int) -> list[int]:
        """Return a list attribute, filled with its default."""
        given = self.attr(name)
        if given is None:
            return [default] * count
        if len(given) != count:
            raise BadFormat(f"has {name} {list(given)[:8]}, must have {count}")
        return list(given)
