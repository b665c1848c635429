"""What needs more memory than the runtime may have is refused, before any is taken."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt

import mlx.core as mx
import numpy as np
import pytest
from support import on_dispatch
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.signatures import ENOMEM

from cowmlx.accelerate import kernels

ONE = np.ones(1, np.float32)
MIB = 1 << 20


def outer() -> dict:
    """Products of all pairs of n numbers, and their sum."""
    return graph(
        [value("x", ["n", 1])],
        [
            node("t", "transpose", "x"),
            node("all", "multiply", "x", "t"),
            node("s", "sum", "all"),
        ],
        ["s", "all"],
    )


@pytest.fixture
def too_many(lib) -> int:
    """A number of which the square, in float32, is more bytes than the limit."""
    return isqrt(lib.info()["memory"]["limit"] // 4) + 1


@contextmanager
def room(lib, size: int) -> Iterator[None]:
    """Leave so many bytes within the limit, as if the host had set it."""

    def change(limit: int | None):
        def work(service) -> int:
            runtime = service._runtime
            gc.collect()
            runtime.reclaim()  # or the call under test would, and there would be room
            while runtime.put_to_sleep(None):
                pass
            runtime.note_memory()
            before = mx.set_memory_limit(
                service._table.memory_in_use() + size if limit is None else limit
            )
            runtime.memory_is_limited = limit is None
            runtime.note_memory()
            return before

        return work

    with on_dispatch.runner(lib) as run:
        before = run(change(None))
        try:
            yield
        finally:
            run(change(before))


def refused(call, *arguments, **named) -> StatusError:
    """The error of a call that needs too much: with the size and the limit."""
    with pytest.raises(StatusError) as error:
        call(*arguments, **named)
    assert (error.value.status, error.value.reason) == (ENOMEM, "no_memory")
    assert "memory_limit" in str(error.value)
    assert error.value.details["needed"] > 0 < error.value.details["limit"]
    return error.value


def test_a_run_that_needs_too_much_changes_nothing(programs, arrays, too_many):
    program = programs.create(outer())
    x = arrays.create(np.ones((too_many, 1), np.float32))
    for params in ({}, {"donate": [0]}, {"submit": True}):
        error = refused(programs.run, program, [x], 2, **params)
        assert error.details["needed"] >= 4 * too_many**2
    assert arrays.type(x) == ("float32", (too_many, 1))
    small = np.zeros((), np.float32), np.zeros((3, 3), np.float32)
    programs.run(program, [np.ones((3, 1), np.float32)], small)
    assert small[0] == 9
    arrays.free(x)
    programs.free(program)


def test_what_is_derived_needs_more(programs, too_many):
    """A gradient keeps what is computed, and rows are computed at once."""
    program = programs.create(outer())
    gradient = programs.derive(program, gradient={"of": "s", "with_respect_to": ["x"]})
    rows = programs.derive(program, vectorize={"x": 0}, dimension="rows")
    n = isqrt(too_many**2 // 2) + 1
    written = programs.info(program, n=n)["run"]["intermediate_bytes"]
    assert programs.info(gradient, n=n)["run"]["intermediate_bytes"] == 2 * written
    assert programs.info(rows, n=n, rows=7)["run"]["intermediate_bytes"] == 7 * written
    refused(programs.run, gradient, [np.ones((n, 1), np.float32)])
    refused(programs.run, rows, [np.ones((7, n, 1), np.float32)], 2)
    for each in (program, gradient, rows):
        programs.free(each)


def test_what_is_repeated_is_refused_by_name(lib, programs, arrays):
    x = arrays.create(np.ones(1000, np.float32))
    program = programs.create(graph([value("x", [1000])], [node("y", "negative", "x")], ["y"]))
    for _ in range(3):
        for handle in (*arrays.apply("add", x, x), *programs.run(program, [x], 1)):
            arrays.free(handle)
    with room(lib, 16):
        assert "add needs" in str(refused(arrays.apply, "add", x, x))
        assert "the run needs" in str(refused(programs.run, program, [x], 1))
    for handle in (*arrays.apply("add", x, x), *programs.run(program, [x], 1), x):
        arrays.free(handle)
    programs.free(program)


def test_views_need_no_memory_until_they_are_read(programs, arrays, too_many):
    x = arrays.create(ONE)
    (wide,) = arrays.apply("broadcast_to", x, shape=[too_many, too_many])
    refused(arrays.wait, wide)
    refused(arrays.apply, "add", wide, x)
    (total,) = arrays.apply("min", wide)
    assert arrays.type(total) == ("float32", ())
    for each in (x, wide, total):
        arrays.free(each)


TURNED = {
    "transpose": ([node("t", "transpose", "x")], "t"),
    "reshape": (
        [
            node("t", "transpose", "x"),
            node("r", "reshape", "t", shape=[-1]),
            node("s", "sum", "r"),
        ],
        "s",
    ),
    "broadcast_to": ([node("b", "broadcast_to", "x", shape=["n", "n"])], "b"),
}


@pytest.mark.parametrize("name", TURNED)
def test_copies_of_turned_elements_are_counted(programs, lib, name):
    """Results are row-major for hosts, and a reshape reads its elements in their order."""
    nodes, output = TURNED[name]
    shape = ["n"] if name == "broadcast_to" else ["n", "n"]
    program = programs.create(graph([value("x", shape)], nodes, [output]))
    x = np.ones((2000,) * len(shape), np.float32)
    with room(lib, x.nbytes + 8 * MIB):
        assert refused(programs.run, program, [x]).details["needed"] >= 16_000_000
    programs.free(program)


def test_uploads_are_bounded(programs, arrays, lib, too_many):
    """Also of a view of few bytes, and of a run's inputs."""
    wide = np.broadcast_to(ONE, (too_many, too_many))
    before = lib.info()["handles"]["array"]
    refused(arrays.create, wide)
    program = programs.create(graph([value("x", ["n", "n"])], [node("s", "sum", "x")], ["s"]))
    refused(programs.run, program, [wide])
    assert lib.info()["handles"]["array"] == before
    programs.free(program)


