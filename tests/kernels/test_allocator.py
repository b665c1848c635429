"""mlx's memory on a CPU: from cache lines on, an exception where there is none, nothing leaks."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from numbers_of_kernels import DIM, identity, random
from support.kernel_module import needed
from support.paths import ROOT

from cowmlx.accelerate import kernels

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
LARGE = 1 << 28  # elements of 4 bytes
CACHE = 64 << 20  # bytes, more than malloc takes from its heap


class Mallinfo2(ctypes.Structure):
    """What glibc's mallinfo2() says of all heaps."""

    _fields_ = [(f"before_{number}", ctypes.c_size_t) for number in range(8)] + [
        ("fordblks", ctypes.c_size_t),  # bytes that are free
        ("keepcost", ctypes.c_size_t),
    ]


def free_in_heaps() -> int:
    """Bytes that malloc has, and gives without asking the system for more."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0  # another C library
    mallinfo2.restype = Mallinfo2
    return mallinfo2().fordblks


@contextmanager
def short(more: int) -> Iterator[None]:
    """The process may take so many bytes more."""
    assert kernels.available()
    mx.clear_cache()
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_an_operation_without_memory_raises():
    active = mx.get_active_memory()
    with short(128 << 20):
        for _ in range(3):
            with pytest.raises(RuntimeError, match=r"Unable to allocate 1073741824 bytes"):
                mx.eval(mx.zeros([LARGE]))
    assert mx.get_active_memory() == active
    assert (mx.ones(3) * 2).tolist() == [2, 2, 2]


@pytest.mark.parametrize("size", [16_384, 16_385, 16_447, 16_448, 65_535, 1 << 20, 40 << 20])
def test_data_begin_at_a_cache_line(size):
    needed()
    mx.clear_cache()
    before = mx.get_active_memory()
    made = [mx.full(size, number, mx.uint8) for number in range(5)]
    mx.eval(made)
    assert all(np.array(array, copy=False).ctypes.data % 64 == 0 for array in made)
    assert 5 * size <= mx.get_active_memory() - before <= 5 * (size + 128)
    changed = [array + 1 for array in made]
    del made[::2]
    mx.eval(changed)  # some in place
    assert [mx.all(array == n + 1).item() for n, array in enumerate(changed)] == [True] * 5
    del made, changed
    assert mx.get_active_memory() == before


def test_memory_from_before_is_given_back():
    """What mlx made before kernels were loaded."""
    program = """
import mlx.core as mx
mx.set_default_device(mx.cpu)
none = mx.get_active_memory()
made = [mx.full(size, 1.0) for size in (0, 1, 63, 1000, 4096, 1 << 20)]
mx.eval(made)
from cowmlx.accelerate import kernels
assert kernels.available()
more = [array + 1 for array in made]
mx.eval(more)
assert all(mx.all(array == 2).item() for array in more)
del made, more
mx.clear_cache()
assert mx.get_active_memory() == none, mx.get_active_memory()
"""
    needed()
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_step_without_memory_can_be_made_again(first):
    """The cache that it would write into has its memory, though there is none for the other."""
    columns = (CACHE + free_in_heaps()) // (4 * DIM)
    keys, values = (mx.full((1, 1, columns, DIM), number) for number in (5.0, 7.0))
    mx.eval(keys, values)
    x = random((1, 3, DIM), "float32")
    made = needed().step_layers(identity(), x, [0], [([0], [3], [0], False)], [], [keys, values])
    del keys
    for _ in range(2):
        with short(16 << 20), pytest.raises(RuntimeError, match="Unable to allocate"):
            mx.eval(made[first])
    mx.eval(made[first])
    assert made[1][0, 0, :3].tolist() == made[2][0, 0, :3].tolist() == x[0].tolist()
    assert [mx.all(made[1][0, 0, 3:] == 5).item(), mx.all(made[2][0, 0, 3:] == 7).item()] == [1, 1]
    assert mx.all(values == 7).item()


def test_a_matrix_is_kept_in_blocks_though_an_evaluation_had_no_memory():
    """There is memory for the blocks, but not for a copy of the matrix, whose rows are reversed."""
    rows = (CACHE + free_in_heaps()) // (4 * DIM)
    bytes_ = 4 * rows * DIM
    x, matrix = mx.ones((1, rows)), random((rows, DIM), "float32")[::-1]
    mx.eval(x, matrix)
    with mx.stream(mx.cpu):
        recording = needed().Recording(lambda x, matrix: [x @ matrix], [x, matrix], True)
        (wanted,) = recording.replay([x, matrix])
        mx.eval(wanted)
        with short(bytes_ + bytes_ // 2), pytest.raises(RuntimeError, match="Unable to allocate"):
            mx.eval(recording.replay([x, matrix]))
        mx.eval(recording.replay([x, matrix]))
        mx.reset_peak_memory()
        (found,) = recording.replay([x, matrix])
        mx.eval(found)
    assert mx.array_equal(found, wanted)
    assert mx.get_peak_memory() - mx.get_active_memory() < bytes_ // 2
