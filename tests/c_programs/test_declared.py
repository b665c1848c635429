"""Results of another dtype or shape than declared are errors, and not a byte of them is copied."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import graph, node, parse, value

from cowmlx.arrays.dtypes import require_declared, value_of
from cowmlx.errors import CowMlxError
from cowmlx.programs.operations import find
from cowmlx.training.program_objective import ProgramObjective

SHAPE = (2, 3)
WRONG = {
    "longer": lambda x: mx.concatenate([x, x]),
    "shorter": lambda x: x[:1],
    "of another rank": lambda x: x.reshape(-1),
    "of another dtype": lambda x: x.astype(mx.float16),
}


@pytest.fixture(params=WRONG)
def wrong(request):
    """What makes a result other than it was declared."""
    return WRONG[request.param]


@pytest.fixture
def sine():
    """Replaces what ``sin`` computes."""

    def replace(function):
        row = find("sin")
        before = row.compute
        object.__setattr__(row, "compute", lambda arrays, _: [function(arrays[0])])
        return lambda: object.__setattr__(row, "compute", before)

    undo = []
    yield lambda function: undo.append(replace(function))
    for each in reversed(undo):
        each()


def refused(call, *arguments, **named):
    with pytest.raises(StatusError, match="sin") as error:
        call(*arguments, **named)
    assert error.value.name == "EINTERNAL"


def test_results(programs, arrays, sine, wrong):
    """Of runs, submitted ones and single operations."""
    sine(wrong)
    x = np.ones(SHAPE, np.float32)
    program = programs.create(graph([value("x", [*SHAPE])], [node("y", "sin", "x")], ["y"]))
    refused(programs.run, program, [x], [np.zeros(SHAPE, np.float32)])
    refused(programs.run, program, [x])
    handle = arrays.create(x)
    (result,) = programs.run(program, [handle], submit=True)
    refused(arrays.wait, result)
    refused(arrays.read, result)
    refused(arrays.apply, "sin", handle)
    for each in (handle, result):
        arrays.free(each)
    programs.free(program)


def test_gradients(programs, arrays, sine, wrong):
    """Whose shapes nobody knows before mlx has differentiated an operation."""

    @mx.custom_function
    def sin(x):
        return mx.sin(x)

    @sin.vjp
    def _(x, cotangent, _output):
        return wrong(mx.cos(x) * cotangent)

    sine(sin)
    trained = parse(
        graph(
            [value("d", [*SHAPE])],
            [node("y", "sin", "w"), node("z", "multiply", "y", "d"), node("loss", "sum", "z")],
            ["loss"],
            parameters=[value("w", [*SHAPE])],
        )
    )
    objective = ProgramObjective(trained, {"w": mx.zeros(SHAPE)}, 0)
    with pytest.raises(CowMlxError, match="sin"):
        objective.gradients([mx.ones(SHAPE)], None)
    program = programs.create(
        graph([value("x", [*SHAPE])], [node("y", "sin", "x"), node("l", "sum", "y")], ["l"])
    )
    gradient = programs.derive(program, gradient={"of": "l", "with_respect_to": ["x"]})
    x = np.ones(SHAPE, np.float32)
    refused(programs.run, gradient, [x], [np.zeros(SHAPE, np.float32)])
    refused(programs.run, gradient, [x])
    (result,) = programs.run(gradient, [x], submit=True)
    refused(arrays.wait, result)
    arrays.free(result)
    programs.free(gradient)
    programs.free(program)


def test_values_of_arrays(wrong):
    value = mx.zeros(SHAPE)
    require_declared(value, value_of(mx.float32), SHAPE)
    with pytest.raises(CowMlxError, match="declared as float32"):
        require_declared(wrong(value), value_of(mx.float32), SHAPE)
