"""Weights in few bits, and products with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count, divided
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.indexing import picked_checks, picked_shape
from cowmlx.programs.operations.indices import INDICES, Check, safe
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.row import Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import SMALL_FLOATS as FLOATS
from cowmlx.programs.operations.rules import described, mlx_dtype
from cowmlx.quantized_formats import FORMATS

_MODE = Attribute("mode", "choice", "affine", "How numbers are stored.", tuple(FORMATS))
_ATTRIBUTES = (
    Attribute("group_size", "int", None, "How many share a scale; null is the mode's own.", low=1),
    Attribute("bits", "int", None, "The bits of an element; null is the mode's own.", low=1),
    _MODE,
)
_TRANSPOSE = Attribute("transpose", "bool", True, "Whether rows of w are outputs.")


def _format(attributes: Attributes) -> tuple[int, int]:
    """Return group size and bits."""
    known = FORMATS[attributes["mode"]]
    size = known.groups[0] if attributes["group_size"] is None else attributes["group_size"]
    bits = known.bits[0] if attributes["bits"] is None else attributes["bits"]
    if size not in known.groups:
        accepted = " or ".join(map(str, sorted(known.groups)))
        raise rules.value_refused("group_size", size, accepted)
    if bits not in known.bits:
        raise rules.value_refused("bits", bits, " or ".join(map(str, sorted(known.bits))))
    return size, bits


def _given(attributes: Attributes) -> Any:
    size, bits = _format(attributes)
    return {"group_size": size, "bits": bits, "mode": attributes["mode"]}


def _with_elements(
    infer: Callable[..., Spec], compute: Callable[..., mx.array]
) -> Callable[..., mx.array]:
    """Return ``compute``, with zeros for inputs without elements: mlx divides by their number."""

    def function(*arrays: Any, **attributes: Any) -> mx.array:
        if all(operand is None or operand.size for operand in arrays):
            return compute(*arrays, **attributes)
        specs = [None if array is None else described(array) for array in arrays]
        inferred: Any = infer(*specs, **attributes)
        return mx.zeros(inferred.shape, mlx_dtype(inferred.dtype))

    return function


def _quantize(w: Any, /, **attributes: Any) -> list[Spec]:
    rules.require_dtype("w", w, FLOATS)
    rules.require_rank("w", w, 2)
    size, bits = _format(attributes)
    groups = divided(w.shape[-1], size)
    if groups is None or count(w.shape) == 0:
        raise rules.shapes_refused(
            [w.shape], f"its last axis must be a multiple of {size}, with elements"
        )
    words = divided(w.shape[-1] * bits, 32)
    assert words is not None, "a group has whole words"
    packed = rules.spec((*w.shape[:-1], words), "uint32")
    scales = (*w.shape[:-1], groups)
    if not FORMATS[attributes["mode"]].affine:
        return [packed, Spec(scales, "uint8")]
    return [packed, Spec(scales, w.dtype), Spec(scales, w.dtype)]


def _quantize_arrays(w: Any, /, **attributes: Any) -> list[mx.array]:
    options = _given(attributes)
    if w.size % 32 == 0:
        return list(mx.quantize(w, **options))
    # mlx takes a whole number of 32 elements, which an odd number of groups of 16 is not.
    rows = w.reshape(-1, w.shape[-1])
    rows = mx.concatenate([rows, mx.zeros_like(rows[:1])])
    return [array[:-1].reshape(*w.shape[:-1], -1) for array in mx.quantize(rows, **options)]


def _unpacked(w: Spec, scales: Spec, biases: Spec | None, attributes: Attributes) -> Shape:
    """Check a quantized matrix; return the shape of what it stands for."""
    size, bits = _format(attributes)
    affine = FORMATS[attributes["mode"]].affine
    rules.require_dtype("w", w, ("uint32",))
    rules.require_rank("w", w, 2)
    rules.require_dtype("scales", scales, FLOATS if affine else ("uint8",))
    if affine != (biases is not None):
        raise rules.value_refused(
            "biases", "missing" if affine else "given", "given with affine, and else missing"
        )
    columns = divided(w.shape[-1] * 32, bits)
    groups = None if columns is None else divided(columns, size)
    for place, given in (("scales", scales), ("biases", biases)):
        if given is None:
            continue
        wanted = None if groups is None else (*w.shape[:-1], groups)
        fits = wanted is not None and len(given.shape) == len(wanted)
        if not fits or not all(map(rules.equal, given.shape, wanted or ())):
            raise rules.shapes_refused(
                [w.shape, given.shape], f"{place} must have one for {size} elements of w"
            )
    if biases is not None and biases.dtype != scales.dtype:
        raise rules.value_refused("biases", biases.dtype, f"{scales.dtype}, as scales are")
    assert columns is not None
    return (*w.shape[:-1], columns)


def _dequantize(w: Any, scales: Any, biases: Any, /, **attributes: Any) -> Spec:
    shape = _unpacked(w, scales, biases, attributes)
    wanted = attributes["dtype"]
    if wanted is not None and wanted not in FLOATS:
        raise rules.value_refused("dtype", wanted, ", ".join(FLOATS))
    own = scales.dtype if scales.dtype in FLOATS else "bfloat16"
    return rules.spec(shape, wanted or own)


def _dequantize_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    wanted = attributes["dtype"]
    dtype = None if wanted is None else mlx_dtype(wanted)
    w, scales, biases = arrays
    options = _given(attributes)
    if scales.size % 2 == 0 or attributes["mode"] != "nvfp4":
        return mx.dequantize(w, scales, biases, **options, dtype=dtype)
    # As for mx.quantize: mlx takes an even number of groups of 16.
    rows = [array.reshape(-1, array.shape[-1]) for array in (w, scales)]
    w_more, scales_more = (mx.concatenate([one, mx.zeros_like(one[:1])]) for one in rows)
    made = mx.dequantize(w_more, scales_more, None, **options, dtype=dtype)
    return made[:-1].reshape(*w.shape[:-1], -1)


def _product(name: str, x: Spec, shape: Shape, scales: Spec, attributes: Attributes) -> Dim:
    """Check a product's dtypes and inner axes; return its columns."""
    rules.require_dtype("x", x, FLOATS)
    rules.require_rank("x", x, 1 if name == "quantized_matmul" else 2)
    if scales.dtype in FLOATS and scales.dtype != x.dtype:
        raise rules.value_refused("scales", scales.dtype, f"{x.dtype}, as x is")
    inner, columns = (shape[-1], shape[-2]) if attributes["transpose"] else shape[-2:]
    if not rules.equal(x.shape[-1], inner):
        raise rules.shapes_refused([x.shape, shape], f"the last axis of x must be {inner}")
    return columns


