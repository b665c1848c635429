"""Elements at indices, read or written; indices are checked or clamped, since mlx does neither."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count
from cowmlx.programs.operations import devices, rules
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    checks_of,
    require_indices,
    safe,
    taken,
)
from cowmlx.programs.operations.making import constant, example, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import DTYPES, mlx_dtype

PICKING = ("lhs_indices", "rhs_indices")


def require_some(shape: Shape, length: Dim, indices: Shape) -> None:
    """Check that there is something to point at, where it is known."""
    if length == 0 and count(indices) != 0:
        raise rules.shapes_refused(
            [shape, indices], "no index is within an empty axis, must have elements"
        )


def picked_shape(*pairs: tuple[Shape, Spec | None]) -> Shape:
    """Return the axes before matrices of which two stacks are picked by flat indices.

    Args:
        pairs: the shapes of left and right matrices, with their indices; None: all of them.
    """
    picked = []
    for place, (shape, indices) in zip(PICKING, pairs, strict=True):
        if indices is not None:
            require_indices(place, indices)
            require_some(shape, count(shape[:-2]), indices.shape)
        picked.append(shape[:-2] if indices is None else indices.shape)
    return rules.broadcast(picked)


def picked_checks(
    left: tuple[mx.array, mx.array | None],
    right: tuple[mx.array, mx.array | None],
    attributes: Attributes,
) -> list[Check]:
    """Return the checks of flat indices that pick matrices."""
    return [
        check
        for place, (array, indices) in zip(PICKING, (left, right), strict=True)
        if indices is not None
        for check in checks_of(
            place, indices, math.prod(array.shape[:-2]), attributes, negative=False
        )
    ]


def _take(given: Any, indices: Any, /, **attributes: Any) -> Spec:
    require_indices("indices", indices)
    axis = attributes["axis"]
    if axis is None:
        require_some(given.shape, count(given.shape), indices.shape)
        return rules.spec(indices.shape, given.dtype)
    axis = rules.axis_of(axis, len(given.shape))
    require_some(given.shape, given.shape[axis], indices.shape)
    shape = given.shape[:axis] + indices.shape + given.shape[axis + 1 :]
    return rules.spec(shape, given.dtype)


def _take_length(array: mx.array, attributes: Attributes) -> int:
    axis = attributes["axis"]
    return array.size if axis is None else array.shape[axis]


def _take_arrays(array: Any, indices: Any, /, **attributes: Any) -> mx.array:
    length = _take_length(array, attributes)
    where = safe(indices, max(length, 1))
    axis = attributes["axis"]
    return taken(array.reshape(-1), where, 0) if axis is None else taken(array, where, axis)


def _take_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    array, indices = arrays[:2]
    return checks_of("indices", indices, _take_length(array, attributes), attributes)


def _along(given: Spec, indices: Spec, axis: int | None) -> Shape:
    """Check indices that stand beside an array's elements; return their shape."""
    require_indices("indices", indices)
    if axis is None:
        rules.require_rank("indices", indices, 1, 1)
        require_some(given.shape, count(given.shape), indices.shape)
        return indices.shape
    axis = rules.axis_of(axis, len(given.shape))
    require_some(given.shape, given.shape[axis], indices.shape)
    if len(indices.shape) != len(given.shape):
        raise rules.shapes_refused(
            [given.shape, indices.shape], "both must have as many dimensions"
        )
    beside = rules.broadcast(
        [rules.replaced(operand.shape, axis, 1) for operand in (given, indices)]
    )
    return rules.replaced(beside, axis, indices.shape[axis])


def _take_along(given: Any, indices: Any, /, **attributes: Any) -> Spec:
    shape = _along(given, indices, attributes["axis"])
    return rules.spec(shape, given.dtype)


