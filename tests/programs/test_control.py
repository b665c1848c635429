"""Control flow over functions: call, cond, while and scan, and gradients through them."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.programs import bits, derive, graph, node, parse, value

from cowmlx.programs.failure import ProgramError
from cowmlx.programs.running.rounds import Rounds

X = value("x", [3])
DOUBLE = graph([X], [node("y", "add", "x", "x")], ["y"], name="double")
SQUARE = graph([X], [node("y", "multiply", "x", "x")], ["y"], name="square")
ONE = {"name": "one", "dtype": "float32", "value": 1}
# Adds 1 to all of x while their sum is below a limit; counts the rounds.
BELOW = graph(
    [X, value("n", [], "int32")],
    [node("s", "sum", "x"), node("go", "less", "s", "limit")],
    ["go"],
    name="below",
    constants=[{"name": "limit", "dtype": "float32", "value": 100}],
)
STEP = graph(
    [X, value("n", [], "int32")],
    [node("y", "add", "x", "grow"), node("m", "add", "n", "step")],
    ["y", "m"],
    name="step",
    constants=[
        {"name": "grow", "dtype": "float32", "value": 1.5},
        {"name": "step", "dtype": "int32", "value": 1},
    ],
)
COUNTING = graph(
    [X, value("n", [], "int32")],
    [
        node(
            ["out", "rounds"],
            "while",
            "x",
            "n",
            condition="below",
            body="step",
            max_iterations=1000,
        )
    ],
    ["out", "rounds"],
    functions=[BELOW, STEP],
)
CHOOSING = graph(
    [value("p", [], "bool"), X],
    [node("z", "cond", "p", "x", then="square", **{"else": "double"}), node("s", "sum", "z")],
    ["s", "z"],
    functions=[DOUBLE, SQUARE],
)
# A recurrence h = sin(h + x), whose states are results too.
RECUR = graph(
    [X, value("element", [3])],
    [node("sum", "add", "x", "element"), node("h", "sin", "sum")],
    ["h", "sum"],
    name="recur",
)


def scanning(length: int | str = "steps", **attributes: object) -> dict[str, object]:
    return graph(
        [X, value("xs", [length, 3])],
        [
            node(["h", "sums"], "scan", "x", "xs", body="recur", carries=1, **attributes),
            node("s", "sum", "h"),
        ],
        ["s", "h", "sums"],
        functions=[RECUR],
    )


def recurrence(h: mx.array, xs: mx.array, reverse: bool = False) -> tuple[mx.array, mx.array]:
    sums = []
    order = range(len(xs))
    for at in reversed(order) if reverse else order:
        sums.append(h + xs[at])
        h = mx.sin(sums[-1])
    return h, mx.stack(sums[::-1] if reverse else sums)


def test_call_computes_a_function():
    program = parse(
        graph(
            [X],
            [node("a", "call", "x", function="double"), node("b", "call", "a", function="double")],
            ["b"],
            functions=[DOUBLE],
        )
    )
    assert program.run([mx.array([1.0, 2, 3])]).finish()[0].tolist() == [4, 8, 12]


@pytest.mark.parametrize("taken", [True, False])
def test_cond_computes_one_branch(taken):
    x = mx.array([1.0, 2, 3])
    found = parse(CHOOSING).run([mx.array(taken), x]).finish()[1]
    assert found.tolist() == ([1, 4, 9] if taken else [2, 4, 6])


@pytest.mark.parametrize("taken", [True, False])
def test_a_gradient_goes_through_the_branch_that_is_taken(taken):
    gradient = derive(parse(CHOOSING), gradient={"of": "s", "with_respect_to": ["x"]})
    (found,) = gradient.run([mx.array(taken), mx.array([1.0, 2, 3])]).finish()
    assert found.tolist() == ([2, 4, 6] if taken else [2, 2, 2])


def test_rows_take_branches_of_their_own():
    rows = derive(parse(CHOOSING), vectorize={"p": 0, "x": 0})
    x = mx.array([[1.0, 2, 3], [4, 5, 6]])
    _, found = rows.run([mx.array([True, False]), x]).finish()
    assert found.tolist() == [[1, 4, 9], [8, 10, 12]]
    gradient = derive(parse(CHOOSING), gradient={"of": "s", "with_respect_to": ["x"]})
    (found,) = (
        derive(gradient, vectorize={"p": 0, "x": 0}).run([mx.array([True, False]), x]).finish()
    )
    assert found.tolist() == [[2, 4, 6], [2, 2, 2]]


def test_an_index_in_the_branch_not_taken_is_no_error():
    look = graph([value("i", [], "int32"), X], [node("y", "take", "x", "i")], ["y"], name="look")
    first = graph(
        [value("i", [], "int32"), X],
        [node("y", "take", "x", "zero")],
        ["y"],
        name="first",
        constants=[{"name": "zero", "dtype": "int32", "value": 0}],
    )
    program = parse(
        graph(
            [value("p", [], "bool"), value("i", [], "int32"), X],
            [node("z", "cond", "p", "i", "x", then="look", **{"else": "first"})],
            ["z"],
            functions=[look, first],
        )
    )
    x = mx.array([5.0, 6, 7])
    assert program.run([mx.array(False), mx.array(70000), x]).finish()[0].item() == 5
    rows = derive(program, vectorize={"p": 0, "i": 0})
    good = [mx.array([False, True]), mx.array([70000, 2]), x]
    assert rows.run(good).finish()[0].tolist() == [5, 7]
    with pytest.raises(ProgramError, match=r"node 'y' \(take\) in function 'look'.*70000"):
        rows.run([mx.array([False, True]), mx.array([0, 70000]), x]).finish()


def test_while_runs_until_its_condition_is_false():
    x, rounds = parse(COUNTING).run([mx.zeros(3), mx.array(0)]).finish()
    assert x.tolist() == [34.5, 34.5, 34.5]
    assert rounds.item() == 23


def test_while_whose_condition_is_false_at_once_gives_its_inputs():
    x, rounds = parse(COUNTING).run([mx.full(3, 50.0), mx.array(7)]).finish()
    assert (x.tolist(), rounds.item()) == ([50, 50, 50], 7)


def test_while_with_too_many_rounds_is_an_error():
    bounded = graph(COUNTING["inputs"], [dict(COUNTING["nodes"][0])], COUNTING["outputs"])
    bounded["functions"] = COUNTING["functions"]
    bounded["nodes"][0]["attributes"] = {**COUNTING["nodes"][0]["attributes"], "max_iterations": 22}
    with pytest.raises(ProgramError, match=r"node 'out' \(while\).*max_iterations") as caught:
        parse(bounded).run([mx.zeros(3), mx.array(0)]).finish()
    assert caught.value.reason == "limit_exceeded"


def test_a_gradient_goes_through_the_rounds_that_were_run():
    grow = graph([X], [node("y", "multiply", "x", "x")], ["y"], name="grow")
    small = graph(
        [X],
        [node("s", "sum", "x"), node("go", "less", "s", "limit")],
        ["go"],
        name="small",
        constants=[{"name": "limit", "dtype": "float32", "value": 1000}],
    )
    program = parse(
        graph(
            [X],
            [
                node("y", "while", "x", condition="small", body="grow", max_iterations=100),
                node("s", "sum", "y"),
            ],
            ["s", "y"],
            functions=[grow, small],
        )
    )
    x = mx.array([1.0, 2, 3])
    gradient = derive(program, gradient={"of": "s", "with_respect_to": ["x"], "value": True})
    total, found = gradient.run([x]).finish()

    def unrolled(x):
        for _ in range(3):  # 14, 98, 6818
            x = x * x
        return x.sum()

    assert total.item() == unrolled(x).item()
    assert bits(found) == bits(mx.grad(unrolled)(x))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5, 700])
def test_scan_is_a_recurrence(length, reverse):
    """700 steps run in rounds, the others within a trace."""
    x, xs = mx.random.normal((3,), key=mx.random.key(0)), mx.random.normal((length, 3))
    total, h, sums = parse(scanning(reverse=reverse)).run([x, xs]).finish()
    if not length:
        assert bits(h) == bits(x) and sums.shape == (0, 3)
        return
    wanted = recurrence(x, xs, reverse)
    assert (bits(h), bits(sums)) == (bits(wanted[0]), bits(wanted[1]))
    assert bits(total) == bits(wanted[0].sum())


@pytest.mark.parametrize("length", [5, 400])
def test_a_gradient_goes_through_scan(length):
    x, xs = mx.random.normal((3,)), mx.random.normal((length, 3))
    gradient = derive(parse(scanning()), gradient={"of": "s", "with_respect_to": ["x", "xs"]})
    found = gradient.run([x, xs]).finish()
    wanted = mx.grad(lambda x, xs: recurrence(x, xs)[0].sum(), argnums=[0, 1])(x, xs)
    assert all(mx.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_scan_that_is_too_long_for_a_gradient_is_refused():
    gradient = derive(parse(scanning()), gradient={"of": "s", "with_respect_to": ["x"]})
    run = gradient.run([mx.zeros(3), mx.zeros((5000, 3))])
    with pytest.raises(ProgramError, match=r"node .* in function 'recur'.*unrolled") as caught:
        run.finish()
    assert caught.value.reason == "limit_exceeded"


def test_loops_run_in_steps():
    """So that others have a turn between them, and a cancellation is heard."""
    body = graph([X], [node("y", "sin", "x")], ["y"], name="body")
    forever = graph(
        [X],
        [node("s", "sum", "x"), node("go", "equal", "s", "s")],
        ["go"],
        name="forever",
    )
    program = parse(
        graph(
            [X],
            [node("y", "while", "x", condition="forever", body="body", max_iterations=2**31 - 1)],
            ["y"],
            functions=[body, forever],
        )
    )
    steps = program.run([mx.zeros(3)]).steps()
    for _ in range(10):
        next(steps)
    steps.close()
    assert 0 < program.longest_turn < 60
    assert program.info()["longest_turn"] == program.longest_turn


def test_loops_in_loops_and_decisions_in_them():
    """A scan whose body has a while whose body has a cond."""
    even = graph([X], [node("y", "add", "x", "x")], ["y"], name="even")
    odd = graph([X], [node("y", "add", "x", "one")], ["y"], name="odd", constants=[ONE])
    body = graph(
        [X],
        [
            node("s", "sum", "x"),
            node("p", "less", "s", "ten"),
            node("y", "cond", "p", "x", then="even", **{"else": "odd"}),
        ],
        ["y"],
        name="body",
        constants=[{"name": "ten", "dtype": "float32", "value": 10}],
    )
    inner = graph(
        [X, value("element", [3])],
        [
            node("a", "add", "x", "element"),
            node("y", "while", "a", condition="small", body="body", max_iterations=99),
            node("s", "sum", "y"),
        ],
        ["y", "s"],
        name="inner",
    )
    small = graph(
        [X],
        [node("s", "sum", "x"), node("go", "less", "s", "limit")],
        ["go"],
        name="small",
        constants=[{"name": "limit", "dtype": "float32", "value": 30}],
    )
    program = parse(
        graph(
            [X, value("xs", ["n", 3])],
            [
                node(["h", "sums"], "scan", "x", "xs", body="inner", carries=1),
                node("total", "sum", "sums"),
            ],
            ["total", "h", "sums"],
            functions=[inner, small, body, odd, even],
        )
    )

    def plain(x, xs):
        sums = []
        for element in xs:
            x = x + element
            while x.sum().item() < 30:
                x = x + x if x.sum().item() < 10 else x + 1
            sums.append(x.sum())
        return mx.stack(sums).sum()

    x, xs = mx.array([0.5, 1, 1.5]), mx.array([[1.0, 2, 3], [-20, 1, 1], [4, 4, 4]])
    assert bits(program.run([x, xs]).finish()[0]) == bits(plain(x, xs))
    gradient = derive(program, gradient={"of": "total", "with_respect_to": ["x", "xs"]})
    found = gradient.run([x, xs]).finish()
    wanted = mx.grad(plain, argnums=[0, 1])(x, xs)
    assert [bits(each) for each in found] == [bits(each) for each in wanted]


def test_a_run_keeps_no_decisions_that_nothing_asks_for(monkeypatch):
    """A loop may run for days. A gradient asks for them."""
    kept = []
    note = Rounds.note

    def noted(self, *given):
        note(self, *given)
        kept.append(len(self.decisions))

    monkeypatch.setattr(Rounds, "note", noted)
    given = [mx.zeros(3), mx.array(0)]
    parse(COUNTING).run(given).finish()
    assert set(kept) == {0}
    kept.clear()
    spec = {"gradient": {"of": "s", "with_respect_to": ["x"]}}
    total = graph(
        COUNTING["inputs"],
        [*COUNTING["nodes"], node("s", "sum", "out")],
        ["s"],
        functions=COUNTING["functions"],
    )
    derive(parse(total), **spec).run([mx.zeros(3), mx.array(0)]).finish()
    assert max(kept) > 0
