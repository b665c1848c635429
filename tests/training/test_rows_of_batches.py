"""The rows of batches of arrays, whichever way they are computed."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.accelerate import kernels
from cowmlx.training.array_data import ArrayData, Inputs

ROWS = 10


def batches(seed, arrays, monkeypatch, with_kernels):
    """Two epochs of batches of four rows."""
    with monkeypatch.context() as patch:
        if not with_kernels:
            patch.setattr(kernels, "available", lambda: False)
        data = ArrayData(Inputs(["x", "y"]), arrays, 4, 0, seed)
        made = [data.batch(step) for step in range(8)]
    assert [batch is None for batch in made] == [False, False, False, True] * 2
    return [
        [np.array(array) for array in batch.micro_batches[0]] for batch in made if batch is not None
    ]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("lying", ["rows", "columns"])
def test_they_are_the_same_with_and_without_kernels(seed, lying, monkeypatch):
    x = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
    given = mx.array(x) if lying == "rows" else mx.array(np.ascontiguousarray(x.T)).T
    arrays = [given, mx.arange(ROWS)]
    mx.eval(arrays)
    found = batches(seed, arrays, monkeypatch, True)
    wanted = batches(seed, arrays, monkeypatch, False)
    for one, other in zip(found, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            assert np.array_equal(a, b)
    if seed is None:
        assert np.array_equal(np.concatenate([one[0] for one in found[:3]]), x)


def test_shuffled_rows_of_more_than_a_mebibyte_are_left_to_the_stream():
    arrays = [mx.zeros((ROWS, 60_000)) for _ in range(3)]
    mx.eval(arrays)
    for seed, is_short in ((None, True), (3, False)):
        data = ArrayData(Inputs(["x", "y", "z"]), arrays, 4, 0, seed)
        assert data.batch(0) is not None
        assert data._is_short == is_short