def _take_along_arrays(array: Any, indices: Any, /, **attributes: Any) -> mx.array:
    axis = attributes["axis"]
    where = safe(indices, max(_take_length(array, attributes), 1))
    if axis is None:
        return taken(array.reshape(-1), where, 0)
    axis %= array.ndim
    beside = mx.broadcast_shapes(
        *((*operand.shape[:axis], 1, *operand.shape[axis + 1 :]) for operand in (array, indices))
    )
    if array.size == 0 or where.size == 0:
        shape = (*beside[:axis], where.shape[axis], *beside[axis + 1 :])
        return mx.zeros(shape, dtype=array.dtype)
    array = mx.broadcast_to(array, (*beside[:axis], array.shape[axis], *beside[axis + 1 :]))
    where = mx.broadcast_to(where, (*beside[:axis], where.shape[axis], *beside[axis + 1 :]))
    return mx.take_along_axis(array, where, axis)


def _put_along(given: Any, indices: Any, values: Any, /, **attributes: Any) -> Spec:
    if values.dtype != given.dtype:
        raise rules.dtypes_refused("values", values, f"{given.dtype}, as a is")
    shape = _along(given, indices, attributes["axis"])
    axis = attributes["axis"]
    if axis is not None:
        axis = rules.axis_of(axis, len(given.shape))
        if not all(
            map(rules.equal, rules.replaced(shape, axis, 1), rules.replaced(given.shape, axis, 1))
        ):
            raise rules.shapes_refused(
                [given.shape, indices.shape], "indices must not be longer beside the axis"
            )
    if not rules.broadcasts_to(values.shape, shape):
        raise rules.shapes_refused([shape, values.shape], "values must broadcast to indices")
    return given


def _put_along_arrays(array: Any, indices: Any, values: Any, /, **attributes: Any) -> mx.array:
    axis = attributes["axis"]
    line = array.reshape(-1) if axis is None else array
    at = 0 if axis is None else axis % array.ndim
    where = safe(indices, max(line.shape[at], 1))
    shape = (*line.shape[:at], where.shape[at], *line.shape[at + 1 :])
    where = mx.broadcast_to(where, shape)
    if where.size == 0:
        return array
    # mlx gives a gradient to all values of equal indices, where the last alone counts.
    length, many = line.shape[at], where.shape[at]
    lines = mx.swapaxes(where.astype(mx.int32), at, -1).reshape(-1, many)
    starts = mx.arange(lines.shape[0], dtype=mx.int64)[:, None] * length
    last = mx.full((lines.shape[0] * length,), -1, dtype=mx.int32)
    order = mx.broadcast_to(mx.arange(many, dtype=mx.int32), lines.shape)
    last = last.at[(starts + lines).reshape(-1)].maximum(order.reshape(-1))
    beside = list(line.shape)
    beside[at], beside[-1] = beside[-1], length
    last = mx.swapaxes(last.reshape(beside), at, -1)
    put = mx.take_along_axis(mx.broadcast_to(values, shape), mx.maximum(last, 0), at)
    return mx.where(last >= 0, put, line).reshape(array.shape)


def _embedding(weight: Any, indices: Any, /, **attributes: Any) -> Spec:
    rules.require_rank("weight", weight, 2, 2)
    require_indices("indices", indices)
    require_some(weight.shape, weight.shape[0], indices.shape)
    return rules.spec((*indices.shape, weight.shape[1]), weight.dtype)


def _embedding_arrays(weight: Any, indices: Any, /, **attributes: Any) -> mx.array:
    return taken(weight, safe(indices, max(weight.shape[0], 1), negative=False), 0)


def _embedding_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    weight, indices = arrays
    size = weight.shape[0]
    return checks_of("indices", indices, size, attributes, negative=False)


def _one_hot(indices: Any, /, **attributes: Any) -> Spec:
    require_indices("indices", indices)
    shape = (*indices.shape, attributes["num_classes"])
    return rules.spec(shape, attributes["dtype"])


def _one_hot_arrays(indices: Any, /, **attributes: Any) -> mx.array:
    classes = attributes["num_classes"]
    if classes == 0:
        return mx.zeros((*indices.shape, 0), mlx_dtype(attributes["dtype"]))
    # Out of range becomes the class behind the last, which no column is of.
    is_signed = mx.issubdtype(indices.dtype, mx.signedinteger)
    inside = indices <= min(classes - 1, 2 ** (8 * indices.dtype.size - is_signed) - 1)
    if is_signed:
        inside = inside & (indices >= 0)
    where = mx.where(inside, safe(indices, classes, negative=False), classes)
    result = where[..., None] == mx.arange(classes, dtype=mx.int32)
    return result.astype(mlx_dtype(attributes["dtype"]))


