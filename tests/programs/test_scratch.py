"""What operations take on their way is known before, and counted against the limit."""

from __future__ import annotations

import dataclasses
import math

import mlx.core as mx
import pytest
from support.enlarged import enlarged, filled, peak_of

from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import Example, Operation, Spec
from cowmlx.programs.operations.rules import mlx_dtype
from cowmlx.programs.operations.scratch import OTHERS, SCRATCH, scratch_of
from cowmlx.programs.running.cost import bytes_of

ELEMENTS = 12_000
"""Of an example's inputs and results: enough to outweigh what mlx takes for any array."""
DTYPES = ("float32", "float64", "float16")
SLACK = 1 << 13
"""Bytes of arrays whose size does not depend on the inputs'."""
TIMES = 16
"""How much more than an operation takes may be counted for it, in the example that takes most."""

# What few elements make much of.
MORE = {
    "allclose": [Example(("float32[300,1]", "float32[1,300]"), {})],
    "vecdot": [Example(("float32[60,1,60]", "float32[1,60,60]"), {})],
    "einsum": [
        Example(("float32[300,3]", "float32[300,3]"), {"subscripts": "ab,cd->ac"}),
        Example(("float32[300,300]", "float32[300]", "float32[300]"), {"subscripts": "ab,b,c->ac"}),
        Example(
            ("float32[200,3]", "float32[200,3]", "float32[200,200]"),
            {"subscripts": "ai,bi,ab->"},
        ),
    ],
    "random_categorical": [Example(("float32[10]", "uint32[2]"), {"num_samples": 9000})],
    "scaled_dot_product_attention": [
        Example(("float32[2,4,200,1]", "float32[2,2,200,1]", "float32[2,2,200,1]"), {}),
        Example(
            ("float32[2,4,200,1]", "float32[2,2,200,1]", "float32[2,2,200,1]"), {"causal": True}
        ),
    ],
    "gather_mm": [
        Example(("float32[2,1,60]", "float32[2,60,60]", "int32[90] 0..1", "int32[90] 0..1"), {})
    ],
    "max_pool2d": [
        Example(("float32[1,300,4,1]",), {"kernel_size": [100, 1], "stride": 1}),
        Example(("float32[1,90,90,1]",), {"kernel_size": 20, "stride": 1, "padding": 10}),
    ],
    "avg_pool1d": [Example(("float32[1,300,3]",), {"kernel_size": 100, "stride": 1})],
    "conv1d": [
        Example(("float32[1,900,1]", "float32[1,300,1]"), {}),
        Example(("float32[1,9,3]", "float32[2,3,3]"), {"padding": 9000}),
    ],
    "conv2d": [Example(("float32[1,40,40,2]", "float32[3,9,9,2]"), {"stride": 2, "dilation": 2})],
    "conv_general": [
        Example(("float32[1,9,3]", "float32[2,3,3]"), {"input_dilation": 900, "stride": 2})
    ],
    "conv_transpose1d": [
        Example(("float32[1,9,3]", "float32[2,30,3]"), {"stride": 300}),
        Example(("float32[1,9,3]", "float32[2,3,3]"), {"dilation": 900}),
    ],
    "convolve": [Example(("float32[900]", "float32[300]"), {})],
    "pinv": [Example(("float32[2,500]",), {}), Example(("float32[500,2]",), {})],
    "qr": [Example(("float32[2,2000]",), {})],
}


def _examples(row: Operation) -> list[Example]:
    """Return the examples of a row in several dtypes, as far as it takes these."""
    found = []
    for each in (*row.examples, *MORE.get(row.name, [])):
        for dtype in DTYPES:
            inputs = tuple(
                None if text is None else text.replace("float32", dtype) for text in each.inputs
            )
            attributes = dict(each.attributes)
            if "dtype" in {attribute.name for attribute in row.attributes}:
                attributes.setdefault("dtype", dtype)
            if dtype == "float32" or inputs != each.inputs or attributes != each.attributes:
                found.append(dataclasses.replace(each, inputs=inputs, attributes=attributes))
    return found


def _measured(row: Operation) -> list[tuple[int, int, int, str]]:
    """Return what larger examples take beside inputs and results, the estimate and elements."""
    found = []
    for example in _examples(row):
        for specs, attributes in enlarged(row, example, ELEMENTS, 2):
            given = filled(row, example, specs)
            inputs = row.arranged(specs)
            results = row.infer(inputs, attributes)
            taken = peak_of(row, given, attributes, results) - sum(map(bytes_of, results))
            known = [*(spec for spec in specs if spec is not None), *results]
            elements = sum(math.prod(spec.shape) for spec in known)
            estimate = scratch_of(row.name, inputs, attributes, results)
            found.append((taken, estimate, elements, f"{example} as {[str(one) for one in known]}"))
    return found


@pytest.mark.parametrize("size", [1, 1024, 4096])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float64"])
def test_the_elements_that_differ_need_no_table_of_all(size, dtype):
    row, given = find("unique"), mx.arange(50_000).astype(mlx_dtype(dtype))
    mx.eval(given)
    attributes, inputs = attributes_of(row, {"size": size}), [Spec(given.shape, dtype)]
    results = row.infer(inputs, attributes)
    taken = peak_of(row, [given], attributes, results) - sum(map(bytes_of, results))
    assert taken <= scratch_of("unique", inputs, attributes, results) + SLACK


@pytest.mark.long
def test_no_operation_takes_more_on_its_way_than_is_known() -> None:
    more, much = [], []
    for row in ROWS:
        measured = _measured(row)
        assert measured or not row.examples, row.name
        for taken, estimate, elements, what in measured:
            if taken > estimate + OTHERS * elements + SLACK:
                more.append(
                    f"{row.name} takes {taken}, not {estimate} + {elements} * {OTHERS}: {what}"
                )
        if row.name in SCRATCH and all(
            estimate > TIMES * max(taken, 1) + SLACK for taken, estimate, _, _ in measured
        ):
            much.append(row.name)
    assert not more, "\n".join(more)
    assert not much
    assert SCRATCH.keys() <= {row.name for row in ROWS}
