"""Values put to indices along an axis: as they are, or with what is there."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.indexing import require_some
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    checks_of,
    require_indices,
    safe,
    taken,
)
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.promotion import DTYPES as ALL_DTYPES
from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import (
    REAL,
    axis_of,
    dtypes_refused,
    require_dtype,
    require_same,
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
    accepted = REAL if way in ("maximum", "minimum") else ALL_DTYPES

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        given, indices, updates = inputs
        require_dtype(name, "a", given, accepted)
        require_indices(name, "indices", indices)
        if updates.dtype != given.dtype:
            raise dtypes_refused(name, "updates", updates, f"{given.dtype}, as a is")
        axis = axis_of(name, attributes["axis"], len(given.shape))
        require_some(name, given.shape, given.shape[axis], indices.shape)
        wanted = given.shape[:axis] + indices.shape + given.shape[axis + 1 :]
        require_same(
            name, ("a with indices' shape at its axis", "updates"), [wanted, updates.shape]
        )
        return [given]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        array, indices, updates = arrays
        axis = attributes["axis"] % array.ndim
        if updates.size == 0:
            return [array]
        where = safe(indices, array.shape[axis])
        places = (*(slice(None),) * axis, where)
        if way == "set":
            return [last_put(array, where, updates, axis)]
        return [getattr(array.at[places], way)(updates)]

    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        array, indices = arrays[:2]
        return checks_of(name, "indices", indices, array.shape[attributes["axis"]], attributes)

    return row(
        name,
        ("a", "indices", "updates"),
        infer,
        compute,
        f"An array with updates {about} at indices along an axis.",
        formula,
        [
            example("float32[5,3]", "int32[2] distinct 0..4", "float32[2,3]"),
            example("float32[3,5]", "int32[2] distinct -5..-1", "float32[3,2]", axis=-1),
            example("float32[4]", "uint8[] 0..3", "float32[]"),
        ],
        attributes=(Attribute("axis", "axis", 0, "The axis."), INDICES),
        differentiable=gradients,
        checks=checks,
    )


ROWS = (
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
        "out[indices[i]] = max(a[indices[i]], its updates)",
        ("a", "updates"),
    ),
    _scatter(
        "scatter_min",
        "minimum",
        "where they are smaller than elements",
        "out[indices[i]] = min(a[indices[i]], its updates)",
        ("a", "updates"),
    ),
)
