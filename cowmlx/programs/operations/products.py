"""Products of vectors and matrices."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.half import keeping
from cowmlx.programs.operations.indexing import picked_checks, picked_shape
from cowmlx.programs.operations.indices import INDICES, Check, safe, taken
from cowmlx.programs.operations.making import PAIR, cast, constant, example, row, shaped
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import SMALL_FLOATS, promote
from cowmlx.programs.operations.sums import total


def product_shape(left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product; vectors lose their axis, as in numpy."""
    rows, inner = ((1, *left) if len(left) == 1 else left)[-2:]
    other, columns = ((*right, 1) if len(right) == 1 else right)[-2:]
    if not rules.equal(inner, other):
        raise rules.shapes_refused(
            [left, right],
            f"the last axis of the first ({inner}) must be as long as the last but one of the "
            f"second ({other})",
        )
    batch = rules.broadcast([left[:-2], right[:-2]])
    shape: tuple[Dim, ...] = batch
    if len(left) > 1:
        shape += (rows,)
    if len(right) > 1:
        shape += (columns,)
    return shape


def _matmul_cost(inputs: Sequence[Any], attributes: Attributes) -> Dim:
    a, b = inputs[-2:]
    return count(product_shape(a.shape, b.shape)) * a.shape[-1]


def _inner(left: Shape, right: Shape, attributes: Attributes) -> Shape:
    if not left or not right:
        return left + right
    if not rules.equal(left[-1], right[-1]):
        raise rules.shapes_refused([left, right], "the last axes must be as long")
    return left[:-1] + right[:-1]


def _vecdot(left: Shape, right: Shape, attributes: Attributes) -> Shape:
    shape = rules.broadcast([left, right])
    least = min(len(left), len(right))
    axis = attributes["axis"]
    if not -least <= axis < 0:
        raise rules.value_refused("axis", axis, f"{-least} to -1")
    if not rules.equal(left[axis], right[axis]):
        raise rules.shapes_refused([left, right], f"axis {axis} must be as long")
    return rules.without(shape, len(shape) + axis)


def _addmm(*inputs: Any, **attributes: Any) -> Spec:
    c, a, b = inputs
    for place, given, least in zip(("c", "a", "b"), inputs, (0, 1, 1), strict=True):
        rules.require_dtype(place, given, rules.INEXACT)
        rules.require_rank(place, given, least)
    shape = product_shape(a.shape, b.shape)
    if not rules.broadcasts_to(c.shape, shape):
        raise rules.shapes_refused([c.shape, shape], "c must broadcast to the product's shape")
    return rules.spec(shape, promote([given.dtype for given in inputs]))


def _addmm_arrays(c: Any, a: Any, b: Any, /, **attributes: Any) -> mx.array:
    c, a, b = cast([c, a, b])
    product = mx.matmul(a, b)
    alpha, beta = constant(attributes["alpha"], product), constant(attributes["beta"], product)
    return alpha * product + beta * c


def _pair_axes(axes: Any, rank: int, side: int) -> tuple[int, ...]:
    if isinstance(axes, int):
        if not 0 <= axes <= rank:
            raise rules.value_refused("axes", axes, f"0 to {rank}")
        return tuple(range(rank - axes, rank)) if side == 0 else tuple(range(axes))
    return rules.axes_of(axes, rank, f"axes_{'ab'[side]}")