def _one_hot_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    classes = attributes["num_classes"]
    return checks_of("indices", arrays[0], classes, attributes, negative=False)


ROWS = (
    row(
        "take(∂a, indices)",
        _take,
        _take_arrays,
        "The elements at indices along an axis; negative ones count from the end.",
        "out[…, i, …] = a[…, indices[i], …]",
        [
            example("[4,3]", "int32[2] 0..3", axis=0),
            example("[4,3]", "int32[2,2] -3..2", axis=-1),
            example("[4,3]", "uint8[] 0..3", axis=0),
            example("[4,3]", "int64[5] -12..11"),
            example("[0,3]", "int32[0] 0..0", axis=0),
        ],
        aliases="gather index_select",
        attributes=(
            Attribute("axis", "axis", None, "The axis; null takes from the flattened array."),
            INDICES,
        ),
        checks=_take_checks,
    ),
    row(
        "take_along_axis(∂a, indices)",
        _take_along,
        _take_along_arrays,
        "The elements at indices that stand beside those of an array.",
        "out[i, j] = a[i, indices[i, j]] along the last axis",
        [
            example("[3,4]", "int32[3,2] 0..3"),
            example("[3,4]", "int32[1,4] -3..2", axis=0),
            example("[3,4]", "uint8[5] 0..11", axis=None),
            example("[3,4]", "int64[3,0] 0..0", axis=1),
        ],
        aliases="take_along_dim",
        attributes=(
            Attribute(
                "axis", "axis", -1, "The axis; null takes from the flattened array.", nullable=True
            ),
            INDICES,
        ),
        checks=_take_checks,
    ),
    row(
        "put_along_axis(∂a, indices, ∂values)",
        _put_along,
        _put_along_arrays,
        "An array with values at indices that stand beside its elements; of equal indices the last "
        "one counts.",
        "out[i, indices[i, j]] = values[i, j] along the last axis, a elsewhere",
        [
            example("[3,4]", "int32[3,1] 0..3", "[3,1]", axis=-1),
            example("[3,4]", "int32[1,4] 0..2", "[]", axis=0),
            example("[3,4]", "int32[1] 0..11", "[1]"),
        ],
        attributes=(
            Attribute("axis", "axis", None, "The axis; null puts into the flattened array."),
            INDICES,
        ),
        checks=_take_checks,
    ),
    row(
        "embedding(∂weight, indices)",
        _embedding,
        _embedding_arrays,
        "The rows of a table at indices.",
        "out[…, j] = weight[indices[…], j]",
        [example("[5,3]", "int32[2,2] 0..4"), example("[5,3]", "uint8[] 0..4")],
        attributes=(INDICES,),
        checks=_embedding_checks,
    ),
    row(
        "one_hot(indices)",
        _one_hot,
        _one_hot_arrays,
        "1 at each index, 0 elsewhere, along a new last axis; clamped indices have no 1.",
        "out[…, j] = 1 if indices[…] = j, else 0",
        [example("int32[4] 0..2", num_classes=3), example("uint8[] 0..4", num_classes=5)],
        attributes=(
            Attribute("num_classes", "int", REQUIRED, "How long the new axis is.", low=0),
            Attribute("dtype", "dtype", "float32", "The result's dtype."),
            INDICES,
        ),
        checks=_one_hot_checks,
    ),
)


def last_put(array: mx.array, where: mx.array, updates: mx.array, axis: int) -> mx.array:
    """Return an array with updates at indices along an axis.

    Of equal indices the last counts, and alone has a gradient; mlx's own scatter gives one to all.

    Args:
        array: elements.
        where: indices, of any shape, within the axis.
        updates: of the array's shape with that of the indices at the axis.
        axis: not negative.
    """
    count, length = where.size, array.shape[axis]
    last = mx.full((length,), -1, dtype=mx.int32)
    last = last.at[where.reshape(count)].maximum(mx.arange(count, dtype=mx.int32))
    shape = (*array.shape[:axis], count, *array.shape[axis + 1 :])
    put = taken(updates.reshape(shape), mx.maximum(last, 0), axis)
    is_put = (last >= 0).reshape(length, *[1] * (array.ndim - axis - 1))
    return mx.where(is_put, put, array)


