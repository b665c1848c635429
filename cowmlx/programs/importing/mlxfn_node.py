"""A primitive of MLX while it is converted, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value
from cowmlx.programs.operations.row import Spec


@dataclass
class Node:
    """A primitive while it is converted.

    Args:
        scope: the graph that it becomes part of.
        state: its parts, as the table's codes say.
        inputs: its inputs.
        specs: what the file says of its results.
    """

    scope: Scope
    state: list[Any]
    inputs: list[Value]
    specs: list[Spec]

    @property
    def shape(self) -> list[Any]:
        """The shape of its first result."""
        return list(self.specs[0].shape)

    def apply(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Return the one result of an operation."""
        return self.scope.apply(op, *inputs, **attributes)

    def number(self, at: int, what: str) -> Any:
        """Return the one element of an input, which must be known."""
        array = self.scope.known(self.inputs[at])
        if array is None or array.size != 1:
            raise Unsupported(f"{what} depends on inputs, and must be a constant")
        return array.reshape(-1)[0].item()


Convert = Callable[[Node], Value | Sequence[Value]]


@dataclass(frozen=True)
class Primitive:
    """How a primitive is read and converted.

    Args:
        codes: of the parts of its state: ``i`` and ``f`` of 32 bits, ``d`` of 64, ``N`` unsigned
            of 64, ``b`` a bool, ``t`` a dtype, ``s`` a text; ``I``, ``L`` and ``Z`` lists of signed
            numbers of 32 and 64 bits and of unsigned ones of 64.
        convert: returns the results.
    """

    codes: str
    convert: Convert


PRIMITIVES: dict[str, Primitive] = {}
"""By mlx's class."""


def converts(codes: str, *names: str) -> Callable[[Convert], Convert]:
    """Return a decorator that adds a converter to the table."""

    def add(convert: Convert) -> Convert:
        for name in names:
            PRIMITIVES[name] = Primitive(codes, convert)
        return convert

    return add


def choice(number: int, names: Sequence[str]) -> str:
    """Return the name of an enumeration's number."""
    if not 0 <= number < len(names):
        raise BadFormat(f"its kind is {number}, must be 0 to {len(names) - 1}")
    return names[number]


def sides_of(value: Value) -> list[int]:
    """Return the shape of a value, which files say in numbers."""
    return [int(side) for side in value.shape]  # type: ignore[arg-type]
