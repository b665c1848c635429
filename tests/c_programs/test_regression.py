"""Linear regression by gradient descent as one program with a loop: one round trip, mlx's bits."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from support.programs import graph, node, value

ROUNDS = 200
RATE = 0.05
STATE = [value("w", [3]), value("round", [], "int32"), value("x", ["n", 3]), value("y", ["n"])]
BEFORE = graph(
    STATE,
    [node("go", "less", "round", "rounds")],
    ["go"],
    name="before_the_end",
    constants=[{"name": "rounds", "dtype": "int32", "value": ROUNDS}],
)
DESCEND = graph(
    STATE,
    [
        node("guess", "matmul", "x", "w"),
        node("error", "subtract", "guess", "y"),
        node("xt", "transpose", "x"),
        node("sum", "matmul", "xt", "error"),
        node("step", "multiply", "sum", "rate"),
        node("better", "subtract", "w", "step"),
        node("next", "add", "round", "one"),
    ],
    ["better", "next", "x", "y"],
    name="descend",
    constants=[
        {"name": "rate", "dtype": "float32", "value": RATE / 32},
        {"name": "one", "dtype": "int32", "value": 1},
    ],
)
REGRESSION = graph(
    [value("x", ["n", 3]), value("y", ["n"])],
    [
        node(
            ["found", "rounds", "x_too", "y_too"],
            "while",
            "start",
            "zero",
            "x",
            "y",
            condition="before_the_end",
            body="descend",
            max_iterations=1000,
        )
    ],
    ["found", "rounds"],
    constants=[
        {"name": "start", "dtype": "float32", "value": [0, 0, 0]},
        {"name": "zero", "dtype": "int32", "value": 0},
    ],
    functions=[BEFORE, DESCEND],
)


def plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    points, values, w = mx.array(x), mx.array(y), mx.zeros(3)
    for _ in range(ROUNDS):
        error = points @ w - values
        w = w - (points.T @ error) * mx.array(RATE / 32)
        mx.eval(w)
    return np.array(w)


def test_the_bits_of_plain_mlx(programs):
    source = np.random.default_rng(3)
    x = source.standard_normal((32, 3)).astype(np.float32)
    y = (x @ [1, -2, 3]).astype(np.float32)
    program = programs.create(REGRESSION)
    found, rounds = np.zeros(3, np.float32), np.zeros((), np.int32)
    for _ in range(2):  # the second run finds what the first has traced
        programs.run(program, [x, y], [found, rounds])
        assert rounds == ROUNDS
        assert found.tobytes() == plain(x, y).tobytes()
    assert np.allclose(found, [1, -2, 3], atol=1e-2)
    assert programs.info(program)["longest_turn"] > 0
    programs.free(program)