def test_all_of_it_counts(programs, arrays, lib):
    """What hosts have uploaded, what runs have made, and both together."""
    program = programs.create(graph([value("x", ["n"])], [node("y", "exp", "x")], ["y"]))
    ten = np.zeros(10 * MIB // 4, np.float32)
    with room(lib, 25 * MIB):
        first, second = arrays.create(ten), arrays.create(ten)
        refused(arrays.create, ten)
        refused(programs.run, program, [first])
        arrays.free(second)
        (result,) = programs.run(program, [first])
        refused(arrays.create, ten)
        arrays.free(result)
        second = arrays.create(ten)
        for each in (first, second):
            arrays.free(each)
    (result,) = programs.run(program, [ten])
    assert (arrays.read(result) == 1).all()
    arrays.free(result)
    programs.free(program)


@pytest.mark.skipif(not kernels.available(), reason="a copy of the input counts, too")
def test_a_run_that_waited_is_judged_anew(programs, arrays, lib):
    """There was room when it was submitted; what it waits for has taken it."""
    program = programs.create(graph([value("x", ["n"])], [node("y", "exp", "x")], ["y"]))
    ten = np.zeros(10 * MIB // 4, np.float32)
    with room(lib, 35 * MIB):
        (one,) = programs.run(program, [ten], submit=True)
        (two,) = programs.run(program, [one], submit=True)
        (three,) = programs.run(program, [two], submit=True)
        refused(arrays.wait, three)
        assert (arrays.read(two) == np.float32(np.e)).all()
        for each in (one, two, three):
            arrays.free(each)
    programs.free(program)


# Inputs' shapes, attributes, and the bytes at least of what is neither input nor result.
ON_THE_WAY = {
    "random_categorical": ([(1000,), "key"], {"num_samples": 20_000}, 20_000_000 * 8),
    "allclose": ([(5000, 1), (5000,)], {}, 25_000_000 * 4),
    "vecdot": ([(500, 1, 200), (500, 200)], {}, 50_000_000 * 4),
    "einsum": ([(6000, 2), (6000, 2), (2,)], {"subscripts": "ai,bi,i->"}, 0),
    "scaled_dot_product_attention": ([(1, 1, 6000, 1)] * 3, {}, 36_000_000 * 4),
    "convolve": ([(8000,), (8000,)], {}, 64_000_000 * 4),
    "conv1d": ([(1, 8000, 1), (1, 4000, 1)], {}, 16_000_000 * 4),
    "max_pool1d": ([(1, 8000, 1)], {"kernel_size": 4000, "stride": 1}, 16_000_000 * 4),
    "avg_pool2d": ([(1, 8000, 2, 1)], {"kernel_size": [4000, 1], "stride": 1}, 32_000_000 * 4),
    "pinv": ([(2, 5000)], {}, 25_000_000 * 4),
}


def test_what_an_operation_makes_on_its_way_counts(programs, arrays, lib):
    """At once and in a program, before any of it is computed."""
    for name, (shapes, attributes, least) in ON_THE_WAY.items():
        given = [
            np.zeros(2, np.uint32) if shape == "key" else np.ones(shape, np.float32)
            for shape in shapes
        ]
        held = [arrays.create(each) for each in given]
        names = [f"x{at}" for at in range(len(given))]
        program = programs.create(
            graph(
                [
                    value(each, list(array.shape), str(array.dtype))
                    for each, array in zip(names, given, strict=True)
                ],
                [node("y", name, *names, **attributes)],
                ["y"],
            )
        )
        with room(lib, 40 * MIB):
            if least:
                errors = [
                    refused(arrays.apply, name, *held, **attributes),
                    refused(programs.run, program, held),
                    refused(programs.run, program, held, submit=True),
                ]
                assert all(error.details["needed"] >= least for error in errors), name
            else:
                made = [*arrays.apply(name, *held, **attributes), *programs.run(program, held)]
                assert arrays.read(made[0]) == arrays.read(made[1]), name
                for each in made:
                    arrays.free(each)
        for each in held:
            arrays.free(each)
        programs.free(program)
