"""Long lazy graphs of applied operations, which are computed in parts."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest


def chain(arrays, first, operations, count):
    """The handle of operations applied one to another; those between are freed."""
    last = first
    for number in range(count):
        (result,) = arrays.apply(operations[number % len(operations)], last)
        if last != first:
            arrays.free(last)
        last = result
    return last


@pytest.mark.parametrize("is_read", [True, False])
def test_deep_graphs(programs, arrays, is_read):
    x = arrays.create(np.float32([1, 2]))
    last = chain(arrays, x, ["negative"], 20_000)
    if is_read:
        assert arrays.read(last).tolist() == [1, 2]
    arrays.free(last)
    arrays.free(x)


def test_wide_graphs(programs, arrays):
    x = arrays.create(np.ones((64, 64), np.float32))
    handles = [arrays.apply("sin", x)[0] for _ in range(1000)]
    (stack,) = arrays.apply("stack", *handles)
    for handle in handles:
        arrays.free(handle)
    np.testing.assert_allclose(arrays.read(stack), np.sin(1), rtol=1e-4)
    for handle in (x, stack):
        arrays.free(handle)


def test_readers_share_a_graph_that_is_freed_meanwhile(programs, arrays):
    x = arrays.create(np.ones((512, 512), np.float32))
    trunk = chain(arrays, x, ["sin", "cos"], 60)
    ends = [chain(arrays, trunk, ["negative"], count) for count in (40, 41, 42, 43)]
    found = {}

    def read(handle):
        found[handle] = arrays.read(handle)

    threads = [Thread(target=read, args=(handle,)) for handle in ends]
    for thread in threads:
        thread.start()
    arrays.free(trunk)
    arrays.free(x)
    for thread in threads:
        thread.join()
    wanted = 1.0
    for _ in range(30):
        wanted = np.cos(np.sin(wanted))
    for number, handle in enumerate(ends):
        np.testing.assert_allclose(found[handle], wanted * (-1) ** number, rtol=1e-4)
        arrays.free(handle)
