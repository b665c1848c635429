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


@pytest.mark.parametrize(("side", "many", "most"), [(8, 600, 130), (1024, 100, 20)])
def test_a_gpu_s_long_graph_is_cut_too(side, many, most):
    """A GPU has a task for 40 operations, or 40 MB, and mlx waits from eleven tasks on."""
    stream, busy = mx.new_stream(mx.cpu), mx.random.normal((1024, 768))
    mx.eval(busy)
    with mx.stream(stream):
        x = (busy @ busy.T)[:side, :side]
        for _ in range(many):
            x = -x
    evaluation = kernels.Evaluation([x], as_gpu=True)
    first = evaluation.advance(False), evaluation.started
    assert first[0] is False and 1 < first[1] <= 3 * most
    while not evaluation.advance(True):
        pass
    assert evaluation.started > many and bool(mx.all(mx.isfinite(x)))


def test_a_failure_behind_others_is_raised_where_arrays_are_asked_for(tmp_path):
    """Where mlx has started them itself."""
    path = tmp_path / "cut.npy"
    mx.save(str(path), mx.zeros(4096))
    path.write_bytes(path.read_bytes()[:300])
    stream, busy = mx.new_stream(mx.cpu), mx.random.normal((400, 400))
    mx.eval(busy)
    with mx.stream(stream):
        mx.async_eval(busy @ busy)
        bad = mx.load(str(path), stream=stream) + 1
        mx.async_eval(bad)
    with pytest.raises(RuntimeError, match="read"):
        while not kernels.available([bad]):
            pass


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
