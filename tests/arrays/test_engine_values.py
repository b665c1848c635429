"""Arrays of the engine's own values: lazy ones, and those that a submitted run will bring.

They are made on the dispatch thread (``support.on_dispatch``) and looked at through C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support import dlpack, on_dispatch
from support.library import StatusError
from support.signatures import EHANDLE, EINVAL, ESTATE, ETIMEDOUT

from cowmlx.arrays.dtypes import value_of
from cowmlx.arrays.table import Submitted
from cowmlx.errors import InvalidArgument
from cowmlx.services.arrays import Arrays as Service

OnEngine = Callable[[Callable[[Service], Any]], Any]


@pytest.fixture
def on_engine(lib) -> Iterator[OnEngine]:
    """Runs a function on the dispatch thread, with the service of arrays; returns its result."""
    with on_dispatch.runner(lib) as run:
        yield run


def test_a_lazy_value_has_a_type_at_once_and_elements_when_they_are_asked_for(arrays, on_engine):
    handle = on_engine(lambda service: service.add(mx.arange(6).reshape(2, 3) * 2))
    assert arrays.type(handle) == ("int32", (2, 3))
    assert not on_engine(lambda service: service.held(handle).is_computed)
    assert arrays.read(handle).tolist() == [[0, 2, 4], [6, 8, 10]]
    assert on_engine(lambda service: service.held(handle).is_computed)
    arrays.free(handle)


@pytest.mark.parametrize("dtype", ["bool_", "bfloat16", "float64", "complex64", "uint64"])
def test_every_layout_of_the_engine_s_is_told_row_major(arrays, on_engine, dtype):
    def make(service: Service) -> int:
        with mx.stream(service.stream):
            return service.add(mx.arange(12).reshape(3, 4).astype(getattr(mx, dtype)).T[::-1])

    handle = on_engine(make)
    found = arrays.view(handle)
    assert found.shape == (4, 3)
    assert found.flags.c_contiguous
    if dtype != "bfloat16":
        assert (found == np.arange(12).reshape(3, 4).astype(found.dtype).T[::-1]).all()
    arrays.free(handle)


@pytest.mark.parametrize("shape", [(), (0, 3), (5,)])
def test_scalars_and_nothing(arrays, on_engine, shape):
    handle = on_engine(lambda service: service.add(mx.ones(shape)))
    assert arrays.view(handle).tolist() == np.ones(shape).tolist()
    address = arrays.to_dlpack(handle)
    assert dlpack.at(address).flags == dlpack.READ_ONLY | dlpack.COPIED
    arrays.free(handle)
    assert np.from_dlpack(dlpack.Capsule(address)).tolist() == np.ones(shape).tolist()


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "float16", "float32", "float64", "complex64", "int64"]
)
@pytest.mark.parametrize("shape", [(), (3, 4), (0,)])
def test_the_engine_gets_what_a_host_has_made(arrays, on_engine, dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    handle = arrays.create(array)
    double = on_engine(lambda service: service.add(service.get(handle) + service.get(handle)))
    assert arrays.type(double)[0] == dtype
    assert arrays.read(double).tolist() == (array + array).tolist()
    assert arrays.read(handle).tobytes() == array.tobytes()
    for one in (handle, double):
        arrays.free(one)


def test_a_view_stays_when_the_engine_takes_the_elements(arrays, on_engine):
    handle = arrays.create(np.arange(100_000))
    before = arrays.view(handle)
    assert on_engine(lambda service: int(service.get(handle).sum())) == before.sum()
    after = arrays.view(handle)
    assert after.ctypes.data == before.ctypes.data
    assert (after == np.arange(100_000)).all()
    arrays.free(handle)


def test_readers_are_not_disturbed_when_the_engine_takes_the_elements(arrays, on_engine):
    expected = np.arange(50_000)
    handles = [arrays.create(expected) for _ in range(40)]
    failures = []

    def read() -> None:
        failures.extend(one for one in handles if (arrays.read(one) != expected).any())

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for handle in handles:
        on_engine(lambda service, handle=handle: service.get(handle).size)
    for thread in threads:
        thread.join()
    assert failures == []
    for handle in handles:
        arrays.free(handle)


def test_what_is_freed_is_let_go(arrays, on_engine):
    size = 32 << 20
    before = on_engine(lambda _: mx.get_active_memory())
    for _ in range(20):
        handle = on_engine(lambda service: service.add(mx.zeros((size,), mx.uint8)))
        arrays.wait(handle)
        arrays.free(handle)
    assert on_engine(lambda _: mx.get_active_memory()) - before < 2 * size


def submit(on_engine: OnEngine, kept: list[Submitted]) -> int:
    def make(service: Service) -> int:
        kept.append(Submitted())
        service._runtime.scheduler.add(on_dispatch.Run(kept[-1]))
        return service._table.add(kept[-1], value_of(mx.int32), (3,))

    return on_engine(make)


def test_a_submitted_array_is_waited_for(arrays, on_engine):
    kept: list[Submitted] = []
    handle = submit(on_engine, kept)
    assert arrays.type(handle) == ("int32", (3,))
    for timeout in (0, 20):
        with pytest.raises(StatusError) as error:
            arrays.wait(handle, timeout)
        assert (error.value.status, error.value.reason) == (ETIMEDOUT, "timed_out")
        assert error.value.details == {"argument": "timeout_ms", "value": timeout}
    with pytest.raises(StatusError) as error:
        on_engine(lambda service: service.get(handle))
    assert error.value.status == ESTATE
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(arrays.read(handle).tolist()))
    thread.start()
    on_engine(lambda _: kept[0].succeed(mx.arange(3)))
    thread.join()
    assert found == [[0, 1, 2]]
    arrays.wait(handle, 0)
    arrays.free(handle)


def test_a_run_that_fails_tells_all_who_need_it(arrays, on_engine, tmp_path):
    kept: list[Submitted] = []
    handle = submit(on_engine, kept)
    on_engine(lambda _: kept[0].fail(InvalidArgument("the run of x has failed", argument="x")))
    for call in (
        lambda: arrays.wait(handle),
        lambda: arrays.read(handle),
        lambda: arrays.view(handle),
        lambda: arrays.to_dlpack(handle),
        lambda: arrays.save(tmp_path / "file", [("a", handle)]),
        lambda: on_engine(lambda service: service.get(handle)),
    ):
        with pytest.raises(StatusError) as error:
            call()
        assert error.value.status == EINVAL
        assert "the run of x has failed" in str(error.value)
    assert list(tmp_path.iterdir()) == []
    arrays.free(handle)


def test_a_wait_goes_on_when_the_handle_is_freed(arrays, on_engine):
    kept: list[Submitted] = []
    handle = submit(on_engine, kept)
    ended: list[int] = []
    thread = threading.Thread(
        target=lambda: ended.append(arrays.c.cow_mlx_array_wait(handle, 2**32 - 1))
    )
    thread.start()
    while on_engine(lambda service: len(service._runtime.scheduler.units)) < 2:
        pass
    arrays.free(handle)
    with pytest.raises(StatusError) as error:
        arrays.wait(handle)
    assert error.value.status == EHANDLE
    on_engine(lambda _: kept[0].succeed(mx.arange(3)))
    thread.join()
    assert ended == [0]