def _quantized_matmul(*inputs: Any, **attributes: Any) -> Spec:
    name = "quantized_matmul"
    x, w, scales, biases = inputs
    shape = _unpacked(w, scales, biases, attributes)
    if len(shape) != 2:
        raise rules.shapes_refused([shape], "w must have 2 dimensions; see gather_qmm for more")
    columns = _product(name, x, shape, scales, attributes)
    return rules.spec((*x.shape[:-1], columns), x.dtype)


def _quantized_matmul_arrays(
    x: Any, w: Any, scales: Any, biases: Any, /, **attributes: Any
) -> mx.array:
    options = _given(attributes)
    transpose = attributes["transpose"]
    return mx.quantized_matmul(x, w, scales, biases, transpose=transpose, **options)


def _gather_qmm(*inputs: Any, **attributes: Any) -> Spec:
    name = "gather_qmm"
    x, w, scales, biases, left, right = inputs
    shape = _unpacked(w, scales, biases, attributes)
    columns = _product(name, x, shape, scales, attributes)
    both = picked_shape((x.shape, left), (shape, right))
    return rules.spec((*both, x.shape[-2], columns), x.dtype)


def _gather_qmm_arrays(
    x: Any, w: Any, scales: Any, biases: Any, left: Any, right: Any, /, **attributes: Any
) -> mx.array:
    options = _given(attributes)
    where: list[Any] = [
        None
        if indices is None
        else safe(indices, max(math.prod(array.shape[:-2]), 1), negative=False)
        for array, indices in ((x, left), (w, right))
    ]
    if x.ndim == 2:
        # mlx has no gradient for a matrix without an axis before it.
        x = x[None]
        if where[0] is None:
            where[0] = mx.zeros(w.shape[:-2] if where[1] is None else where[1].shape, mx.int32)
    if where[0] is not None and where[1] is not None:
        where = list(mx.broadcast_arrays(*where))
    unsigned = [None if each is None else each.astype(mx.uint32) for each in where]
    transpose = attributes["transpose"]
    return mx.gather_qmm(
        x,
        w,
        scales,
        biases,
        lhs_indices=unsigned[0],
        rhs_indices=unsigned[1],
        transpose=transpose,
        **options,
    )


def _gather_qmm_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    x, w, _, _, left, right = arrays
    return picked_checks((x, left), (w, right), attributes)