def _tensordot_axes(
    ranks: tuple[int, int], attributes: Attributes
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    given = attributes["axes_a"], attributes["axes_b"]
    if (given[0] is None) != (given[1] is None):
        raise rules.value_refused("axes_a", "given without axes_b", "given with it")
    sides = [
        _pair_axes(attributes["axes"] if each is None else each, rank, side)
        for side, (each, rank) in enumerate(zip(given, ranks, strict=True))
    ]
    if len(sides[0]) != len(sides[1]):
        raise rules.value_refused("axes_b", list(sides[1]), f"{len(sides[0])} axes")
    return sides[0], sides[1]


def _tensordot(a: Shape, b: Shape, attributes: Attributes) -> Shape:
    left, right = _tensordot_axes((len(a), len(b)), attributes)
    for one, other in zip(left, right, strict=True):
        if not rules.equal(a[one], b[other]):
            raise rules.shapes_refused([a, b], f"axes {one} and {other} must be as long")
    return rules.reduced(a, left, False) + rules.reduced(b, right, False)


def _tensordot_array(a: mx.array, b: mx.array, **attributes: Any) -> mx.array:
    left, right = _tensordot_axes((a.ndim, b.ndim), attributes)
    return mx.tensordot(a, b, [list(left), list(right)])


def _of_one_rank(*shapes: Shape) -> list[Shape]:
    """Return shapes with axes of length 1 before those of the shorter ones."""
    rank = max(len(shape) for shape in shapes)
    return [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]


def _kron(a: Shape, b: Shape, attributes: Attributes) -> Shape:
    return tuple(one * other for one, other in zip(*_of_one_rank(a, b), strict=True))


def _kron_array(a: mx.array, b: mx.array) -> mx.array:
    left, right = _of_one_rank(a.shape, b.shape)
    pairs: Any = [each for length in left for each in (length, 1)]
    others: Any = [each for length in right for each in (1, length)]
    shape: Any = _kron(left, right, {})
    return (a.reshape(pairs) * b.reshape(others)).reshape(shape)


def _cross(a: Shape, b: Shape, attributes: Attributes) -> Shape:
    shape = rules.broadcast([a, b])
    axis = rules.axis_of(attributes["axis"], len(shape))
    for given in (a, b):
        place = axis - len(shape) + len(given)
        if place < 0 or given[place] != 3:
            raise rules.shapes_refused([a, b], f"axis {axis} must be 3 long")
    return shape


def _cross_array(a: mx.array, b: mx.array, axis: int) -> mx.array:
    a, b = mx.broadcast_arrays(a, b)
    one, two = mx.array([1, 2, 0]), mx.array([2, 0, 1])
    first = taken(a, one, axis) * taken(b, two, axis)
    return first - taken(a, two, axis) * taken(b, one, axis)


def einsum_letters(inputs: Sequence[Any], subscripts: str) -> tuple[list[str], str]:
    """Return the letters of each input's axes, and those of the result's."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    plain = all(re.fullmatch("[A-Za-z]*", term) for term in (*terms, right))
    if not plain or len(terms) != len(inputs):
        raise rules.value_refused(
            "subscripts",
            subscripts,
            f'letters for each of {len(inputs)} inputs, such as "ij,jk->ik"',
        )
    if not arrow:
        right = "".join(sorted(letter for letter in set(left) - {","} if left.count(letter) == 1))
    return terms, right


def _einsum(*inputs: Any, **attributes: Any) -> Spec:
    terms, right = einsum_letters(inputs, attributes["subscripts"])
    lengths: dict[str, Dim] = {}
    for at, (given, term) in enumerate(zip(inputs, terms, strict=True)):
        rules.require_dtype(f"operands[{at}]", given, rules.INEXACT)
        if len(term) != len(given.shape):
            raise rules.shapes_refused([given.shape], f"{term!r} has {len(term)} axes")
        for letter, length in zip(term, given.shape, strict=True):
            if not rules.equal(lengths.setdefault(letter, length), length):
                raise rules.shapes_refused(
                    [operand.shape for operand in inputs],
                    f"{letter!r} is {lengths[letter]} and {length}, must be equal",
                )
    if len(set(right)) < len(right) or not set(right) <= set(lengths):
        raise rules.value_refused(
            "subscripts", attributes["subscripts"], "different letters of the inputs behind ->"
        )
    dtype = promote([given.dtype for given in inputs])
    return rules.spec((lengths[letter] for letter in right), dtype)


def _lengths(inputs: Sequence[Any], terms: list[str]) -> dict[str, Any]:
    """Return the length of each letter's axis."""
    return {
        letter: length
        for given, term in zip(inputs, terms, strict=True)
        for letter, length in zip(term, given.shape, strict=True)
    }


def _einsum_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    operands = cast(arrays)
    if any(operand.size == 0 for operand in operands):  # mlx has no gradient of an empty diagonal
        terms, right = einsum_letters(operands, attributes["subscripts"])
        lengths = _lengths(operands, terms)
        return mx.zeros([lengths[letter] for letter in right], operands[0].dtype)
    return mx.einsum(attributes["subscripts"].replace(" ", ""), *operands)


def _einsum_cost(inputs: Sequence[Any], attributes: Attributes) -> Dim:
    terms, _ = einsum_letters(inputs, attributes["subscripts"])
    return count(_lengths(inputs, terms).values())


def _gather_mm(a: Any, b: Any, left: Any, right: Any, /, **attributes: Any) -> Spec:
    for place, given in zip(PAIR, (a, b), strict=True):
        rules.require_dtype(place, given, SMALL_FLOATS)
    for place, given in zip(PAIR, (a, b), strict=True):
        rules.require_rank(place, given, 2)
    batch = picked_shape((a.shape, left), (b.shape, right))
    shape = batch + product_shape(a.shape[-2:], b.shape[-2:])
    return rules.spec(shape, promote([a.dtype, b.dtype]))


def _gather_mm_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    a, b = cast(arrays[:2])
    picked = [_picked(array, indices) for array, indices in zip((a, b), arrays[2:], strict=True)]
    return mx.matmul(*picked)


def _picked(array: mx.array, indices: mx.array | None) -> mx.array:
    """Take matrices at flat indices along the axes before them."""
    if indices is None:
        return array
    many = math.prod(array.shape[:-2])
    flat = array.reshape(many, *array.shape[-2:])
    return taken(flat, safe(indices, max(many, 1), negative=False), 0)


def _gather_mm_checks(arrays: Sequence[Any], attributes: Attributes) -> list[Check]:
    a, b, left, right = arrays
    return picked_checks((a, left), (b, right), attributes)


def _hadamard(given: Any, /, **attributes: Any) -> Spec:
    rules.require_dtype("a", given, SMALL_FLOATS)
    rules.require_rank("a", given, 1)
    length = given.shape[-1]
    known = length if isinstance(length, int) else 0
    rest = known
    while rest and rest % 2 == 0 and rest not in (12, 20, 28):
        rest //= 2
    most = 8192 if given.dtype == "float32" else 16384
    if rest not in (1, 12, 20, 28) or known // rest > most:
        raise rules.shapes_refused(
            [given.shape], f"its last axis must be m 2^k, m 1, 12, 20 or 28, 2^k to {most}"
        )
    if count(given.shape) == 0:
        raise rules.shapes_refused([given.shape], "it must have elements")
    return given


def _hadamard_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    return mx.hadamard_transform(arrays[0], attributes["scale"])


ROWS = (
    shaped(
        "matmul(a, b)",
        lambda left, right, attributes: product_shape(left, right),
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
        accepted=rules.INEXACT,
        rank=1,
        meets=True,
        aliases="dot dot_general mm bmm",
        multiplications=_matmul_cost,
    ),
    shaped(
        "inner(a, b)",
        _inner,
        "The products of the last axes.",
        "out[i, j] = sum over k of a[i, k] b[j, k]",
        [example("[2,3]", "[4,3]"), example("[3]", "[3]")],
        accepted=rules.INEXACT,
        meets=True,
    ),
    shaped(
        "outer(a, b)",
        lambda left, right, attributes: (count(left), count(right)),
        "All products of an element of a and one of b, both flattened.",
        "out[i, j] = a[i] b[j]",
        [example("[2]", "[3]"), example("[2,2]", "[]")],
        meets=True,
    ),
    shaped(
        "vecdot(a, b)",
        _vecdot,
        "The product of vectors along an axis, with a's complex conjugate.",
        "out = sum over k of conj(a[k]) b[k]",
        [example("[2,3]", "[3]"), example("[3,2]", "[3,2]", axis=-2), example("[2,0]", "[2,0]")],
        lambda a, b, axis: total(mx.conjugate(a) * b, axis=axis),
        accepted=rules.INEXACT,
        meets=True,
        attributes=(Attribute("axis", "axis", -1, "The axis, counted from the end."),),
    ),
    row(
        "addmm(∂c, ∂a, ∂b)",
        _addmm,
        keeping(_addmm_arrays, ["alpha", "beta"]),
        "A matrix product and another array.",
        "alpha (a b) + beta c",
        [example("[4]", "[2,3]", "[3,4]"), example("[2,4]", "[2,3]", "[3,4]", alpha=0.5, beta=2.0)],
        attributes=(
            Attribute("alpha", "float", 1.0, "The product's factor."),
            Attribute("beta", "float", 1.0, "The other array's factor."),
        ),
        multiplications=lambda inputs, attributes: _matmul_cost(inputs[1:], attributes),
    ),
    shaped(
        "tensordot(a, b)",
        _tensordot,
        "Products summed over some axes of both arrays.",
        "out = sum over the axes of a b",
        [
            example("[2,3,4]", "[3,4,5]"),
            example("[2,3]", "[3,2]", axes_a=[0], axes_b=[-1]),
            example("[2]", "[3]", axes=0),
        ],
        _tensordot_array,
        meets=True,
        accepted=rules.INEXACT,
        attributes=(
            Attribute("axes", "int", 2, "How many: the last of a, the first of b.", low=0, high=8),
            Attribute("axes_a", "axes", None, "The axes of a, in place of a number."),
            Attribute("axes_b", "axes", None, "The axes of b that belong to them."),
        ),
    ),
    row(
        "einsum(∂operands…)",
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
        multiplications=_einsum_cost,
    ),
    shaped(
        "kron(a, b)",
        _kron,
        "The Kronecker product.",
        "out[i n + j] = a[i] b[j]",
        [example("[2,2]", "[3,1]"), example("[2]", "[2,2]"), example("[0,2]", "[2,2]")],
        _kron_array,
        meets=True,
    ),
    shaped(
        "cross(a, b)",
        _cross,
        "The product of vectors of 3 elements that is perpendicular to both.",
        "out = a x b",
        [example("[2,3]", "[3]"), example("[3,2]", "[3,2]", axis=0)],
        _cross_array,
        meets=True,
        accepted=rules.NUMBERS,
        attributes=(Attribute("axis", "axis", -1, "The axis of the vectors."),),
    ),
    row(
        "gather_mm(∂a, ∂b, lhs_indices?, rhs_indices?)",
        _gather_mm,
        _gather_mm_arrays,
        "Products of the matrices at flat indices along the axes before them.",
        "out[i] = a[lhs_indices[i]] b[rhs_indices[i]]",
        [
            example("[4,2,3]", "[5,3,2]", "int32[3] 0..3", "int32[3] 0..4"),
            example("[2,3]", "[5,3,2]", None, "uint8[2,2] 0..4"),
        ],
        attributes=(INDICES,),
        checks=_gather_mm_checks,
    ),
    row(
        "hadamard_transform(∂a)",
        _hadamard,
        _hadamard_arrays,
        "The Walsh-Hadamard transform of the last axis.",
        "out = H a scale",
        [example("[2,8]"), example("[12]", scale=1.0)],
        attributes=(Attribute("scale", "float", None, "A factor; null is 1 / sqrt(length)."),),
    ),
)
