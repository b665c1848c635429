"""Runs that fail or are cancelled keep no memory, though Python never looks for cycles."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support.arrays import Arrays
from support.c_programs import Programs
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.signatures import ECANCELED, EINVAL

from cowmlx.arrays.table import Submitted
from cowmlx.errors import CowMlxError
from cowmlx.scheduling.stepped import SteppedCall

SIZE = 1 << 18
TIMES = 12


@pytest.fixture
def memory(arrays: Arrays) -> Iterator[None]:
    """A test leaves no errors, no units of work and no values to come, and no elements."""
    gc.collect()
    gc.disable()
    settle(arrays)
    before, taken = kept(), mx.get_active_memory()
    try:
        yield
        settle(arrays)
        assert kept() - before == Counter()
        assert mx.get_active_memory() - taken < 4 * SIZE
    finally:
        gc.enable()


def kept() -> Counter[str]:
    """How many there are of what a failed run could keep."""
    kinds = (Submitted, SteppedCall, CowMlxError)
    return Counter(
        type(get_object).__name__
        for get_object in gc.get_objects()
        if isinstance(get_object, kinds)
    )


def settle(arrays: Arrays) -> None:
    """Let the engine let go of what was freed: it does so before a call."""
    for _ in range(2):
        arrays.free(arrays.create(np.zeros(1, np.float32)))
        arrays.lib.info()


def endless(programs: Programs) -> int:
    """A loop over an array that does not end before it is cancelled."""
    state = [value("x", [SIZE])]
    always = [node("s", "max", "x"), node("p", "greater_equal", "s", "s")]
    return programs.create(
        graph(
            state,
            [node("y", "while", "x", condition="always", body="step", max_iterations=2**31 - 1)],
            ["y"],
            functions=[
                graph(state, always, ["p"], name="always"),
                graph(state, [node("r", "multiply", "x", "x")], ["r"], name="step"),
            ],
        )
    )


def fails(status: int, call: Any, *arguments: object, **named: object) -> None:
    with pytest.raises(StatusError) as error:
        call(*arguments, **named)
    assert error.value.status == status
    error.value.__traceback__ = None


def test_runs_that_are_cancelled_after_they_were_submitted(programs, arrays, memory):
    """Chains of them, waited for and read, applied to and run on."""
    after = programs.create(graph([value("x", [SIZE])], [node("y", "sin", "x")], ["y"]))
    for _ in range(TIMES):
        program = endless(programs)
        x = arrays.create(np.ones(SIZE, np.float32))
        (first,) = programs.run(program, [x], submit=True)
        (second,) = programs.run(after, [first], submit=True)
        assert programs.cancel(program) == 0
        for handle in (first, second):
            fails(ECANCELED, arrays.wait, handle)
            fails(ECANCELED, arrays.read, handle)
            fails(ECANCELED, arrays.apply, "sin", handle)
            fails(ECANCELED, programs.run, after, [handle])
        for handle in (x, first, second):
            arrays.free(handle)
        programs.free(program)
    programs.free(after)


@pytest.mark.parametrize("submit", [False, True])
def test_runs_that_fail(programs, arrays, memory, submit):
    take = programs.create(
        graph(
            [value("x", [SIZE]), value("i", [1], "int32")],
            [node("e", "exp", "x"), node("y", "take", "e", "i")],
            ["y"],
        )
    )
    far = arrays.create(np.array([SIZE], np.int32))
    for _ in range(TIMES):
        x = arrays.create(np.ones(SIZE, np.float32))
        if submit:
            (result,) = programs.run(take, [x, far], submit=True)
            for _ in range(3):
                fails(EINVAL, arrays.wait, result)
            arrays.free(result)
        else:
            fails(EINVAL, programs.run, take, [x, far])
        (lazy,) = arrays.apply("exp", x)
        fails(EINVAL, arrays.apply, "take", lazy, far)
        arrays.free(lazy)
        arrays.free(x)
    arrays.free(far)
    programs.free(take)
