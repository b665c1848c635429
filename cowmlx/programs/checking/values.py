"""Arrays that parameters of a file begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx

from cowmlx.programs.dimensions import compare
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.graph import Declared
from cowmlx.programs.operations.rules import name_of


def with_values(
    declared: Sequence[Declared], values: Mapping[str, mx.array]
) -> tuple[Declared, ...]:
    """Return what a program declares, its parameters with the arrays of these names.

    Raises:
        ProgramError: an array has no parameter, or another dtype or shape.
    """
    parameters = {each.name: each for each in declared if each.parameter}
    for name, array in values.items():
        if name not in parameters:
            raise ProgramError(
                "unknown_option",
                f"there is an array {shown(name)}, but no parameter of that name",
                argument=name,
                accepted=", ".join(list(parameters)[:16]) or None,
            )
        spec = parameters[name].spec
        same = len(spec.shape) == array.ndim and all(
            compare(side, own) is not False
            for side, own in zip(spec.shape, array.shape, strict=True)
        )
        if name_of(array.dtype) != spec.dtype or not same:
            raise ProgramError(
                "shape_mismatch",
                f"the array {shown(name)} is {name_of(array.dtype)}{tuple(array.shape)}, but the "
                f"parameter is {spec}",
                argument=name,
                shapes=str(spec),
            )
    return tuple(replace(each, value=values.get(each.name)) for each in declared)