def _to_fp8(*inputs: Any, **attributes: Any) -> Spec:
    rules.require_dtype("x", inputs[0], FLOATS)
    return Spec(inputs[0].shape, "uint8")


def _from_fp8(*inputs: Any, **attributes: Any) -> Spec:
    rules.require_dtype("x", inputs[0], ("uint8",))
    if attributes["dtype"] not in FLOATS:
        raise rules.value_refused("dtype", attributes["dtype"], ", ".join(FLOATS))
    return Spec(inputs[0].shape, attributes["dtype"])


ROWS = (
    row(
        "quantize(w)",
        _quantize,
        _quantize_arrays,
        "Matrices in few bits, with a scale (and a bias, if affine) for each group of a row.",
        "w = scales w_q + biases, in groups",
        [
            example("[4,64]", group_size=32, bits=4),
            example("[2,128]", bits=8),
            example("[2,64]", mode="mxfp4"),
            example("[2,32]", mode="nvfp4"),
        ],
        attributes=_ATTRIBUTES,
        outputs=("w_q", "scales", "biases"),
        outputs_vary=True,
        stacks=(0,),
    ),
    row(
        "dequantize(w, scales, biases?)",
        _dequantize,
        _with_elements(_dequantize, _dequantize_arrays),
        "What quantized matrices stand for.",
        "out = scales w + biases, in groups",
        [
            example("uint32[4,8] bits", "[4,2]", "[4,2]", group_size=32, bits=4),
            example("uint32[2,8] bits", "uint8[2,2] 100..130", mode="mxfp4"),
            example("uint32[2,8] 0..100", "uint8[2,1] 100..130", mode="mxfp8"),
        ],
        attributes=(
            *_ATTRIBUTES,
            Attribute("dtype", "dtype", None, "The result's dtype; null is that of scales."),
        ),
        stacks=(0, 1, 2),
    ),
    row(
        "quantized_matmul(∂x, w, scales, biases?)",
        _quantized_matmul,
        _with_elements(_quantized_matmul, _quantized_matmul_arrays),
        "The product with a quantized matrix.",
        "x (scales w + biases)^T, or without ^T",
        [
            example("[3,64]", "uint32[4,8] bits", "[4,1]", "[4,1]"),
            example("[3,4]", "uint32[4,8] bits", "[4,2]", "[4,2]", transpose=False, group_size=32),
        ],
        attributes=(_TRANSPOSE, *_ATTRIBUTES),
        multiplications=lambda inputs, attributes: (
            count(_quantized_matmul(*inputs, **attributes).shape) * inputs[0].shape[-1]
        ),
        stacks=(0,),
    ),
    row(
        "gather_qmm(∂x, w, scales, biases?, lhs_indices?, rhs_indices?)",
        _gather_qmm,
        _with_elements(_gather_qmm, _gather_qmm_arrays),
        "Products with the quantized matrices at flat indices along the axes before them.",
        "out[i] = x[lhs_indices[i]] (scales w + biases)[rhs_indices[i]]^T",
        [
            example(
                "[3,2,64]",
                "uint32[5,4,8] bits",
                "[5,4,1]",
                "[5,4,1]",
                "int32[3] 0..2",
                "int32[3] 0..4",
            ),
            example("[2,64]", "uint32[5,4,8] bits", "[5,4,1]", "[5,4,1]", None, "uint8[2] 0..4"),
            example(
                "[2,64]",
                "uint32[3,4,8] bits",
                "[3,4,1]",
                "[3,4,1]",
                "int32[3] 0..0",
                "int32[3] 0..2",
            ),
        ],
        attributes=(_TRANSPOSE, *_ATTRIBUTES, INDICES),
        checks=_gather_qmm_checks,
        stacks=(),
    ),
    row(
        "to_fp8(x)",
        _to_fp8,
        lambda *arrays, **attributes: mx.to_fp8(arrays[0]),
        "The bits of 8-bit floats (e4m3); what is too large becomes the largest.",
        "bits of the nearest e4m3",
        [example("[2,3]"), example("[]")],
        stacks=(0,),
    ),
    row(
        "from_fp8(x)",
        _from_fp8,
        lambda *arrays, **attributes: mx.from_fp8(arrays[0], mlx_dtype(attributes["dtype"])),
        "The numbers that 8-bit floats (e4m3) are.",
        "the e4m3 with these bits",
        [example("uint8[2,3] 0..100"), example("uint8[3] 0..100", dtype="float32")],
        attributes=(Attribute("dtype", "dtype", "bfloat16", "The result's dtype."),),
        stacks=(0,),
    ),
)
