"""A host's uploads are computed in place, or copied in separate turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support import dlpack, on_dispatch
from support.c_programs import Programs
from support.programs import graph, node, value

from cowmlx.accelerate import kernels
from cowmlx.arrays.table import Submitted
from cowmlx.services import uploads
from cowmlx.services.arrays import Arrays as Service

OnEngine = Callable[[Callable[[Service], Any]], Any]
MANY = 3 * uploads.PART // 4 + 5  # float32: three parts, and a little


@pytest.fixture
def on_engine(lib) -> Iterator[OnEngine]:
    """Runs a function on the dispatch thread, with the service of arrays; returns its result."""
    with on_dispatch.runner(lib) as run:
        yield run


def address(array: mx.array) -> int:
    """Where an evaluated array's elements are."""
    view: Any = memoryview(array)  # type: ignore[arg-type]
    return np.frombuffer(view, np.uint8).ctypes.data


def is_waiting(service: Service, handle: int) -> bool:
    """Whether the engine copies an array in turns; asking for its value begins that."""
    return isinstance(service.value_of(service.held(handle)), Submitted)


@pytest.mark.skipif(not kernels.available(), reason=kernels.reason())
@pytest.mark.parametrize("count", [1, 1000, MANY])
@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "float64", "complex64"])
def test_nothing_is_copied(arrays, on_engine, dtype, count):
    expected = (np.arange(count) % 7).astype(dtype)
    handle = arrays.create(expected)
    before = arrays.view(handle).ctypes.data
    assert on_engine(lambda service: address(service.get(handle).view(mx.uint8))) == before
    assert (arrays.read(handle) == expected).all()
    assert arrays.view(handle).ctypes.data == before
    arrays.free(handle)


@pytest.mark.skipif(not kernels.available(), reason=kernels.reason())
def test_memory_goes_back_once_nobody_needs_it(arrays, lib, on_engine):
    program = Programs(lib).create(graph([value("x", ["n"])], [node("y", "abs", "x")], ["y"]))
    before = on_engine(lambda service: service._table.memory_in_use())
    for _ in range(3):
        handle = arrays.create(-np.ones(MANY, np.float32))
        (result,) = Programs(lib).run(program, [handle], donate=[0])
        assert (arrays.read(result) == 1).all()
        arrays.free(result)
    on_engine(lambda _: mx.clear_cache())
    assert on_engine(lambda service: service._table.memory_in_use()) == before
    Programs(lib).free(program)


@pytest.mark.skipif(not kernels.available(), reason=kernels.reason())
@pytest.mark.parametrize("is_counted", [False, True])
def test_memory_counts_once(arrays, on_engine, monkeypatch, is_counted):
    """Metal counts what it computes in place; here it is made to seem so."""
    adopt = uploads._adopt

    def adopt_so(*given: Any) -> tuple[mx.array, bool]:
        made = adopt(*given)
        assert made is not None and made[1] is False
        return made[0], is_counted

    def bytes_in_use(service: Service) -> list[int]:
        table, limit = service._table, mx.get_memory_limit()
        table.bound_memory(limit, 0)
        used = [table.memory_in_use()]
        service.get(handle)
        used.append(table.memory_in_use())
        table.bound_memory(limit, 0)  # the engine says what it has
        return [*used, table.memory_in_use()]

    handle = arrays.create(np.ones(MANY, np.float32))
    with monkeypatch.context() as patched:
        patched.setattr(uploads, "_adopt", adopt_so)
        first, at_once, later = on_engine(bytes_in_use)
    assert at_once == first
    assert later - first == (-4 * MANY if is_counted else 0)
    arrays.free(handle)


def test_an_exported_tensor_never_changes(arrays, lib):
    """Not even where a run may compute in the array's memory."""
    program = Programs(lib).create(graph([value("x", ["n"])], [node("y", "negative", "x")], ["y"]))
    handle = arrays.create(np.ones(MANY, np.float32))
    managed = arrays.to_dlpack(handle)
    (result,) = Programs(lib).run(program, [handle], donate=[0])
    assert (arrays.read(result) == -1).all()
    assert (np.from_dlpack(dlpack.Capsule(managed)) == 1).all()
    arrays.free(result)
    Programs(lib).free(program)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "float64"])
def test_what_has_to_be_copied_is_copied_in_turns(arrays, on_engine, dtype):
    """An array that is exported: the call that needs it first copies nothing."""
    expected = (np.arange(MANY) % 2).astype(dtype).reshape(-1, 1)
    handle = arrays.create(expected)
    managed = arrays.to_dlpack(handle)
    assert on_engine(lambda service: is_waiting(service, handle)) == (
        expected.nbytes > uploads.PART
    )
    # What asks meanwhile, and needs the engine or not, is served.
    assert (arrays.read(handle) == expected).all()
    arrays.wait(handle)
    (double,) = arrays.apply("logical_or", handle, handle)
    assert (arrays.read(double) == (expected != 0)).all()
    assert not on_engine(lambda service: is_waiting(service, handle))
    dlpack.at(managed).deleter(managed)
    for one in (handle, double):
        arrays.free(one)


def test_one_part_a_turn(arrays, on_engine):
    handle = arrays.create(np.zeros(MANY, np.float32))
    managed = arrays.to_dlpack(handle)

    def turns(service: Service) -> int:
        held = service.held(handle)
        result = Submitted()
        unit = uploads.Upload(held, result, service.stream)
        count = 0
        while not unit.finished:
            count += unit.turn()
        return count if result.get().shape == (MANY,) else 0

    # The parts, putting them together, and waiting for that.
    assert on_engine(turns) == -(-MANY * 4 // uploads.PART) + 2
    dlpack.at(managed).deleter(managed)
    arrays.free(handle)
