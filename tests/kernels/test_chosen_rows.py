"""Rows of arrays that are computed at once, without a stream."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed

MODULE = needed()
SHAPES = [(7,), (7, 1), (7, 3), (7, 2, 0, 3), (7, 2, 5)]


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def drawn(shape, dtype=np.float32):
    return (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype)


def computed(values, dtype=mx.uint32):
    array = mx.array(values, dtype)
    mx.eval(array)
    return array


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_those_of_the_array(shape, dtype):
    array, order = drawn(shape, dtype), [3, 0, 6, 6, 2]
    given = mx.array(array)
    for begin, end in ((0, 7), (2, 5), (6, 7)):
        rows = MODULE.rows(given, begin, end)
        if given.size == 0:
            assert rows is None
            continue
        assert np.array_equal(np.array(rows), array[begin:end])
        assert np.array_equal(np.array(rows + 1), array[begin:end] + np.array(1, dtype))
    if given.size:
        chosen = MODULE.rows(given, 1, 4, computed(order))
        assert np.array_equal(np.array(chosen), array[order[1:4]])


def test_others_are_left_to_mlx():
    given = computed(drawn((4, 3)), mx.float32)
    lazy = given + 1
    assert MODULE.rows(lazy, 0, 2) is None
    columns = given.T
    mx.eval(columns)
    assert MODULE.rows(columns, 0, 2) is None
    assert MODULE.rows(mx.array(1.0), 0, 1) is None
    for begin, end in ((-1, 2), (2, 2), (3, 2), (0, 5)):
        assert MODULE.rows(given, begin, end) is None
        assert MODULE.rows(given, begin, end, computed([0, 1, 2, 3])) is None
    assert MODULE.rows(given, 0, 2, computed([0, 4])) is None
    assert MODULE.rows(given, 0, 2, computed([0, 1], mx.int32)) is None
    assert MODULE.rows(given, 0, 2, computed([[0, 1]])) is None
    assert MODULE.rows(given, 0, 2, mx.array([0, 1]).astype(mx.uint32) + 1) is None


def test_many_bytes_are_not_copied_at_once():
    wide = mx.zeros((2, 1 << 18))
    mx.eval(wide)
    order = computed([1, 0])
    assert MODULE.rows(wide, 0, 1, order).shape == (1, 1 << 18)
    assert MODULE.rows(wide, 0, 2, order) is None
