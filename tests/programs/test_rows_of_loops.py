"""Vectorized loops: rows end in different rounds, and each is what it is alone."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from support.programs import bits, derive, graph, node, parse, value

from cowmlx.programs import operations
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.program import Program

X, N = value("x", [3]), value("n", [], "int32")
ONE = {"name": "one", "dtype": "int32", "value": 1}
FIVE = {"name": "five", "dtype": "int32", "value": 5}
LIMIT = {"name": "limit", "dtype": "float32", "value": 100}
# Doubles x while its sum is below 100, and counts.
BELOW = graph(
    [X, N],
    [node("s", "sum", "x"), node("go", "less", "s", "limit")],
    ["go"],
    name="below",
    constants=[LIMIT],
)
DOUBLE = graph(
    [X, N],
    [node("y", "add", "x", "x"), node("m", "add", "n", "one")],
    ["y", "m"],
    name="double",
    constants=[ONE],
)
SAME = graph([X, N], [node("y", "negative", "x")], ["y", "n"], name="same")

FEW = graph(
    [X, N],
    [node("go", "less", "n", "most")],
    ["go"],
    name="few",
    constants=[{"name": "most", "dtype": "int32", "value": 5000}],
)


def loop(most: int = 1000, names: tuple[str, str] = ("y", "m"), **functions: str) -> dict[str, Any]:
    named = {"condition": "below", "body": "double", **functions}
    return node(list(names), "while", "x", "n", max_iterations=most, **named)


def counting(most: int = 1000) -> dict[str, Any]:
    return graph([X, N], [loop(most)], ["y", "m"], functions=[BELOW, DOUBLE])


# Rows of 3, 0, 1 and 6 rounds, of those there are.
ROWS = mx.array([[5.0, 6, 7], [90, 9, 8], [30, 20, 10], [1, 0, 1]])
COUNTS = mx.array([0, 10, 20, 30], mx.int32)


def alone(program: Program, rows: list[list[mx.array]]) -> list[mx.array]:
    """The results of rows that run one by one, side by side."""
    found = [program.run(row).finish() for row in rows]
    return [mx.stack(list(results)) for results in zip(*found, strict=True)]


def equal(found: list[mx.array], wanted: list[mx.array]) -> None:
    assert [bits(array) for array in found] == [bits(array) for array in wanted]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_end_in_rounds_of_their_own(count, axis):
    program = parse(counting())
    x, n = ROWS[:count], COUNTS[:count]
    rows = derive(program, vectorize={"x": axis, "n": 0})
    found = rows.run([mx.moveaxis(x, 0, axis), n]).finish()
    equal(found, alone(program, [[x[at], n[at]] for at in range(count)]))
    if count == 4:
        assert (found[1] - n).tolist() == [3, 0, 1, 6]


@pytest.mark.parametrize("axes", [{"x": 0}, {"n": 0}])
def test_part_of_a_state_may_be_the_same_for_all_rows(axes):
    """Also where all rows end in the same round."""
    program = parse(counting())
    given = [ROWS if "x" in axes else ROWS[0], COUNTS if "n" in axes else COUNTS[0]]
    each = [[ROWS[at if "x" in axes else 0], COUNTS[at if "n" in axes else 0]] for at in range(4)]
    equal(derive(program, vectorize=axes).run(given).finish(), alone(program, each))


def test_rows_of_rows_and_bound_inputs():
    program = parse(counting())
    outer = derive(derive(program, vectorize={"n": 0}), vectorize={"x": 1})
    found = outer.run([ROWS.T, COUNTS]).finish()
    wanted = alone(program, [[ROWS[at], COUNTS[by]] for at in range(4) for by in range(4)])
    equal(found, [array.reshape(4, 4, *array.shape[1:]) for array in wanted])
    bound = derive(derive(program, {"n": COUNTS[1]}, bind={"n": None}), vectorize={"x": 0})
    equal(bound.run([ROWS]).finish(), alone(program, [[ROWS[at], COUNTS[1]] for at in range(4)]))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_no_rows_give_nothing(shape):
    program = derive(parse(counting()), vectorize={"x": 0, "n": 0})
    for _ in shape[2:]:
        program = derive(program, vectorize={"x": 0, "n": 0})
    n = mx.zeros(shape[:-1], mx.int32)
    found = program.run([mx.zeros(shape), n]).finish()
    assert [(array.shape, array.dtype) for array in found] == [
        (shape, mx.float32),
        (n.shape, n.dtype),
    ]


P = value("p", [], "bool")
# Ends for no row.
ENDLESS = graph([X, N], [node("go", "equal", "n", "n")], ["go"], name="endless")
FOREVER = graph([X, N], [loop(50, condition="endless")], ["y", "m"], name="forever")
GROW = graph([X, N], [loop()], ["y", "m"], name="grow")
# Loops in branches, of which rows take different ones.
CHOOSING = graph(
    [P, X, N],
    [node(["y", "m"], "cond", "p", "x", "n", then="grow", **{"else": "same"})],
    ["y", "m"],
    functions=[BELOW, DOUBLE, GROW, SAME],
)


@pytest.mark.parametrize("axes", [{"p": 0, "x": 0, "n": 0}, {"x": 0}, {"p": 0}])
@pytest.mark.parametrize("taken", [[True, False, False, True], [False] * 4, [True] * 4])
def test_loops_in_branches(axes, taken):
    program = parse(CHOOSING)
    inputs = {"p": mx.array(taken), "x": ROWS, "n": COUNTS}
    given = [array if name in axes else array[0] for name, array in inputs.items()]
    each = [[array[at if name in axes else 0] for name, array in inputs.items()] for at in range(4)]
    equal(derive(program, vectorize=axes).run(given).finish(), alone(program, each))


def test_a_loop_in_a_branch_that_no_row_takes_does_not_run():
    """It would never end."""
    nodes = [node(["y", "m"], "cond", "p", "x", "n", then="forever", **{"else": "same"})]
    functions = [DOUBLE, ENDLESS, FOREVER, SAME]
    program = parse(graph([P, X, N], nodes, ["y", "m"], functions=functions))
    rows = derive(program, vectorize={"p": 0, "x": 0, "n": 0})
    found = rows.run([mx.array([False] * 4), ROWS, COUNTS]).finish()
    equal(found, [-ROWS, COUNTS])
    with pytest.raises(ProgramError, match=r"in function 'forever'.*max_iterations, which is 50"):
        rows.run([mx.array([False, True, False, False]), ROWS, COUNTS]).finish()


# Carries x through elements of a sequence, and loops with each of them.
STEP = graph(
    [X, N, value("element", [3])],
    [node("x2", "add", "x", "element"), node(["y", "m"], "call", "x2", "n", function="grow")],
    ["y", "m", "m"],
    name="step",
)


@pytest.mark.parametrize("axes", [{"x": 0, "n": 0, "xs": 0}, {"xs": 1}, {"x": 0}, {"n": 0}])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 3])
def test_loops_in_a_scan(axes, reverse, length):
    scan = node(["y", "m", "ms"], "scan", "x", "n", "xs", body="step", carries=2, reverse=reverse)
    program = parse(
        graph(
            [X, N, value("xs", [length, 3])],
            [scan],
            ["y", "m", "ms"],
            functions=[BELOW, DOUBLE, GROW, STEP],
        )
    )
    xs = mx.random.normal((4, length, 3), key=mx.random.key(0))
    rows = {"x": ROWS, "n": COUNTS, "xs": xs}
    each = [[rows[name][at if name in axes else 0] for name in rows] for at in range(4)]
    given = [
        mx.moveaxis(array, 0, axes[name]) if name in axes else array[0]
        for name, array in rows.items()
    ]
    equal(derive(program, vectorize=axes).run(given).finish(), alone(program, each))


def test_a_loop_in_a_loop():
    """The inner one runs for the rows alone that the outer one has not ended for."""
    few = graph([X, N], [node("go", "less", "n", "five")], ["go"], name="few", constants=[FIVE])
    shrink = graph(
        [X, N],
        [
            node("z", "multiply", "x", "fifth"),
            node(["y", "m"], "call", "z", "n", function="grow"),
        ],
        ["y", "m"],
        name="shrink",
        constants=[{"name": "fifth", "dtype": "float32", "value": 0.2}],
    )
    nodes = [loop(condition="few", body="shrink")]
    program = parse(graph([X, N], nodes, ["y", "m"], functions=[BELOW, DOUBLE, GROW, few, shrink]))
    n = mx.array([0, 3, 9, 2], mx.int32)
    rows = derive(program, vectorize={"x": 0, "n": 0})
    equal(rows.run([ROWS, n]).finish(), alone(program, [[ROWS[at], n[at]] for at in range(4)]))


def test_a_row_that_does_not_end_is_an_error_and_one_that_does_is_none():
    rows = derive(parse(counting(most=3)), vectorize={"x": 0, "n": 0})
    assert rows.run([ROWS[:3], COUNTS[:3]]).finish()[1].tolist() == [3, 10, 21]
    with pytest.raises(ProgramError, match="max_iterations, which is 3") as error:
        rows.run([ROWS, COUNTS]).finish()
    assert error.value.reason == "limit_exceeded"


def test_an_index_behind_the_end_of_a_row_is_no_error():
    """The body counts an index up, which leaves the array where a row has ended."""
    look = graph(
        [X, N],
        [
            node("e", "take", "x", "n"),
            node("y", "add", "x", "e"),
            node("m", "add", "n", "one"),
        ],
        ["y", "m"],
        name="look",
        constants=[ONE],
    )
    program = parse(graph([X, N], [loop(body="look")], ["y", "m"], functions=[BELOW, look]))
    n = mx.array([0, 2, 1, 0], mx.int32)
    x = mx.array([[30.0, 1, 1], [60, 30, 9], [50, 20, 1], [10, 20, 30]])
    rows = derive(program, vectorize={"x": 0, "n": 0})
    equal(rows.run([x, n]).finish(), alone(program, [[x[at], n[at]] for at in range(4)]))
    with pytest.raises(ProgramError, match=r"node 'e' \(take\) in function 'look'"):
        rows.run([mx.zeros((4, 3)), n]).finish()


def test_numbers_that_are_not_finite_behind_the_end_of_a_row_are_no_error():
    blow = graph(
        [X, N],
        [node("y", "exp", "x"), node("m", "add", "n", "one")],
        ["y", "m"],
        name="blow",
        constants=[ONE],
    )
    program = parse(graph([X, N], [loop(body="blow")], ["y", "m"], functions=[BELOW, blow]))
    rows = derive(program, vectorize={"x": 0, "n": 0})
    found = rows.run([ROWS, COUNTS], check_finite=True).finish()
    each = [[ROWS[at], COUNTS[at]] for at in range(4)]
    for one, other in zip(found, alone(program, each), strict=True):
        assert mx.allclose(one, other).item()


def test_thousands_of_rounds_run():
    """No graph over all rounds is made, which would have a bound."""
    count = graph([X, N], [node("m", "add", "n", "one")], ["x", "m"], name="count", constants=[ONE])
    more = {"name": "most", "dtype": "int32", "value": 5000}
    few = graph([X, N], [node("go", "less", "n", "most")], ["go"], name="few", constants=[more])
    nodes = [loop(10_000, condition="few", body="count")]
    program = parse(graph([X, N], nodes, ["y", "m"], functions=[few, count]))
    n = mx.array([0, 4000, 6000, 1], mx.int32)
    _, found = derive(program, vectorize={"x": 0, "n": 0}).run([ROWS, n]).finish()
    assert found.tolist() == [5000, 5000, 6000, 5000]


# ------------------------------------------------------------------------------- Gradients

# The root of x to its power, over and over: its slope is infinite at the zeros of rows that end.
ROOT = graph(
    [X, N],
    [node("r", "sqrt", "x"), node("y", "add", "x", "r"), node("m", "add", "n", "one")],
    ["y", "m"],
    name="root",
    constants=[ONE],
)


def sloping(body: dict[str, Any]) -> Program:
    nodes = [loop(body=body["name"]), node("q", "square", "y"), node("s", "sum", "q")]
    return parse(graph([X, N], nodes, ["s", "y", "m"], functions=[BELOW, body]))


@pytest.mark.parametrize("body", [DOUBLE, ROOT], ids=["double", "root"])
def test_gradients_of_rows_are_those_of_rows_alone(body):
    """Also where what a row discards has an infinite slope."""
    program = sloping(body)
    x = mx.array([[5.0, 6, 7], [100, 0, 0], [30, 20, 10], [60, 50, 0]])
    slope = derive(program, gradient={"of": "s", "with_respect_to": ["x"], "value": True})
    each = [[x[at], COUNTS[at]] for at in range(4)]
    wanted = alone(slope, each)
    found = derive(slope, vectorize={"x": 0, "n": 0}).run([x, COUNTS]).finish()
    for one, other in zip(found, wanted, strict=True):
        assert mx.all(mx.isfinite(other)).item()
        assert mx.allclose(one, other, rtol=1e-6).item()
    rows = derive(program, vectorize={"x": 0, "n": 0})
    spec = {"of": "s", "with_respect_to": ["x"], "along": "direction"}
    (found_along,) = derive(rows, gradient=spec).run([x, COUNTS, mx.array([1.0, 0, 2, 1])]).finish()
    factors = mx.array([[1.0], [0], [2], [1]])
    assert mx.allclose(found_along, wanted[1] * factors, rtol=1e-6).item()


def test_a_gradient_through_branches_with_loops():
    nodes = [*CHOOSING["nodes"], node("q", "square", "y"), node("s", "sum", "q")]
    program = parse({**CHOOSING, "nodes": nodes, "outputs": ["s"]})
    slope = derive(program, gradient={"of": "s", "with_respect_to": ["x"]})
    for taken in ([True, False, False, True], [False] * 4):
        p = mx.array(taken)
        (found,) = derive(slope, vectorize={"p": 0, "x": 0, "n": 0}).run([p, ROWS, COUNTS]).finish()
        (wanted,) = alone(slope, [[p[at], ROWS[at], COUNTS[at]] for at in range(4)])
        assert mx.allclose(found, wanted, rtol=1e-6).item()


def test_a_gradient_through_too_many_rounds_is_refused():
    """As without rows: the trace that mlx differentiates has a bound."""
    shrink = {"name": "factor", "dtype": "float32", "value": 0.999}
    body = graph(
        [X, N],
        [node("y", "multiply", "x", "factor"), node("m", "add", "n", "one")],
        ["y", "m"],
        name="shrink",
        constants=[shrink, ONE],
    )
    program = parse(
        graph(
            [X, N],
            [loop(9000, body="shrink", condition="few"), node("s", "sum", "y")],
            ["s"],
            functions=[FEW, body],
        )
    )
    slope = derive(program, gradient={"of": "s", "with_respect_to": ["x"]})
    with pytest.raises(ProgramError, match="with calls and loops unrolled there are more than"):
        derive(slope, vectorize={"x": 0, "n": 0}).run([ROWS, COUNTS]).finish()


# Operations on matrices that say which of them are not as they must be.
OF_MATRICES = [row for row in operations.ROWS if row.checks and row.cpu_only and row.stacks]


@pytest.mark.parametrize("row", OF_MATRICES, ids=lambda row: row.name)
def test_a_row_that_does_not_take_a_branch_has_any_matrix(row):
    """Both branches are computed, and the row's matrix would be refused in the other one."""
    inputs = [value(name, [3, 3]) for name in "ab"[: len(row.inputs)]]
    names = [each["name"] for each in inputs]
    outputs = [f"o{at}" for at in range(len(row.outputs))]
    specs = parse(graph(inputs, [node(outputs, row.name, *names)], outputs)).info()["outputs"]
    sizes = [spec["shape"] for spec in specs]
    none = [
        node(name, "zeros", shape=size, dtype=spec["dtype"])
        for name, size, spec in zip(outputs, sizes, specs, strict=True)
    ]
    functions = [
        graph(inputs, [node(outputs, row.name, *names)], outputs, name="computed"),
        graph(inputs, none, outputs, name="nothing"),
    ]
    chosen = node(outputs, "cond", "p", *names, then="computed", **{"else": "nothing"})
    program = parse(graph([P, *inputs], [chosen], outputs, functions=functions))
    rows = derive(program, vectorize=dict.fromkeys(["p", *names], 0))
    good, bad = 2 * mx.eye(3), mx.full((3, 3), mx.nan)
    given = [mx.stack([bad, good, good])] * len(names)
    taken = mx.array([False, True, True])
    each = [[taken[at], *(array[at] for array in given)] for at in range(3)]
    found = rows.run([taken, *given]).finish()
    equal(found, alone(program, each))
    with pytest.raises(ProgramError, match=r"\(matrix 0\)"):
        rows.run([mx.array([True, True, False]), *given]).finish()
