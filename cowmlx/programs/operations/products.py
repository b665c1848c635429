"""Products of vectors and matrices."""

from __future__ import annotations

import math
import re
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count
from cowmlx.programs.operations.indexing import require_some
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    checks_of,
    require_indices,
    safe,
    taken,
)
from cowmlx.programs.operations.making import PAIR, cast, constant, example, row
from cowmlx.programs.operations.promotion import DTYPES as ALL_DTYPES
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Input, Spec
from cowmlx.programs.operations.rules import (
    INEXACT,
    NUMBERS,
    axes_of,
    axis_of,
    broadcast,
    equal,
    reduced,
    require_dtype,
    require_rank,
    shapes_refused,
    spec,
    value_refused,
    without,
)


def product_shape(left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product; vectors lose their axis, as in numpy."""
    rows, inner = ((1, *left) if len(left) == 1 else left)[-2:]
    other, columns = ((*right, 1) if len(right) == 1 else right)[-2:]
    if not equal(inner, other):
        raise shapes_refused(
            [left, right],
            f"the last axis of the first ({inner}) must be as long as the last but one of the "
            f"second ({other})",
        )
    batch = broadcast([left[:-2], right[:-2]])
    found: tuple[Dim, ...] = batch
    if len(left) > 1:
        found += (rows,)
    if len(right) > 1:
        found += (columns,)
    return found


def _matmul(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    left, right = inputs
    for name, given in zip(("a", "b"), inputs, strict=True):
        require_dtype(name, given, INEXACT)
        require_rank(name, given, 1)
    dtype = promote([left.dtype, right.dtype])
    return [spec(product_shape(left.shape, right.shape), dtype)]


def _matmul_cost(inputs: list[Any], attributes: Attributes) -> Dim:
    return count(_matmul(inputs, attributes)[0].shape) * inputs[0].shape[-1]


def _products(inputs: list[Any], accepted: Any = NUMBERS) -> str:
    """Check the inputs of a product; return the dtype in which they meet."""
    for place, given in zip(PAIR, inputs, strict=True):
        require_dtype(place, given, accepted)
    return promote([given.dtype for given in inputs])


def _inner(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    left, right = inputs
    dtype = _products(inputs, INEXACT)
    if not left.shape or not right.shape:
        return [spec(left.shape + right.shape, dtype)]
    if not equal(left.shape[-1], right.shape[-1]):
        raise shapes_refused([left.shape, right.shape], "the last axes must be as long")
    return [spec(left.shape[:-1] + right.shape[:-1], dtype)]


def _outer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    left, right = inputs
    dtype = _products(inputs, ALL_DTYPES)
    return [spec((count(left.shape), count(right.shape)), dtype)]


def _vecdot(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    left, right = inputs
    dtype = _products(inputs, INEXACT)
    shape = broadcast([left.shape, right.shape])
    least = min(len(left.shape), len(right.shape))
    axis = attributes["axis"]
    if not -least <= axis < 0:
        raise value_refused("axis", axis, f"{-least} to -1")
    if not equal(left.shape[axis], right.shape[axis]):
        raise shapes_refused([left.shape, right.shape], f"axis {axis} must be as long")
    return [spec(without(shape, len(shape) + axis), dtype)]


def _vecdot_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, b = cast(arrays)
    return [mx.sum(mx.conjugate(a) * b, axis=attributes["axis"])]


def _addmm(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    c, a, b = inputs
    for place, given in zip(("c", "a", "b"), inputs, strict=True):
        require_dtype(place, given, INEXACT)
    for place, given in (("a", a), ("b", b)):
        require_rank(place, given, 1)
    shape = product_shape(a.shape, b.shape)
    both = broadcast([c.shape, shape])
    if len(both) != len(shape) or not all(map(equal, both, shape)):
        raise shapes_refused([c.shape, shape], "c must broadcast to the product's shape")
    dtype = promote([given.dtype for given in inputs])
    return [spec(shape, dtype)]


def _addmm_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    c, a, b = cast(arrays)
    product = mx.matmul(a, b)
    alpha, beta = constant(attributes["alpha"], product), constant(attributes["beta"], product)
    return [alpha * product + beta * c]


def _pair_axes(axes: Any, rank: int, side: int) -> tuple[int, ...]:
    if isinstance(axes, int):
        if not 0 <= axes <= rank:
            raise value_refused("axes", axes, f"0 to {rank}")
        return tuple(range(rank - axes, rank)) if side == 0 else tuple(range(axes))
    return axes_of(axes, rank, f"axes_{'ab'[side]}")


def _tensordot_axes(
    ranks: tuple[int, int], attributes: Attributes
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    given = attributes["axes_a"], attributes["axes_b"]
    if (given[0] is None) != (given[1] is None):
        raise value_refused("axes_a", "given without axes_b", "given with it")
    sides = [
        _pair_axes(attributes["axes"] if each is None else each, rank, side)
        for side, (each, rank) in enumerate(zip(given, ranks, strict=True))
    ]
    if len(sides[0]) != len(sides[1]):
        raise value_refused("axes_b", list(sides[1]), f"{len(sides[0])} axes")
    return sides[0], sides[1]


def _tensordot(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    a, b = inputs
    dtype = _products(inputs, INEXACT)
    left, right = _tensordot_axes((len(a.shape), len(b.shape)), attributes)
    for one, other in zip(left, right, strict=True):
        if not equal(a.shape[one], b.shape[other]):
            raise shapes_refused([a.shape, b.shape], f"axes {one} and {other} must be as long")
    shape = reduced(a.shape, left, False) + reduced(b.shape, right, False)
    return [spec(shape, dtype)]


def _tensordot_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, b = cast(arrays)
    left, right = _tensordot_axes((a.ndim, b.ndim), attributes)
    return [mx.tensordot(a, b, [list(left), list(right)])]


def _kron(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    a, b = inputs
    dtype = _products(inputs, ALL_DTYPES)
    rank = max(len(a.shape), len(b.shape))
    full = [(*(1,) * (rank - len(each.shape)), *each.shape) for each in inputs]
    return [spec((one * other for one, other in zip(*full, strict=True)), dtype)]


def _kron_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, b = cast(arrays)
    rank = max(a.ndim, b.ndim)
    a = a.reshape((1,) * (rank - a.ndim) + a.shape)
    b = b.reshape((1,) * (rank - b.ndim) + b.shape)
    pairs = [each for length in a.shape for each in (length, 1)]
    others = [each for length in b.shape for each in (1, length)]
    found = a.reshape(pairs) * b.reshape(others)
    return [found.reshape([one * other for one, other in zip(a.shape, b.shape, strict=True)])]


def _cross(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    a, b = inputs
    dtype = _products(inputs)
    shape = broadcast([a.shape, b.shape])
    axis = axis_of(attributes["axis"], len(shape))
    for given in inputs:
        place = axis - len(shape) + len(given.shape)
        if place < 0 or given.shape[place] != 3:
            raise shapes_refused([a.shape, b.shape], f"axis {axis} must be 3 long")
    return [spec(shape, dtype)]


def _cross_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, b = mx.broadcast_arrays(*cast(arrays))
    axis = attributes["axis"]
    one, two = mx.array([1, 2, 0]), mx.array([2, 0, 1])
    first = taken(a, one, axis) * taken(b, two, axis)
    return [first - taken(a, two, axis) * taken(b, one, axis)]


def _einsum_letters(inputs: list[Any], subscripts: str) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    plain = all(re.fullmatch("[A-Za-z]*", term) for term in (*terms, right))
    if not plain or len(terms) != len(inputs):
        raise value_refused(
            "subscripts",
            subscripts,
            f'letters for each of {len(inputs)} inputs, such as "ij,jk->ik"',
        )
    if not arrow:
        right = "".join(sorted(each for each in set(left) - {","} if left.count(each) == 1))
    return terms, right


def _einsum(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    terms, right = _einsum_letters(inputs, attributes["subscripts"])
    lengths: dict[str, Dim] = {}
    for at, (given, term) in enumerate(zip(inputs, terms, strict=True)):
        require_dtype(f"operands[{at}]", given, INEXACT)
        if len(term) != len(given.shape):
            raise shapes_refused([given.shape], f"{term!r} has {len(term)} axes")
        for letter, length in zip(term, given.shape, strict=True):
            if not equal(lengths.setdefault(letter, length), length):
                raise shapes_refused(
                    [each.shape for each in inputs],
                    f"{letter!r} is {lengths[letter]} and {length}, must be equal",
                )
    if len(set(right)) < len(right) or not set(right) <= set(lengths):
        raise value_refused(
            "subscripts", attributes["subscripts"], "different letters of the inputs behind ->"
        )
    dtype = promote([given.dtype for given in inputs])
    return [spec((lengths[letter] for letter in right), dtype)]


def _einsum_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    arrays = cast(arrays)
    if any(each.size == 0 for each in arrays):  # mlx has no gradient of an empty diagonal
        terms, right = _einsum_letters(arrays, attributes["subscripts"])
        lengths = {
            letter: length
            for term, each in zip(terms, arrays, strict=True)
            for letter, length in zip(term, each.shape, strict=True)
        }
        return [mx.zeros([lengths[each] for each in right], arrays[0].dtype)]
    return [mx.einsum(attributes["subscripts"].replace(" ", ""), *arrays)]


def _einsum_cost(inputs: list[Any], attributes: Attributes) -> Dim:
    terms, _ = _einsum_letters(inputs, attributes["subscripts"])
    lengths = {
        letter: length
        for given, term in zip(inputs, terms, strict=True)
        for letter, length in zip(term, given.shape, strict=True)
    }
    return count(lengths.values())


def _gather_mm(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    a, b, left, right = inputs
    dtype = _products([a, b], ("float16", "bfloat16", "float32"))
    for place, given in zip(PAIR, (a, b), strict=True):
        require_rank(place, given, 2)
    picked = []
    for place, given, indices in (("lhs_indices", a, left), ("rhs_indices", b, right)):
        if indices is None:
            picked.append(given.shape[:-2])
            continue
        require_indices(place, indices)
        require_some(given.shape, count(given.shape[:-2]), indices.shape)
        picked.append(indices.shape)
    batch = broadcast(picked)
    product = product_shape(a.shape[-2:], b.shape[-2:])
    return [spec(batch + product, dtype)]


def _gather_mm_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, b = cast(arrays[:2])
    picked = [_picked(array, indices) for array, indices in zip((a, b), arrays[2:], strict=True)]
    return [mx.matmul(*picked)]


def _picked(array: mx.array, indices: mx.array | None) -> mx.array:
    """Take matrices at flat indices along the axes before them."""
    if indices is None:
        return array
    flat = (
        array.reshape(-1, *array.shape[-2:])
        if array.size
        else array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:])
    )
    return taken(flat, safe(indices, max(flat.shape[0], 1), negative=False), 0)


def _gather_mm_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    found = []
    for place, array, indices in zip(
        ("lhs_indices", "rhs_indices"), arrays[:2], arrays[2:], strict=True
    ):
        if indices is not None:
            size = math.prod(array.shape[:-2])
            found += checks_of(place, indices, size, attributes, negative=False)
    return found


def _hadamard(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    require_dtype("a", given, ("float16", "bfloat16", "float32"))
    require_rank("a", given, 1)
    length = given.shape[-1]
    rest = length if isinstance(length, int) else 0
    while rest and rest % 2 == 0 and rest not in (12, 20, 28):
        rest //= 2
    most = 8192 if given.dtype == "float32" else 16384
    if rest not in (1, 12, 20, 28) or int(str(length)) // rest > most:
        raise shapes_refused(
            [given.shape], f"its last axis must be m 2^k, m 1, 12, 20 or 28, 2^k to {most}"
        )
    if count(given.shape) == 0:
        raise shapes_refused([given.shape], "it must have elements")
    return [given]


def _hadamard_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    return [mx.hadamard_transform(arrays[0], attributes["scale"])]


ROWS = (
    row(
        "matmul",
        ("a", "b"),
        _matmul,
        lambda arrays, attributes: [mx.matmul(*cast(arrays))],
        "The product of matrices, or of stacks of them; a vector is a row on the left and a "
        "column on the right.",
        "out[…, i, j] = sum over k of a[…, i, k] b[…, k, j]",
        [
            example("[2,3]", "[3,4]"),
            example("[3]", "[3]"),
            example("[2,1,4,3]", "[5,3,2]"),
            example("[2,3]", "[3]"),
            example("[0,3]", "[3,2]"),
            example("[2,0]", "[0,2]"),
        ],
        aliases="dot dot_general mm bmm",
        differentiable=("a", "b"),
        multiplications=_matmul_cost,
    ),
    row(
        "inner",
        PAIR,
        _inner,
        lambda arrays, attributes: [mx.inner(*cast(arrays))],
        "The products of the last axes.",
        "out[i, j] = sum over k of a[i, k] b[j, k]",
        [example("[2,3]", "[4,3]"), example("[3]", "[3]")],
        differentiable=PAIR,
    ),
    row(
        "outer",
        PAIR,
        _outer,
        lambda arrays, attributes: [mx.outer(*cast(arrays))],
        "All products of an element of a and one of b, both flattened.",
        "out[i, j] = a[i] b[j]",
        [example("[2]", "[3]"), example("[2,2]", "[]")],
        differentiable=PAIR,
    ),
    row(
        "vecdot",
        PAIR,
        _vecdot,
        _vecdot_arrays,
        "The product of vectors along an axis, with a's complex conjugate.",
        "out = sum over k of conj(a[k]) b[k]",
        [example("[2,3]", "[3]"), example("[3,2]", "[3,2]", axis=-2), example("[2,0]", "[2,0]")],
        attributes=(Attribute("axis", "axis", -1, "The axis, counted from the end."),),
        differentiable=PAIR,
    ),
    row(
        "addmm",
        ("c", "a", "b"),
        _addmm,
        _addmm_arrays,
        "A matrix product and another array.",
        "alpha (a b) + beta c",
        [example("[4]", "[2,3]", "[3,4]"), example("[2,4]", "[2,3]", "[3,4]", alpha=0.5, beta=2.0)],
        attributes=(
            Attribute("alpha", "float", 1.0, "The product's factor."),
            Attribute("beta", "float", 1.0, "The other array's factor."),
        ),
        differentiable=("c", "a", "b"),
        multiplications=lambda inputs, attributes: _matmul_cost(inputs[1:], attributes),
    ),
    row(
        "tensordot",
        PAIR,
        _tensordot,
        _tensordot_arrays,
        "Products summed over some axes of both arrays.",
        "out = sum over the axes of a b",
        [
            example("[2,3,4]", "[3,4,5]"),
            example("[2,3]", "[3,2]", axes_a=[0], axes_b=[-1]),
            example("[2]", "[3]", axes=0),
        ],
        attributes=(
            Attribute("axes", "int", 2, "How many: the last of a, the first of b.", low=0, high=8),
            Attribute("axes_a", "axes", None, "The axes of a, in place of a number."),
            Attribute("axes_b", "axes", None, "The axes of b that belong to them."),
        ),
        differentiable=PAIR,
    ),
    row(
        "einsum",
        (Input("operands", variadic=True),),
        _einsum,
        _einsum_arrays,
        "Products summed over the letters that the result lacks.",
        "out[right] = sum over the other letters of the operands' product",
        [
            example("[2,3]", "[3,4]", subscripts="ij,jk->ik"),
            example("[2,3]", subscripts="ij->ji"),
            example("[5,2,3]", "[5,3]", "[2]", subscripts="bij,bj,i->b"),
            example("[2,3]", "[2,3]", subscripts="ij,ij"),
            example("[3,3]", subscripts="ii"),
        ],
        attributes=(
            Attribute("subscripts", "text", REQUIRED, 'Letters for each axis: "ij,jk->ik".'),
        ),
        differentiable=("operands",),
        multiplications=_einsum_cost,
    ),
    row(
        "kron",
        PAIR,
        _kron,
        _kron_arrays,
        "The Kronecker product.",
        "out[i n + j] = a[i] b[j]",
        [example("[2,2]", "[3,1]"), example("[2]", "[2,2]"), example("[0,2]", "[2,2]")],
        differentiable=PAIR,
    ),
    row(
        "cross",
        PAIR,
        _cross,
        _cross_arrays,
        "The product of vectors of 3 elements that is perpendicular to both.",
        "out = a x b",
        [example("[2,3]", "[3]"), example("[3,2]", "[3,2]", axis=0)],
        attributes=(Attribute("axis", "axis", -1, "The axis of the vectors."),),
        differentiable=PAIR,
    ),
    row(
        "gather_mm",
        ("a", "b", "lhs_indices?", "rhs_indices?"),
        _gather_mm,
        _gather_mm_arrays,
        "Products of the matrices at flat indices along the axes before them.",
        "out[i] = a[lhs_indices[i]] b[rhs_indices[i]]",
        [
            example("[4,2,3]", "[5,3,2]", "int32[3] 0..3", "int32[3] 0..4"),
            example("[2,3]", "[5,3,2]", None, "uint8[2,2] 0..4"),
        ],
        attributes=(INDICES,),
        differentiable=PAIR,
        checks=_gather_mm_checks,
    ),
    row(
        "hadamard_transform",
        ("a",),
        _hadamard,
        _hadamard_arrays,
        "The Walsh-Hadamard transform of the last axis.",
        "out = H a scale",
        [example("[2,8]"), example("[12]", scale=1.0)],
        attributes=(Attribute("scale", "float", None, "A factor; null is 1 / sqrt(length)."),),
        differentiable=("a",),
    ),
)