def _scatter(
    name: str, way: str, about: str, formula: str, gradients: tuple[str, ...]
) -> Operation:
    accepted = rules.REAL if way in ("maximum", "minimum") else DTYPES

    def infer(given: Any, indices: Any, updates: Any, /, **attributes: Any) -> Spec:
        rules.require_dtype("a", given, accepted)
        require_indices("indices", indices)
        if updates.dtype != given.dtype:
            raise rules.dtypes_refused("updates", updates, f"{given.dtype}, as a is")
        axis = rules.axis_of(attributes["axis"], len(given.shape))
        require_some(given.shape, given.shape[axis], indices.shape)
        wanted = given.shape[:axis] + indices.shape + given.shape[axis + 1 :]
        rules.require_same(
            ("a with indices' shape at its axis", "updates"), [wanted, updates.shape]
        )
        return given

    def compute(array: Any, indices: Any, updates: Any, /, **attributes: Any) -> mx.array:
        axis = attributes["axis"] % array.ndim
        if updates.size == 0:
            return array
        where = safe(indices, array.shape[axis])
        if way == "set":
            return last_put(array, where, updates, axis)
        places = (*(slice(None),) * axis, where)

        def updated(array: mx.array, updates: mx.array) -> mx.array:
            result: mx.array = getattr(array.at[places], way)(updates)
            return result

        # Of 64 bits, GPUs add complex numbers alone.
        is_plain = array.dtype.size < 8 or (array.dtype == mx.complex64 and way == "add")
        result = updated(array, updates) if is_plain else devices.on_cpu(updated, array, updates)
        if way in ("maximum", "minimum") and mx.issubdtype(array.dtype, mx.floating):
            # mlx keeps or loses a nan depending on the order of updates.
            given, new = (mx.isnan(mx.stop_gradient(each)) for each in (array, updates))
            is_nan = given.astype(mx.int32).at[places].maximum(new.astype(mx.int32)) > 0
            result = mx.where(is_nan, constant(math.nan, array), result)
        return result

    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        array, indices = arrays[:2]
        return checks_of("indices", indices, array.shape[attributes["axis"]], attributes)

    return row(
        f"{name}(a, indices, updates)",
        infer,
        compute,
        f"An array with updates {about} at indices along an axis.",
        formula,
        [
            example("[5,3]", "int32[2] distinct 0..4", "[2,3]"),
            example("[3,5]", "int32[2] distinct -5..-1", "[3,2]", axis=-1),
            example("[4]", "uint8[] 0..3", "[]"),
        ],
        attributes=(Attribute("axis", "axis", 0, "The axis."), INDICES),
        differentiable=gradients,
        checks=checks,
    )


SCATTER = (
    _scatter(
        "scatter",
        "set",
        "in place of elements (of equal indices the last one counts)",
        "out[indices[i]] = updates[i], a elsewhere",
        ("a", "updates"),
    ),
    _scatter(
        "scatter_add",
        "add",
        "added to elements",
        "out[indices[i]] = a[indices[i]] + the sum of its updates",
        ("a", "updates"),
    ),
    _scatter(
        "scatter_multiply",
        "multiply",
        "multiplied with elements",
        "out[indices[i]] = a[indices[i]] times the product of its updates",
        (),
    ),
    _scatter(
        "scatter_max",
        "maximum",
        "where they are larger than elements",
        "out[indices[i]] = max(a[indices[i]], its updates), nan if one is nan",
        ("a", "updates"),
    ),
    _scatter(
        "scatter_min",
        "minimum",
        "where they are smaller than elements",
        "out[indices[i]] = min(a[indices[i]], its updates), nan if one is nan",
        ("a", "updates"),
    ),
)
