"""Single operations: kernels compute small ones at once, with the numbers of the table's rows."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.operation_runs import numpy_of, run

from cowmlx.accelerate import kernels
from cowmlx.programs import single
from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import arrays_of

needs_kernels = pytest.mark.skipif(not kernels.usable(), reason="needs kernels")
CASES = [
    pytest.param(row, example, id=f"{row.name}-{at}")
    for row in ROWS
    for at, example in enumerate(row.examples)
]


def prepared(name: str, **attributes) -> single.Prepared:
    row = find(name)
    return single.Prepared(row, attributes_of(row, attributes))


def is_computed(operation: single.Prepared, *arrays: mx.array) -> bool:
    mx.eval(arrays)
    return single.apply(operation, arrays)[1]


@pytest.mark.parametrize("row, example", CASES)
def test_results_are_those_of_the_row(row, example):
    inputs = arrays_of(example)
    mx.eval([each for each in inputs if each is not None])
    attributes = attributes_of(row, example.attributes)
    wanted = run(row, inputs, attributes)
    operation = single.Prepared(row, attributes)
    for _ in range(2):  # recorded, then replayed
        found = single.apply(operation, inputs)[0]
        for one, other in zip(found, wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(numpy_of(one), numpy_of(other), rtol=2e-5, atol=2e-5)


@needs_kernels
@pytest.mark.parametrize("name", ["add", "exp", "maximum", "sigmoid", "transpose"])
def test_small_operations_of_kernels_are_computed_at_once(name):
    x = mx.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    inputs = [x] * len(find(name).inputs)
    assert is_computed(prepared(name), *inputs)


@needs_kernels
def test_other_operations_are_lazy():
    add, few = prepared("add"), mx.ones((4,))
    assert is_computed(add, few, few)
    assert not single.apply(add, [few + 1, few])[1]
    large = mx.ones((single.MOST_WORK,))
    assert not is_computed(add, large, large)
    assert not is_computed(add, mx.ones((4,), mx.int32), mx.ones((4,), mx.int32))
    conv, image, filters = prepared("conv2d"), mx.ones((1, 32, 32, 16)), mx.ones((16, 3, 3, 16))
    assert not is_computed(conv, image, filters)
    few_products = prepared("conv2d", stride=300), mx.ones((1, 300, 300, 1)), mx.ones((1, 1, 1, 1))
    assert not is_computed(*few_products)


@needs_kernels
def test_room_is_asked_for_before_anything_is_computed():
    asked = []

    def refuse(size: int, what: str) -> None:
        asked.append((size, what))
        raise MemoryError

    x = mx.ones((7,))
    with pytest.raises(MemoryError):
        single.apply(prepared("add"), [x, x], require_room=refuse)
    assert asked == [(28, "add")]


@needs_kernels
def test_another_stream_needs_no_other_recording():
    add, x = prepared("add"), mx.ones((5,))
    assert is_computed(add, x, x)
    with mx.stream(mx.new_stream(mx.cpu)):
        assert is_computed(add, x, x)
