"""Values of a run's dimensions, from the shapes of what it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cowmlx.programs.dimensions import Dim, Shape, Symbolic, evaluate, named, names_of, text_of
from cowmlx.programs.failure import ProgramError, shown


def solve(
    declared: Iterable[tuple[str, Shape]],
    given: Sequence[tuple[int, ...]],
    fixed: Mapping[str, int],
) -> dict[str, int]:
    """Return the value of every name of a dimension.

    Args:
        declared: names and shapes of the inputs.
        given: the shape that each has in this run.
        fixed: names whose values are known before.

    Raises:
        ProgramError: a shape does not fit, or a name would have two values.
    """
    listed = list(declared)
    values = dict(fixed)
    sources = dict.fromkeys(fixed, "bound")
    for (name, shape), sizes in zip(listed, given, strict=True):
        if len(shape) != len(sizes):
            raise _unfit(name, shape, sizes, f"it must have {len(shape)} dimensions")
        for dimension, size in zip(shape, sizes, strict=True):
            if isinstance(dimension, Symbolic) and names_of([dimension]) == {str(dimension)}:
                known = values.setdefault(str(dimension), size)
                source = sources.setdefault(str(dimension), f"input {shown(name)}")
                if known != size:
                    why = f"{dimension} is {known} already ({source})"
                    raise _unfit(name, shape, sizes, why)
    for (name, shape), sizes in zip(listed, given, strict=True):
        for dimension, size in zip(shape, sizes, strict=True):
            wanted = evaluate(dimension, values)
            if wanted != size:
                why = f"{dimension} is {wanted}" if wanted != dimension else "they must be equal"
                raise _unfit(name, shape, sizes, why)
    return values


def substituted(shape: Shape, values: Mapping[str, int]) -> Shape:
    """Return a shape with numbers in place of the names that have values."""
    return tuple(_substituted(length, values) for length in shape)


def _substituted(dimension: Dim, values: Mapping[str, int]) -> Dim:
    if not isinstance(dimension, Symbolic) or not names_of([dimension]) & set(values):
        return dimension
    total: Dim = 0
    for atoms, factor in dimension.terms:
        product: Dim = factor
        for atom in atoms:
            if atom.dividend is not None:
                product = product * (_substituted(atom.dividend, values) // atom.divisor)
            else:
                product = product * values.get(atom.name, named(atom.name))
        total = total + product
    return total


def _unfit(name: str, shape: Shape, sizes: tuple[int, ...], why: str) -> ProgramError:
    return ProgramError(
        "conflict",
        f"input {shown(name)} has the shape {text_of(sizes)}, declared is {text_of(shape)}: {why}",
        argument=name,
        shapes=text_of(sizes),
        accepted=text_of(shape),
    )
