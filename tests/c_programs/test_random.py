"""Programs drawn by chance give through C the bits that the same operations give in plain mlx."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.programs import graph, node, value

UNARY = ("sin", "cos", "abs", "square", "sigmoid", "negative", "exp")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


@st.composite
def drawn(draw):
    """The nodes of a program on two inputs of one shape, as (operation, inputs, attributes)."""
    steps = []
    for number in range(draw(st.integers(1, 24))):
        pick = st.integers(0, number + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(UNARY)), [draw(pick)], {}))
        else:
            steps.append((draw(st.sampled_from(BINARY)), [draw(pick), draw(pick)], {}))
    return steps


def name_of(index: int) -> str:
    return "xy"[index] if index < 2 else f"v{index - 2}"


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(drawn(), st.lists(st.integers(0, 4), max_size=3), st.booleans(), st.integers(0, 2**32 - 1))
def test_the_bits_of_plain_mlx(programs, arrays, steps, shape, by_handle, seed):
    source = np.random.default_rng(seed)
    x, y = (source.standard_normal(shape).astype(np.float32) for _ in range(2))
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    values = [mx.array(x), mx.array(y)]
    for op, inputs, _ in steps:
        values.append(getattr(mx, op)(*(values[each] for each in inputs)))
    nodes = [
        node(f"v{number}", op, *(name_of(each) for each in inputs), **attributes)
        for number, (op, inputs, attributes) in enumerate(steps)
    ]
    program = programs.create(
        graph([value("x", shape), value("y", shape)], nodes, [each["name"] for each in nodes])
    )
    given_x = arrays.create(x) if by_handle else x
    results = [np.zeros(shape, np.float32) for _ in steps]
    programs.run(program, [given_x, y], results)
    for ours, theirs in zip(results, values[2:], strict=True):
        assert ours.tobytes() == np.array(theirs).tobytes()
    if by_handle:
        arrays.free(given_x)
    programs.free(program)
