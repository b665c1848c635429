"""Operations that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Shape, compare, count, divided, text_of
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.making import example, moving, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import BITS, mlx_dtype


def filled(shape: Shape, wanted: Shape, name: str = "shape") -> Shape:
    """Return the wanted shape with its -1 found out."""
    elements = count(shape)
    unknown = [at for at, length in enumerate(wanted) if length == -1]
    if len(unknown) > 1:
        raise rules.value_refused(name, text_of(wanted), "a shape with one -1 at most")
    known = count(length for length in wanted if length != -1)
    if unknown:
        rest = divided(elements, known)
        if rest is None:
            raise rules.shapes_refused(
                [shape],
                f"{elements} elements cannot be parted into {text_of(wanted)}: "
                f"they must be a multiple of {known}",
            )
        return rules.replaced(wanted, unknown[0], rest)
    same = compare(elements, known)
    if not same:
        have = "have" if same is False else "are not known to have"
        raise rules.shapes_refused(
            [shape, wanted],
            f"they {have} as many elements ({elements} and {known}), must be equal"
            if same is None
            else f"they have {elements} and {known} elements, must have as many",
        )
    return wanted


def _flatten(shape: Shape, attributes: Attributes) -> Shape:
    if not shape:
        return (1,)
    first = rules.axis_of(attributes["start_axis"], len(shape), "start_axis")
    last = rules.axis_of(attributes["end_axis"], len(shape), "end_axis")
    if first > last:
        raise rules.value_refused("start_axis", attributes["start_axis"], "an axis up to end_axis")
    return (*shape[:first], count(shape[first : last + 1]), *shape[last + 1 :])


def _unflatten(shape: Shape, attributes: Attributes) -> Shape:
    axis = rules.axis_of(attributes["axis"], len(shape))
    if not attributes["shape"]:
        raise rules.value_refused("shape", "empty", "a shape of one dimension or more")
    parts = filled(shape[axis : axis + 1], attributes["shape"])
    return (*shape[:axis], *parts, *shape[axis + 1 :])


def _squeeze(shape: Shape, attributes: Attributes) -> Shape:
    axis = attributes["axis"]
    if axis is None:
        # A name may be 1 in one run and not in another, so it stays: _settled_axes.
        return tuple(length for length in shape if length != 1)
    axes = rules.axes_of(axis, len(shape))
    for each in axes:
        if shape[each] != 1:
            raise rules.shapes_refused([shape], f"axis {each} is {shape[each]}, must be 1")
    return rules.reduced(shape, axes, keepdims=False)


def _settled_axes(inputs: list[Any], attributes: Attributes) -> Attributes:
    """Return attributes of squeeze with the axes that have a length of 1 in every run."""
    if attributes["axis"] is not None:
        return attributes
    return {"axis": tuple(at for at, length in enumerate(inputs[0].shape) if length == 1)}


def _squeeze_array(a: mx.array, axis: Any) -> mx.array:
    if axis is None or axis == ():
        return a if axis == () or 1 not in a.shape else mx.squeeze(a)
    return mx.squeeze(a, axis)


def _expand(shape: Shape, attributes: Attributes) -> Shape:
    axis = attributes["axis"]
    new = len(axis) if isinstance(axis, tuple) else 1
    axes = rules.axes_of(axis, len(shape) + new)
    rest = iter(shape)
    return tuple(1 if at in axes else next(rest) for at in range(len(shape) + new))


def _broadcast_to(shape: Shape, attributes: Attributes) -> Shape:
    wanted: Shape = attributes["shape"]
    if not rules.broadcasts_to(shape, wanted):
        raise rules.shapes_refused([shape], f"it does not broadcast to {text_of(wanted)}")
    return wanted


def _transpose(shape: Shape, attributes: Attributes) -> Shape:
    axes = attributes["axes"]
    if axes is None:
        return shape[::-1]
    order = rules.axes_of(axes, len(shape), "axes")
    if len(order) != len(shape):
        raise rules.value_refused("axes", list(axes), f"all of the {len(shape)} axes")
    return tuple(shape[axis] for axis in order)


def _swapped(shape: Shape, attributes: Attributes) -> Shape:
    one = rules.axis_of(attributes["axis1"], len(shape), "axis1")
    other = rules.axis_of(attributes["axis2"], len(shape), "axis2")
    lengths = list(shape)
    lengths[one], lengths[other] = lengths[other], lengths[one]
    return tuple(lengths)


def _moved(shape: Shape, attributes: Attributes) -> Shape:
    source = rules.axis_of(attributes["source"], len(shape), "source")
    destination = rules.axis_of(attributes["destination"], len(shape), "destination")
    lengths = [*shape[:source], *shape[source + 1 :]]
    lengths.insert(destination, shape[source])
    return tuple(lengths)


def _matrix_transposed(shape: Shape, attributes: Attributes) -> Shape:
    if len(shape) < 2:
        raise rules.shapes_refused([shape], "it must have 2 dimensions or more")
    return (*shape[:-2], shape[-1], shape[-2])


def _flipped(shape: Shape, attributes: Attributes) -> Shape:
    rules.axes_of(attributes["axis"], len(shape))
    return shape


def _flip(a: mx.array, axis: Any) -> mx.array:
    if a.ndim == 0 or axis == ():
        return a
    axes = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    backwards = {each % a.ndim for each in axes}
    return a[tuple(slice(None, None, -1 if at in backwards else 1) for at in range(a.ndim))]


def _at_least(rank: int) -> Any:
    def rule(shape: Shape, attributes: Attributes) -> Shape:
        if len(shape) >= rank:
            return shape
        if rank == 3 and len(shape) == 2:
            return (*shape, 1)
        if rank == 3 and len(shape) == 1:
            return (1, *shape, 1)
        return (*(1,) * (rank - len(shape)), *shape)

    return rule


def _astype(*inputs: Any, **attributes: Any) -> Spec:
    return Spec(inputs[0].shape, attributes["dtype"])


def _view(given: Any, /, **attributes: Any) -> Spec:
    dtype = attributes["dtype"]
    if "bool" in (dtype, given.dtype) and dtype != given.dtype:
        raise rules.value_refused("dtype", dtype, f"a dtype whose bits are all values ({given})")
    before, after = BITS[given.dtype], BITS[dtype]
    if before == after:
        return Spec(given.shape, dtype)
    rules.require_rank("a", given, 1)
    length = divided(given.shape[-1] * before, after)
    if length is None:
        raise rules.shapes_refused(
            [given.shape], f"its last axis must be a multiple of {after // before}"
        )
    return rules.spec((*given.shape[:-1], length), dtype)


_PLAIN = [example("[2,3,4]"), example("[3]"), example("[]")]

ROWS = (
    moving(
        "reshape",
        lambda shape, attributes: filled(shape, attributes["shape"]),
        "The same elements, in row-major order, in another shape.",
        "out.flat = a.flat",
        [
            example("[2,6]", shape=[3, -1]),
            example("[4]", shape=[2, 2]),
            example("[]", shape=[1, 1]),
            example("[0,3]", shape=[3, 0]),
        ],
        attributes=(
            Attribute("shape", "shape", REQUIRED, "The new shape; one -1 is found out.", low=-1),
        ),
    ),
    moving(
        "flatten",
        _flatten,
        "Some axes that follow each other as one.",
        "out.flat = a.flat",
        [example("[2,3,4]"), example("[2,3,4]", start_axis=1), example("[]")],
        aliases="ravel",
        attributes=(
            Attribute("start_axis", "axis", 0, "The first of them."),
            Attribute("end_axis", "axis", -1, "The last of them."),
        ),
    ),
    moving(
        "unflatten",
        _unflatten,
        "One axis as several.",
        "out.flat = a.flat",
        [example("[6,2]", axis=0, shape=[2, -1]), example("[6]", axis=-1, shape=[6, 1])],
        attributes=(
            Attribute("axis", "axis", REQUIRED, "The axis."),
            Attribute("shape", "shape", REQUIRED, "Its new shape; one -1 is found out.", low=-1),
        ),
    ),
    moving(
        "squeeze",
        _squeeze,
        "Without axes of length 1.",
        "out.flat = a.flat",
        [
            example("[1,3,1]"),
            example("[1,3,1]", axis=0),
            example("[1,3,1]", axis=[0, -1]),
            example("[2]"),
        ],
        _squeeze_array,
        attributes=(
            Attribute(
                "axis",
                "axis or axes",
                None,
                "The axes; null is all of length 1, of which those with a name are none.",
            ),
        ),
        settled=_settled_axes,
    ),
    moving(
        "expand_dims",
        _expand,
        "With new axes of length 1.",
        "out.flat = a.flat",
        [example("[2,3]", axis=1), example("[2,3]", axis=[0, -1]), example("[]", axis=0)],
        aliases="unsqueeze",
        attributes=(Attribute("axis", "axis or axes", REQUIRED, "Where the result has them."),),
    ),
    moving(
        "broadcast_to",
        _broadcast_to,
        "Repeated along axes of length 1, and along new ones before.",
        "out[…, i, …] = a[…, 0, …]",
        [example("[3]", shape=[2, 3]), example("[2,1]", shape=[2, 4]), example("[]", shape=[0, 2])],
        aliases="broadcast broadcast_in_dim expand",
        attributes=(Attribute("shape", "shape", REQUIRED, "The result's shape."),),
    ),
    moving(
        "transpose",
        _transpose,
        "The axes in another order.",
        "out[i, j, …] = a[…, j, i]",
        [*_PLAIN, example("[2,3,4]", axes=[1, -1, 0])],
        aliases="permute_dims permute",
        attributes=(Attribute("axes", "axes", None, "The order; null is the reverse."),),
    ),
    moving(
        "swapaxes",
        _swapped,
        "Two axes in each other's place.",
        "out[…, j, …, i, …] = a[…, i, …, j, …]",
        [example("[2,3,4]", axis1=0, axis2=-1)],
        attributes=(
            Attribute("axis1", "axis", REQUIRED, "One axis."),
            Attribute("axis2", "axis", REQUIRED, "The other."),
        ),
    ),
    moving(
        "moveaxis",
        _moved,
        "One axis in another place.",
        "out = transpose(a, axes with source at destination)",
        [example("[2,3,4]", source=0, destination=-1)],
        attributes=(
            Attribute("source", "axis", REQUIRED, "The axis."),
            Attribute("destination", "axis", REQUIRED, "Its place."),
        ),
    ),
    moving(
        "matrix_transpose",
        _matrix_transposed,
        "The last two axes in each other's place.",
        "out[…, j, i] = a[…, i, j]",
        [example("[2,3,4]"), example("[2,3]")],
        lambda a: mx.swapaxes(a, -1, -2),
        aliases="mT",
    ),
    moving(
        "flip",
        _flipped,
        "The elements along axes in reverse.",
        "out[i] = a[length - 1 - i]",
        [
            example("[2,3]"),
            example("[2,3]", axis=1),
            example("[2,3,4]", axis=[0, -1]),
            example("[]"),
        ],
        _flip,
        aliases="reverse rev",
        attributes=(Attribute("axis", "axis or axes", None, "The axes; null is all."),),
    ),
    moving(
        "atleast_1d",
        _at_least(1),
        "With one axis at least.",
        "out.flat = a.flat",
        _PLAIN,
        lambda a: a.reshape(_at_least(1)(a.shape, {})),
    ),
    moving(
        "atleast_2d",
        _at_least(2),
        "With two axes at least; new ones come first.",
        "out.flat = a.flat",
        _PLAIN,
        lambda a: a.reshape(_at_least(2)(a.shape, {})),
    ),
    moving(
        "atleast_3d",
        _at_least(3),
        "With three axes at least: a line becomes (1, n, 1), a matrix (n, m, 1).",
        "out.flat = a.flat",
        _PLAIN,
        lambda a: a.reshape(_at_least(3)(a.shape, {})),
    ),
    moving(
        "contiguous",
        lambda shape, attributes: shape,
        "The same array, in row-major memory.",
        "a",
        _PLAIN,
    ),
    moving(
        "stop_gradient",
        lambda shape, attributes: shape,
        "The same array, through which no gradient goes.",
        "a",
        _PLAIN,
        differentiable=False,
    ),
    row(
        "astype(∂a)",
        _astype,
        lambda *arrays, **attributes: arrays[0].astype(mlx_dtype(attributes["dtype"])),
        "The elements in another dtype: floats are rounded towards 0 for integers, complex numbers "
        "lose their imaginary part, and what does not fit an integer is undefined.",
        "out = dtype(a)",
        [
            example("[2,3]", dtype="float16"),
            example("[2,3]", dtype="int32"),
            example("int32[3] 0..1", dtype="bool"),
        ],
        aliases="cast convert convert_element_type",
        attributes=(Attribute("dtype", "dtype", REQUIRED, "The result's dtype."),),
    ),
    row(
        "view(a)",
        _view,
        lambda *arrays, **attributes: mx.view(arrays[0], mlx_dtype(attributes["dtype"])),
        "The same bits as another dtype; the last axis changes with the size of an element.",
        "bits of out = bits of a",
        [
            example("[2,3]", dtype="uint32"),
            example("[2,3]", dtype="uint8"),
            example("uint8[2,4] 0..9", dtype="uint16"),
        ],
        aliases="bitcast bitcast_convert",
        attributes=(Attribute("dtype", "dtype", REQUIRED, "The result's dtype."),),
    ),
)
