"""Operations that move elements and compute nothing."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, compare, count, divided, text_of
from cowmlx.programs.operations.making import cast, example, row
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Input, Spec
from cowmlx.programs.operations.rules import (
    axis_of,
    equal,
    replaced,
    require_rank,
    shapes_refused,
    spec,
    value_refused,
)

AXIS_0 = Attribute("axis", "axis", 0, "The axis.")


def filled(operation: str, shape: Shape, wanted: Shape, name: str = "shape") -> Shape:
    """Return the wanted shape with its -1 found out.

    Raises:
        OperationError: the elements differ, or cannot be proved to be as many.
    """
    elements = count(shape)
    unknown = [at for at, each in enumerate(wanted) if each == -1]
    if len(unknown) > 1:
        raise value_refused(operation, name, text_of(wanted), "a shape with one -1 at most")
    known = count(each for each in wanted if each != -1)
    if unknown:
        rest = divided(elements, known)
        if rest is None:
            raise shapes_refused(
                operation,
                [shape],
                f"{elements} elements cannot be parted into {text_of(wanted)}: "
                f"they must be a multiple of {known}",
            )
        return replaced(wanted, unknown[0], rest)
    same = compare(elements, known)
    if not same:
        have = "have" if same is False else "are not known to have"
        raise shapes_refused(
            operation,
            [shape, wanted],
            f"they {have} as many elements ({elements} and {known}), must be equal"
            if same is None
            else f"they have {elements} and {known} elements, must have as many",
        )
    return wanted


def _reshape(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    return [spec("reshape", filled("reshape", given.shape, attributes["shape"]), given.dtype)]


def _concatenate(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    first = inputs[0]
    for at, each in enumerate(inputs):
        require_rank("concatenate", f"arrays[{at}]", each, 1)
    axis = axis_of("concatenate", attributes["axis"], len(first.shape))
    length: Dim = 0
    for each in inputs:
        fits = len(each.shape) == len(first.shape) and all(
            at == axis or equal(here, there)
            for at, (here, there) in enumerate(zip(each.shape, first.shape, strict=True))
        )
        if not fits:
            raise shapes_refused(
                "concatenate",
                [first.shape, each.shape],
                f"all axes but axis {axis} must be equal",
            )
        length = length + each.shape[axis]
    dtype = promote("concatenate", [each.dtype for each in inputs])
    return [spec("concatenate", replaced(first.shape, axis, length), dtype)]


def _parts(length: Dim, attributes: Attributes, shape: Shape) -> list[Dim]:
    """Return the lengths of the parts of an axis."""
    cuts = attributes["indices_or_sections"]
    if isinstance(cuts, int):
        part = divided(length, cuts) if cuts > 0 else None
        if part is None:
            raise shapes_refused(
                "split", [shape], f"an axis of {length} has no {cuts} parts of one length"
            )
        return [part] * cuts
    places: list[Dim] = [0, *cuts, length]
    found: list[Dim] = []
    for before, after in itertools.pairwise(places):
        part = after - before
        if isinstance(part, int) and part < 0:
            raise value_refused(
                "split",
                "indices_or_sections",
                list(cuts),
                f"places in order, from 0 to the axis' length {length}",
            )
        found.append(part)
    return found


def _split(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    axis = axis_of("split", attributes["axis"], len(given.shape))
    lengths = _parts(given.shape[axis], attributes, given.shape)
    return [spec("split", replaced(given.shape, axis, each), given.dtype) for each in lengths]


def _split_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    cuts = attributes["indices_or_sections"]
    cuts = cuts if isinstance(cuts, int) else list(cuts)
    return list(mx.split(arrays[0], cuts, attributes["axis"]))


ROWS = (
    row(
        "reshape",
        ("a",),
        _reshape,
        lambda arrays, attributes: [mx.reshape(arrays[0], attributes["shape"])],
        "The same elements, in row-major order, in another shape.",
        "out.flat = a.flat",
        [
            example("float32[2,6]", shape=[3, -1]),
            example("float32[4]", shape=[2, 2]),
            example("float32[]", shape=[1, 1]),
            example("float32[0,3]", shape=[3, 0]),
        ],
        attributes=(
            Attribute("shape", "shape", REQUIRED, "The new shape; one -1 is found out.", low=-1),
        ),
        differentiable=("a",),
    ),
    row(
        "concatenate",
        (Input("arrays", variadic=True),),
        _concatenate,
        lambda arrays, attributes: [mx.concatenate(cast(arrays), attributes["axis"])],
        "Arrays one after the other along an axis.",
        "out = a1 followed by a2 …",
        [
            example("float32[2,3]", "float32[1,3]", axis=0),
            example("float32[2,3]", "float32[2,1]", "float32[2,0]", axis=-1),
            example("float32[2]"),
        ],
        aliases=("concat", "cat"),
        attributes=(AXIS_0,),
        differentiable=("arrays",),
    ),
    row(
        "split",
        ("a",),
        _split,
        _split_arrays,
        "An array in parts along an axis.",
        "concatenate(out1, out2, …) = a",
        [
            example("float32[4,3]", indices_or_sections=2),
            example("float32[2,6]", indices_or_sections=[1, 4], axis=1),
            example("float32[2,6]", indices_or_sections=[0, 6], axis=-1),
        ],
        attributes=(
            Attribute(
                "indices_or_sections",
                "int or ints",
                REQUIRED,
                "A number of parts of one length, or the places where parts begin.",
                low=0,
            ),
            AXIS_0,
        ),
        outputs=("parts",),
        differentiable=("a",),
        outputs_vary=True,
    ),
)
