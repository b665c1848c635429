"""Lazy arrays that are started in parts have the values that mlx gives them as a whole."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.kernel_module import needed

kernels = needed()


def computed(arrays: list[mx.array]) -> int:
    """Compute arrays; return how many calls that takes."""
    evaluation = kernels.Evaluation(arrays)
    calls = 1
    while not evaluation.advance(True):
        calls += 1
    return calls


def shared(x: mx.array) -> list[mx.array]:
    """Results that share operations, some with several results."""
    found = []
    for number in range(40):
        x = mx.sin(x) + number
        low, high = mx.split(x, 2)
        quotient, rest = mx.divmod(high, low)
        found += [quotient, mx.concatenate([rest, low])]
    return found


@pytest.mark.parametrize("side", [8, 128])
def test_results_are_those_of_the_whole(side):
    x = mx.arange(side * side).reshape(side, side) / side
    whole, parts = shared(x), shared(x)
    mx.eval(whole)
    computed(parts)
    assert all(
        mx.array_equal(one, other, equal_nan=True) for one, other in zip(whole, parts, strict=True)
    )


def test_what_others_compute_meanwhile_is_left_out():
    found = shared(mx.ones((256, 256)))
    evaluation = kernels.Evaluation(found)
    evaluation.advance(False)
    mx.eval(found)
    assert evaluation.advance(False)


def test_nothing_and_values_are_computed_at_once():
    assert computed([]) == computed([mx.array(1.0)]) == 1


def test_intermediate_results_are_freed_on_the_way():
    size = 1 << 22
    x = mx.ones((size,), mx.uint8)
    mx.eval(x)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    last = x
    for number in range(200):
        last = last + mx.array(number % 3, mx.uint8)
    computed([last])
    assert mx.get_peak_memory() - before < 60 * size


def test_a_failure_is_raised():
    bad = mx.linalg.inv(mx.zeros((3, 3)), stream=mx.cpu)
    for _ in range(30):
        bad = bad + mx.ones((3, 3))
    with pytest.raises(RuntimeError, match="LU"):
        computed([bad])
