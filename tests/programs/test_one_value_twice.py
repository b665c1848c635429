"""Programs and functions that output one value more than once."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.programs import bits, derive, graph, node, parse, value

X = value("x", [3])
ARRAY = mx.array([1.0, 2.0, 3.0])


def function(name, inputs, nodes, outputs, **more):
    return graph(inputs, nodes, outputs, name=name, **more)


DOUBLE = function("double", [X], [node("y", "add", "x", "x")], ["y", "y", "x", "x"])
SQUARE = function(
    "square", [X], [node("y", "multiply", "x", "x"), node("z", "sin", "x")], ["y", "z", "y", "z"]
)
BELOW = function(
    "below",
    [X, value("z", [3])],
    [node("s", "sum", "x"), node("go", "less", "s", "limit")],
    ["go"],
    constants=[{"name": "limit", "dtype": "float32", "value": 50}],
)
BOTH = function("both", [X, value("z", [3])], [node("y", "add", "x", "z")], ["y", "y"])
RECUR = function(
    "recur", [X, value("e", [3])], [node("s", "add", "x", "e"), node("h", "tanh", "s")], ["h"] * 3
)


def run(program, *arrays):
    return program.run(list(arrays)).finish()


def same(found, wanted):
    assert [bits(each) for each in found] == [bits(each) for each in wanted]


@pytest.mark.parametrize("outputs", [["y", "y"], ["x", "y", "x"], ["y", "z", "y"], ["c", "c"]])
def test_a_program(outputs):
    constant = {"name": "c", "dtype": "float32", "value": 2.5}
    nodes = [node("y", "multiply", "x", "c"), node("z", "exp", "y")]
    program = parse(graph([X], nodes, outputs, constants=[constant]))
    values = {"x": ARRAY, "c": mx.array(2.5), "y": ARRAY * 2.5, "z": mx.exp(ARRAY * 2.5)}
    for _ in range(2):
        same(run(program, ARRAY), [values[output] for output in outputs])


def test_call():
    program = parse(
        graph(
            [X],
            [
                node(["a", "b", "c", "d"], "call", "x", function="double"),
                node("s", "add", "b", "c"),
            ],
            ["s", "a", "b", "d"],
            functions=[DOUBLE],
        )
    )
    same(run(program, ARRAY), [3 * ARRAY, 2 * ARRAY, 2 * ARRAY, ARRAY])


def choosing():
    return parse(
        graph(
            [value("p", [], "bool"), X],
            [
                node(list("abcd"), "cond", "p", "x", **{"then": "double", "else": "square"}),
                node("s", "sum", "b"),
            ],
            [*"abcd", "s"],
            functions=[DOUBLE, SQUARE],
        )
    )


@pytest.mark.parametrize("taken", [True, False])
def test_cond(taken):
    found = run(choosing(), mx.array(taken), ARRAY)
    y, z = (2 * ARRAY, 2 * ARRAY) if taken else (ARRAY * ARRAY, mx.sin(ARRAY))
    last = ARRAY if taken else y
    same(found[:4], [y, z, last, ARRAY if taken else z])


def test_cond_of_rows_and_its_gradient():
    gradient = derive(choosing(), gradient={"of": "s", "with_respect_to": ["x"]})
    rows = derive(gradient, vectorize={"p": 0, "x": 0})
    (found,) = run(rows, mx.array([True, False]), mx.stack([ARRAY, ARRAY]))
    assert mx.allclose(found, mx.stack([mx.full((3,), 2.0), mx.cos(ARRAY)]))


def looping():
    return parse(
        graph(
            [X, value("z", [3])],
            [
                node(
                    ["a", "b"], "while", "x", "z", condition="below", body="both", max_iterations=99
                ),
                node("s", "sum", "b"),
            ],
            ["a", "b", "a", "s"],
            functions=[BELOW, BOTH],
        )
    )


def test_while():
    wanted = mx.array([16.0, 24.0, 32.0])  # 1 + 3, 2 + 4, 3 + 5, doubled twice
    for _ in range(2):
        found = run(looping(), ARRAY, ARRAY + 2)
        same(found[:3], [wanted, wanted, wanted])


def test_gradient_of_while():
    gradient = derive(looping(), gradient={"of": "s", "with_respect_to": ["x", "z"], "value": True})
    total, to_x, to_z = run(gradient, ARRAY, ARRAY + 2)
    assert total.item() == 72
    assert to_x.tolist() == to_z.tolist() == [4.0] * 3


def scanning():
    return parse(
        graph(
            [X, value("xs", ["steps", 3])],
            [
                node(["h", "m", "n"], "scan", "x", "xs", body="recur", carries=1),
                node("s", "sum", "n"),
            ],
            ["h", "m", "n", "h", "s"],
            functions=[RECUR],
        )
    )


def test_scan_with_a_carry_that_is_stacked_too():
    xs = mx.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    states = [mx.tanh(ARRAY + xs[0])]
    states.append(mx.tanh(states[0] + xs[1]))
    found = run(scanning(), ARRAY, xs)
    stacked = mx.stack(states)
    same(found[:4], [states[1], stacked, stacked, states[1]])
    gradient = derive(scanning(), gradient={"of": "s", "with_respect_to": ["x"]})
    (slope,) = run(gradient, ARRAY, xs)

    def plain(x):
        one = mx.tanh(x + xs[0])
        return mx.sum(one) + mx.sum(mx.tanh(one + xs[1]))

    assert mx.allclose(slope, mx.grad(plain)(ARRAY))


def test_derived_programs():
    nodes = [node("y", "multiply", "x", "k"), node("s", "sum", "y")]
    program = parse(graph([X, value("k", [3])], nodes, ["s", "y", "s", "y"]))
    bound = derive(program, {"k": ARRAY}, bind={"k": 1})
    gradient = derive(bound, gradient={"of": "s", "with_respect_to": ["x"], "value": True})
    total, slope, *_ = run(gradient, ARRAY)
    assert (total.item(), slope.tolist()) == (14, ARRAY.tolist())
    rows = derive(bound, vectorize={"x": 0})
    sums, products, again, same_products = run(rows, mx.stack([ARRAY, 2 * ARRAY]))
    assert sums.tolist() == again.tolist() == [14, 28]
    assert products.tolist() == same_products.tolist() == [[1, 4, 9], [2, 8, 18]]


SAME: dict[str, dict[str, object]] = {
    "positive": {},
    "conjugate": {},
    "real": {},
    "contiguous": {},
    "atleast_1d": {},
    "broadcast_to": {"shape": [2, 4]},
    "reshape": {"shape": [2, 4]},
    "astype": {"dtype": "float32"},
    "transpose": {"axes": [0, 1]},
    "call": {"function": "itself"},
}


@pytest.mark.parametrize("op", SAME)
def test_rows_of_a_value_and_of_what_is_the_same_array(op):
    """Within mlx their rows are along another axis than the first."""
    itself = function("itself", [value("x", [2, 4])], [], ["x"])
    program = parse(
        graph(
            [value("a", [2, 1]), value("b", [4])],
            [node("y", "add", "b", "a"), node("z", op, "y", **SAME[op])],
            ["y", "z", "y"],
            functions=[itself],
        )
    )
    a, b = mx.array([[1.0], [2.0]]), mx.arange(8).reshape(2, 4).astype(mx.float32)
    found = run(derive(program, vectorize={"b": 0}), a, b)
    same(found, [b[:, None] + a] * 3)
