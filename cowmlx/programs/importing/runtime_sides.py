"""Dimensions as values of a run: names are counted, and polynomials of them computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cowmlx.programs.dimensions import Atom, Dim, Symbolic
from cowmlx.programs.importing.values import Value

if TYPE_CHECKING:
    from cowmlx.programs.importing.scope import Scope


def value_of(scope: Scope, array: Any, dtype: str) -> Value:
    """Return an array of dimensions, which a run has numbers for; they may be below 0.

    Args:
        scope: the graph that computes it.
        array: of numbers and symbolic dimensions.
        dtype: of the result.
    """
    counted: dict[str, Value] = {}
    parts = [_side(scope, dimension, counted) for dimension in array.reshape(-1)]
    whole = scope.cast(scope.apply("stack", *parts), dtype)
    return scope.apply("reshape", whole, shape=[int(side) for side in array.shape])


def _side(scope: Scope, dimension: Dim, counted: dict[str, Value]) -> Value:
    if not isinstance(dimension, Symbolic):
        return scope.constant(np.array(dimension, "int64"))
    total: Value | None = None
    for atoms, factor in dimension.terms:
        term = scope.constant(np.array(factor, "int64"))
        for at, atom in enumerate(atoms):
            number = _atom(scope, atom, counted)
            term = number if at == 0 and factor == 1 else scope.apply("multiply", term, number)
        total = term if total is None else scope.apply("add", total, term)
    assert total is not None
    return total


def _atom(scope: Scope, atom: Atom, counted: dict[str, Value]) -> Value:
    if atom.name not in counted:
        if atom.dividend is None:
            ones = scope.apply("ones", shape=[atom.name], dtype="int64")
            counted[atom.name] = scope.apply("sum", ones)
        else:
            by = scope.constant(np.array(atom.divisor, "int64"))
            dividend = _side(scope, atom.dividend, counted)
            counted[atom.name] = scope.apply("floor_divide", dividend, by)
    return counted[atom.name]
