"""Lazy arrays that share a graph with a failed computation: an error, or the right elements."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from support import on_dispatch
from support.c_programs import Programs
from support.callbacks import StatusError
from support.programs import graph, node, value

from cowmlx.services.runtime import Runtime

X = np.arange(1, 5, dtype=np.float32).reshape(2, 2)
LARGE = [1 << 12, 1 << 13, 2, 2]  # 512 MiB of float32
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


@pytest.fixture
def handles(arrays) -> Iterator[list[int]]:
    """The arrays of a test, freed afterwards."""
    made: list[int] = []
    yield made
    for handle in made:
        arrays.free(handle)


@pytest.fixture
def short(monkeypatch) -> Iterator[None]:
    """The process may take 128 MiB more, and only mlx finds out."""
    monkeypatch.setattr(Runtime, "require_room", lambda self, size, what: None)
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def broken(lib, tmp_path, handles) -> int:
    """A lazy array that cannot be computed: its file has too few bytes."""
    path = tmp_path / "truncated.npy"
    np.save(path, np.zeros(4096, np.float32))
    path.write_bytes(path.read_bytes()[:300])
    with on_dispatch.runner(lib) as run:
        handles.append(run(lambda service: service.add(mx.load(str(path), stream=service.stream))))
    return handles[-1]


def test_what_was_computed_with_a_failure_is_an_error(arrays, handles, broken):
    """A failure is reported once, and mlx takes the rest of the graph for computed."""
    handles += arrays.apply("add", broken, broken)
    handles += arrays.apply("add", handles[-1], handles[-1])
    with pytest.raises(StatusError) as first:
        arrays.wait(handles[-1])
    for handle in handles:
        with pytest.raises(StatusError) as failed:
            arrays.read(handle)
        assert failed.value.status == first.value.status
    handles += arrays.apply("add", handles[1], handles[1])
    with pytest.raises(StatusError):
        arrays.wait(handles[-1])


def test_the_same_after_the_failed_array_was_freed(lib, arrays, handles, broken):
    (doubled,) = arrays.apply("add", broken, broken)
    handles += arrays.apply("add", doubled, doubled)
    with pytest.raises(StatusError):
        arrays.wait(doubled)
    arrays.free(doubled)
    with pytest.raises(StatusError):
        arrays.read(handles[-1])


def test_others_are_not_affected(arrays, handles, broken):
    handles.append(arrays.create(X))
    handles += arrays.apply("add", handles[-1], handles[-1])
    with pytest.raises(StatusError):
        arrays.wait(broken)
    assert (arrays.read(handles[-1]) == X + X).all()


@needs_linux
def test_what_was_computed_before_a_refusal_is_right(arrays, handles, short):
    """The operation that gets no memory is not started; those before it are."""
    handles.append(arrays.create(X))
    handles += arrays.apply("add", handles[0], handles[0])
    (large,) = arrays.apply("broadcast_to", handles[1], shape=LARGE)
    handles += [large, *arrays.apply("add", large, large)]
    for _ in range(2):
        with pytest.raises(StatusError) as refused:
            arrays.wait(handles[3])
        assert refused.value.name == "ENOMEM"
    assert (arrays.read(handles[1]) == X + X).all()


@needs_linux
def test_a_run_takes_what_was_computed_before_a_refusal(lib, arrays, handles, short):
    programs = Programs(lib)
    made = programs.create(graph([value("x", [2, 2])], [node("y", "multiply", "x", "x")], ["y"]))
    handles.append(arrays.create(X))
    handles += arrays.apply("add", handles[0], handles[0])
    (large,) = arrays.apply("broadcast_to", handles[1], shape=LARGE)
    handles += [large, *arrays.apply("add", large, large)]
    with pytest.raises(StatusError, match="ENOMEM"):
        arrays.wait(handles[3])
    handles += programs.run(made, [handles[1]])
    assert (arrays.read(handles[-1]) == 4 * X * X).all()
    programs.free(made)
