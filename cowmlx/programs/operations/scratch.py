"""Memory that operations take on their way, where that is more than inputs and results account for.

An operation that is not in :data:`SCRATCH` takes at most :data:`OTHERS` bytes for each element of
its inputs and results, and most take none. What is here was measured with mlx 0.32.4 on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.programs.operations.convolutions import steps_of
from cowmlx.programs.operations.products import einsum_letters
from cowmlx.programs.operations.row import Attributes, Spec
from cowmlx.programs.operations.rules import BITS

Specs = Sequence[Any]
"""Of inputs; None for one that is missing."""
Scratch = Callable[[Specs, Attributes, Sequence[Spec]], int]
"""Bytes, for the specs of all inputs, attributes and the specs of results, of known shapes."""

OTHERS = 24
"""Bytes for each element of inputs and results: three arrays of the widest type."""


def scratch_of(op: str, inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """Return the bytes that an operation takes at most beside its inputs and results."""
    known = SCRATCH.get(op)
    if known is None or all(0 in result.shape for result in results):  # those are zeros at once
        return 0
    return known(inputs, attributes, results)


def _size(shape: Iterable[Any]) -> int:
    return math.prod(shape)


def _bytes(spec: Spec) -> int:
    return max(BITS[spec.dtype] // 8, 1)


def _whole(specs: Specs) -> int:
    """Return the elements of the shape that all shapes broadcast to."""
    shape: list[int] = []
    for spec in specs:
        if spec is not None:
            shape = [1] * (len(spec.shape) - len(shape)) + shape
            for at, size in enumerate(spec.shape, len(shape) - len(spec.shape)):
                shape[at] = size if shape[at] == 1 else shape[at]
    return math.prod(shape)


def _largest(specs: Specs) -> int:
    return max((_size(spec.shape) for spec in specs if spec is not None), default=0)


def _each(narrow: int, wide: int | None = None) -> Scratch:
    """Return the rule of so many bytes for each element of the largest array.

    Args:
        narrow: the bytes.
        wide: those where an input or result is float64; None: as many.
    """

    def scratch(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
        both = [*inputs, *results]
        has_wide = any(operand is not None and operand.dtype == "float64" for operand in both)
        return (wide if has_wide and wide is not None else narrow) * _largest(both)

    return scratch


def _meeting(least: int, times: int) -> Scratch:
    """Return the rule of operations that make arrays of the shape to which inputs broadcast.

    Args:
        least: bytes of an element, beside those of its type.
        times: how many arrays of the inputs' type are made.
    """

    def scratch(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
        width = max(_bytes(operand) for operand in inputs if operand is not None)
        return (least + times * width) * _whole(inputs)

    return scratch


def _matrices(times: int, line: int = 0, square: bool = False) -> Scratch:
    """Return the rule of linear algebra, which LAPACK computes in copies and with workspace.

    Args:
        times: copies of the matrices.
        line: elements of workspace for each row and column.
        square: whether rotations of all rows, and of all columns, are made.
    """

    def scratch(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
        given = inputs[0]
        *batch, rows, columns = given.shape
        elements = times * max(_largest(inputs), _largest(results)) + line * (rows + columns)
        if square:
            elements += _size(batch) * (rows * rows + columns * columns)
        return max(_bytes(given), 4) * elements

    return scratch


def _multivariate(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    return 4 * (4 * _largest(inputs[:2]) + 4 * _largest(results))


def _categorical(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """Noise for each class of each sample, and the sum with its logit."""
    logits = inputs[0]
    many = attributes["num_samples"]
    return (8 + max(_bytes(logits), 4)) * _size(logits.shape) * (1 if many is None else many)


def _convolution(name: str) -> Scratch:
    """Return the rule of a convolution that gathers its windows and multiplies them."""

    def scratch(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
        given, weight = inputs
        kernel = weight.shape[1:-1]
        steps = steps_of(name, attributes, kernel, is_cut=False)
        lengths, places = [], []
        for at, (side, out) in enumerate(
            zip(given.shape[1:-1], results[0].shape[1:-1], strict=True)
        ):
            gap = steps.input_dilation[at]
            length: Any = (side - 1) * gap + 1 + sum(steps.pads[at])
            lengths.append(length)
            if name.startswith("conv_transpose"):
                places.append(length - steps.kernel_dilation[at] * (kernel[at] - 1))
            else:  # where the input has gaps, the result is computed for all places and cut
                places.append(max(length, out) if gap > 1 else out)
        batch, channels = given.shape[0], given.shape[-1]
        padded = _size((batch, *lengths, channels))
        gathered = _size((batch, *places, *kernel, channels))
        uncut = _size((batch, *places, weight.shape[0]))
        # float64 and mixed steps gather axis after axis, with indices, and order the windows.
        return 4 * _bytes(results[0]) * (padded + gathered + uncut + 2 * _size(weight.shape))

    return scratch


def _line(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """All windows of the longer line, as long as the shorter."""
    short = min(_size(operand.shape) for operand in inputs if operand is not None)
    length = _size(results[0].shape)
    return 3 * _bytes(results[0]) * (length * short + length + 2 * short)


def _pool(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """One axis after the other; the windows of one are there with the result of the one before."""
    (given,) = inputs
    axes = len(given.shape) - 2
    kernels, pads = (
        value if isinstance(value, tuple) else (value,) * axes
        for value in (attributes["kernel_size"], attributes["padding"])
    )
    padded = [length + 2 * pad for length, pad in zip(given.shape[1:-1], pads, strict=True)]
    elements = 0
    shape = [given.shape[0], *padded, given.shape[-1]]
    for axis, (kernel, places) in enumerate(zip(kernels, results[0].shape[1:-1], strict=True), 1):
        before = _size(shape)
        shape[axis] = places
        elements = max(elements, before + 2 * _size(shape) * kernel + _size(shape))
    return 2 * max(_bytes(given), 4) * elements


def _gathered(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """Copies of the matrices that indices pick."""
    batch = _size(results[0].shape[:-2])
    picked = [
        _size(operand.shape[-2:])
        for operand in inputs[:2]
        if operand is not None and len(operand.shape) >= 2
    ]
    return 2 * _bytes(results[0]) * batch * sum(picked)


def _attention(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """Scores, masked and as weights, float64 as numbers of more steps; a tile of each thread."""
    q, k, v = inputs[:3]
    scores = _size((*q.shape[:3], k.shape[2]))
    times = 12 if results[0].dtype == "float64" else 4
    tiles = (kernels.threads() or 0) * (2**15 + 2**10 * (q.shape[3] + v.shape[3]))
    return times * max(_bytes(results[0]), 4) * scores + tiles


def _einsum(inputs: Specs, attributes: Attributes, results: Sequence[Spec]) -> int:
    """The product of each step, and its operands in another order."""
    terms, right = einsum_letters(inputs, attributes["subscripts"])
    sizes: dict[str, int] = {}
    arrays = []
    for term, operand in zip(terms, inputs, strict=True):
        sizes.update(zip(term, operand.shape, strict=True))
        arrays.append(mx.broadcast_to(mx.array(0.0), operand.shape))  # no elements are made of it
    path, _ = mx.einsum_path(attributes["subscripts"].replace(" ", ""), *arrays)
    elements = 0
    for step in path:
        taken = [terms[at] for at in step]
        terms = [term for at, term in enumerate(terms) if at not in step]
        kept = set("".join(taken)) & (set(right) | set("".join(terms)))
        terms.append("".join(sorted(kept)))
        # An axis that comes twice in a term goes first; a diagonal needs an index for each element.
        elements += sum(2 * _size(sizes[letter] for letter in term) for term in taken)
        elements += 2 * _size(sizes[letter] for letter in kept)
    return max(_bytes(results[0]), 4) * elements


SCRATCH: dict[str, Scratch] = {
    # Elements, of which float64 is computed in steps.
    "erf": _each(0, 96),
    "erfinv": _each(0, 240),
    "cos": _each(0, 80),
    "logaddexp": _each(0, 32),
    "cumsum": _each(8),
    "cumprod": _each(8),
    "logcumsumexp": _each(8, 240),
    "gelu": _each(0, 120),
    "log_sigmoid": _each(0, 64),
    "softplus": _each(0, 64),
    "logsumexp": _each(8, 64),
    "log_softmax": _each(8, 64),
    "cross_entropy": _each(8, 80),
    "binary_cross_entropy": _each(8, 80),
    "log_cosh_loss": _each(8, 80),
    # Inputs that meet in a shape that the result may lack.
    "isclose": _meeting(16, 4),
    "allclose": _meeting(16, 4),
    "cross": _meeting(0, 3),
    "vecdot": _meeting(0, 2),
    "einsum": _einsum,
    "gather_mm": _gathered,
    "scaled_dot_product_attention": _attention,
    # Order.
    "unique": _each(24),
    # Random numbers.
    "random_normal": _each(8, 300),
    "random_truncated_normal": _each(8, 300),
    "random_laplace": _each(16, 40),
    "random_uniform": _each(8, 64),
    "random_gumbel": _each(8, 64),
    "random_randint": _each(32),
    "random_categorical": _categorical,
    "random_multivariate_normal": _multivariate,
    # Weights of few bits.
    "quantize": _each(96),
    # Linear algebra.
    "pinv": _matrices(4, 64, square=True),
    "qr": _matrices(2, 64),
    "svd": _matrices(3, 64),
    **dict.fromkeys(("eig", "eigvals", "eigh", "eigvalsh"), _matrices(4, 64)),
    **dict.fromkeys(("solve", "solve_triangular"), _matrices(8)),
    **dict.fromkeys(("inv", "tri_inv", "det", "slogdet", "cholesky", "cholesky_inv"), _matrices(5)),
    **dict.fromkeys(("lu", "lu_factor"), _matrices(5)),
    # Convolutions and pooling.
    **{
        name: _convolution(name)
        for name in (
            *(f"{kind}{axes}d" for kind in ("conv", "conv_transpose") for axes in (1, 2, 3)),
            "conv_general",
        )
    },
    "convolve": _line,
    **{f"{kind}_pool{axes}d": _pool for kind in ("max", "avg") for axes in (1, 2, 3)},
}
"""Rules by the names of rows."""
