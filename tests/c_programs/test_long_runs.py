"""Runs of derived programs that take long: others continue beside them, and a cancel ends them."""

from __future__ import annotations

import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.signatures import ECANCELED


def slow() -> dict:
    """A gradient that takes seconds: one computation for mlx, without a place to pause."""
    nodes = [node("y0", "tan", "x")]
    nodes += [node(f"y{at}", "tan", f"y{at - 1}") for at in range(1, 12)]
    nodes.append(node("s", "sum", "y11"))
    return graph([value("x", ["n"], "float64")], nodes, ["s"])


def test_a_long_derived_run_lets_contexts_generate_and_can_be_cancelled(
    programs, arrays, lib, calf
):
    one = programs.create(slow())
    slope = programs.derive(one, gradient={"of": "s", "with_respect_to": ["x"]})
    many = programs.derive(slope, vectorize={"x": 0})
    square = programs.create(graph([value("x", ["n"])], [node("y", "square", "x")], ["y"]))
    y = np.zeros(3, np.float32)
    prompt = lib.tokenize(calf, "Once upon a time")
    for program, x in ((slope, np.ones(2**22)), (many, np.ones((4, 2**20)))):
        given = arrays.create(x)
        (result,) = programs.run(program, [given], submit=True)
        context = lib.context(calf)
        assert lib.generate(context, prompt, max_tokens=3).text
        lib.free(context)
        with pytest.raises(StatusError) as error:  # the run is still under way
            arrays.wait(result, 0)
        assert error.value.name == "ETIMEDOUT"
        assert programs.cancel(program) == 0
        with pytest.raises(StatusError, match="cancelled") as error:
            arrays.wait(result)
        assert error.value.status == ECANCELED
        # Later calls do not wait for computations that a cancelled run began.
        y[:] = 0
        programs.run(square, [np.float32([1, 2, 3])], [y])
        assert y.tolist() == [1, 4, 9]
        for handle in (given, result):
            arrays.free(handle)
    for program in (one, slope, many, square):
        programs.free(program)


def test_rows_of_a_loop_that_does_not_end_can_be_cancelled(programs, arrays, lib, calf):
    """Rounds make way for others; a context generates meanwhile."""
    n = value("n", [], "int32")
    positive = graph([n], [node("go", "greater_equal", "n", "zero")], ["go"], name="positive")
    positive["constants"] = [{"name": "zero", "dtype": "int32", "value": 0}]
    flip = graph([n], [node("z", "negative", "n"), node("m", "abs", "z")], ["m"], name="flip")
    again = node("m", "while", "n", condition="positive", body="flip", max_iterations=2**31 - 1)
    one = programs.create(graph([n], [again], ["m"], functions=[positive, flip]))
    many = programs.derive(one, vectorize={"n": 0})
    given = arrays.create(np.int32([-1, 3, 0]))
    (result,) = programs.run(many, [given], submit=True)
    context = lib.context(calf)
    assert lib.generate(context, lib.tokenize(calf, "Once upon a time"), max_tokens=3).text
    lib.free(context)
    assert programs.cancel(many) == 0
    with pytest.raises(StatusError, match="cancelled") as error:
        arrays.wait(result)
    assert error.value.status == ECANCELED
    ended = np.zeros(2, np.int32)
    programs.run(many, [np.int32([-1, -2])], [ended])
    assert ended.tolist() == [-1, -2]
    for handle in (given, result):
        arrays.free(handle)
    for program in (many, one):
        programs.free(program)
