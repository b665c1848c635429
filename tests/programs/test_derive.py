"""Programs derived of programs, against mlx's own transformations, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import mlx.core as mx
import pytest
from support.programs import bits, derive, graph, node, parse, value

from cowmlx.errors import Unsupported
from cowmlx.programs import bounds
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.operations.row import OperationError
from cowmlx.programs.operations.vectorized import MAX_ROWS

NETWORK = graph(
    [value("x", ["batch", 4]), value("y", ["batch"], "int32")],
    [
        node("h", "matmul", "x", "w"),
        node("a", "sin", "h"),
        node("z", "matmul", "a", "v"),
        node("loss", "cross_entropy", "z", "y", reduction="mean"),
    ],
    ["loss", "z"],
    parameters=[
        {**value("w", [4, 8]), "init": "glorot_uniform"},
        {**value("v", [8, 3]), "init": {"name": "he_normal", "gain": 0.5}},
    ],
)
CUBE = graph(
    [value("x", []), value("n", [], "int32"), value("unused", [])],
    [node("s", "square", "x"), node("f", "multiply", "s", "x"), node("r", "round", "x")],
    ["f", "r"],
)
SCALAR = {"of": "f", "with_respect_to": ["x"]}


def arrays(batch: int = 5) -> list[mx.array]:
    keys = mx.random.split(mx.random.key(batch), 4)
    return [
        mx.random.normal((batch, 4), key=keys[0]),
        mx.random.randint(0, 3, (batch,), key=keys[1]),
        mx.random.normal((4, 8), key=keys[2]),
        mx.random.normal((8, 3), key=keys[3]),
    ]


def network(x, y, w, v):
    """The operations of the program; cross_entropy as the table has it."""
    from cowmlx.programs.operations import find

    row = find("cross_entropy")
    attributes = {"axis": -1, "label_smoothing": 0.0, "reduction": "mean", "indices": "check"}
    z = mx.sin(x @ w) @ v
    return row.compute([z, y, None], attributes)[0]


def run(program, *inputs):
    return program.run(list(inputs)).finish()


def test_a_gradient_and_its_value():
    gradient = derive(
        parse(NETWORK), gradient={"of": "loss", "with_respect_to": ["v", "w"], "value": True}
    )
    assert [output.name for output in gradient.outputs] == ["loss", "loss/v", "loss/w"]
    for batch in (1, 5):
        given = arrays(batch)
        value, (w, v) = mx.value_and_grad(network, argnums=[2, 3])(*given)
        found = run(gradient, *given)
        assert [bits(each) for each in found] == [bits(each) for each in (value, v, w)]


def test_a_gradient_without_its_value():
    gradient = derive(parse(NETWORK), gradient={"of": "loss", "with_respect_to": ["w"]})
    (found,) = run(gradient, *arrays())
    assert bits(found) == bits(mx.grad(network, argnums=2)(*arrays()))


def test_second_and_third_derivatives():
    program = parse(CUBE)
    for wanted in (12.0, 12.0, 6.0):
        program = derive(
            program, gradient={"of": program.outputs[0].name, "with_respect_to": ["x"]}
        )
        assert run(program, mx.array(2.0), mx.array(1), mx.array(0.0))[0].item() == wanted
    assert program.outputs[0].name == "f/x/x/x"


def along(result: str, *inputs: str, **more: Any) -> dict[str, Any]:
    return {"of": result, "with_respect_to": list(inputs), "along": "u", **more}


def test_a_product_of_a_vector_and_a_jacobian():
    program = parse(NETWORK)
    product = derive(program, gradient=along("z", "v", "w", value=True))
    assert [each.name for each in product.inputs] == ["x", "y", "u", "w", "v"]
    assert [each.name for each in product.outputs] == ["z", "z/v", "z/w"]
    assert str(product.inputs[2].spec) == "float32(batch, 3)"
    for batch in (1, 5):
        x, y, w, v = arrays(batch)
        u = mx.random.normal((batch, 3), key=mx.random.key(9))
        (z,), (of_v, of_w) = mx.vjp(lambda v, w, x=x: mx.sin(x @ w) @ v, [v, w], [u])
        found = run(product, x, y, u, w, v)
        assert [bits(each) for each in found] == [bits(each) for each in (z, of_v, of_w)]


def test_a_product_of_a_hessian_and_vectors():
    """One after the other, and as rows."""
    x, y, w, v = arrays()

    def product(w, u):
        return mx.grad(lambda w: mx.sum(mx.grad(network, argnums=2)(x, y, w, v) * u))(w)

    slope = derive(parse(NETWORK), gradient={"of": "loss", "with_respect_to": ["w"]})
    hessian = derive(slope, gradient=along("loss/w", "w"))
    assert [each.name for each in hessian.outputs] == ["loss/w/w"]
    us = mx.random.normal((3, 4, 8), key=mx.random.key(4))
    wanted = mx.stack([product(w, u) for u in us])
    found = mx.stack([run(hessian, x, y, u, w, v)[0] for u in us])
    assert bits(found) == bits(wanted)
    rows = derive(hessian, vectorize={"u": 1})
    (found,) = run(rows, x, y, mx.moveaxis(us, 0, 1), w, v)
    assert mx.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    both = derive(hessian, vectorize={"u": 0, "w": 0, "v": 0})
    pair = [mx.stack([each, each]) for each in (w, v)]
    (found,) = run(both, x, y, us[:2], *pair)
    assert mx.allclose(found, wanted[:2], rtol=1e-5, atol=1e-6)
    bound = derive(hessian, {"u": us[1]}, bind={"u": 1})
    assert bits(run(bound, x, y, w, v)[0]) == bits(wanted[1])


def test_a_direction_through_control_flow():
    decay = {
        "name": "decay",
        **graph([value("a", []), value("w", [])], [node("b", "multiply", "a", "w")], ["b"]),
    }
    keep = {"name": "keep", **graph([value("a", []), value("w", [])], [], ["a"])}
    program = parse(
        graph(
            [value("p", [], "bool"), value("a", [])],
            [node("r", "cond", "p", "a", "w", then="decay", **{"else": "keep"})],
            ["r"],
            functions=[decay, keep],
            parameters=[value("w", [])],
        )
    )
    slope = derive(program, gradient=along("r", "a"))
    for decides, wanted in ((True, 6.0), (False, 2.0)):
        given = (mx.array(decides), mx.array(5.0), mx.array(2.0), mx.array(3.0))
        assert run(slope, *given)[0].item() == wanted


def test_rows():
    rows = derive(parse(NETWORK), vectorize={"x": 1, "y": 0}, dimension="sets")
    assert [str(output.spec) for output in rows.outputs] == [
        "float32(sets)",
        "float32(sets, batch, 3)",
    ]
    x, y, w, v = arrays()
    xs, ys = mx.stack([x, -x], axis=1), mx.stack([y, 2 - y])
    wanted = mx.vmap(network, in_axes=(1, 0, None, None))(xs, ys, w, v)
    assert bits(run(rows, xs, ys, w, v)[0]) == bits(wanted)


def test_bound_inputs_are_given_once():
    x, y, w, v = arrays()
    bound = derive(parse(NETWORK), {"x": x, "v": v}, bind={"x": 1, "v": 2})
    assert [each.name for each in bound.inputs] == ["y", "w"]
    assert [str(each.spec) for each in bound.inputs] == ["int32(5)", "float32(4, 8)"]
    assert bits(run(bound, y, w)[0]) == bits(network(x, y, w, v))
    with pytest.raises(ProgramError, match=r"input 'y' has the shape \(4\), declared is \(5\)"):
        bound.run([y[:4], w])


COMPOSITIONS: dict[str, list[dict[str, Any]]] = {
    "gradient, vectorize, bind": [
        {"gradient": {"of": "loss", "with_respect_to": ["w"]}},
        {"vectorize": {"x": 0}},
        {"bind": {"y": 0}},
    ],
    "bind, gradient, vectorize": [
        {"bind": {"y": 0}},
        {"gradient": {"of": "loss", "with_respect_to": ["w"]}},
        {"vectorize": {"x": 0}},
    ],
    "gradient, bind, vectorize": [
        {"gradient": {"of": "loss", "with_respect_to": ["w"]}},
        {"bind": {"y": 0}},
        {"vectorize": {"x": 0}, "dimension": 2},
    ],
}


@pytest.mark.parametrize("steps", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_derivations_in_any_order(steps):
    x, y, w, v = arrays()
    program = parse(NETWORK)
    for step in steps:
        program = program.derive(json.dumps(step), {"y": y})
    xs = mx.stack([x, x * 2])
    wanted = mx.vmap(mx.grad(network, argnums=2), in_axes=(0, None, None, None))(xs, y, w, v)
    assert bits(run(program, xs, w, v)[0]) == bits(wanted)


def test_a_gradient_of_rows():
    """Of the sum over rows, each with its own program."""
    total = graph([value("x", [3])], [node("s", "square", "x"), node("t", "sum", "s")], ["t"])
    rows = derive(parse(total), vectorize={"x": 0}, dimension=1)
    with pytest.raises(ProgramError, match=r"gradient of 't', which is float32\(1\)"):
        derive(rows, gradient={"of": "t", "with_respect_to": ["x"]})


WRONG: dict[str, tuple[Any, str, str]] = {
    "nothing": ({}, "missing", "must have one of gradient, vectorize, bind"),
    "two": ({"gradient": SCALAR, "vectorize": {"x": 0}}, "conflict", "gradient and vectorize"),
    "unknown": ({"hessian": {}}, "unknown_option", "the key 'hessian'"),
    "no of": ({"gradient": {"with_respect_to": ["x"]}}, "missing", "gradient needs 'of'"),
    "of nowhere": (
        {"gradient": {"of": "g", "with_respect_to": ["x"]}},
        "missing",
        "of has 'g', which is no result, must be one of 'f', 'r'",
    ),
    "with respect to nothing": (
        {"gradient": {"of": "f", "with_respect_to": []}},
        "missing",
        "with_respect_to is empty",
    ),
    "twice": ({"gradient": {"of": "f", "with_respect_to": ["x", "x"]}}, "conflict", "twice"),
    "integers": (
        {"gradient": {"of": "f", "with_respect_to": ["n"]}},
        "wrong_type",
        "with_respect_to has 'n', which is int32",
    ),
    "independent": (
        {"gradient": {"of": "f", "with_respect_to": ["unused"]}},
        "conflict",
        "'unused', on which 'f' does not depend",
    ),
    "value no bool": (
        {"gradient": {**SCALAR, "value": 1}},
        "wrong_type",
        "value is 1, must be true or false",
    ),
    "along an input": (
        {"gradient": {**SCALAR, "along": "n"}},
        "conflict",
        "along has 'n', which is an input already",
    ),
    "along no name": (
        {"gradient": {**SCALAR, "along": ["u"]}},
        "wrong_type",
        "along is .*, must be a text of 1 to 256",
    ),
    "along no text": (
        {"gradient": {**SCALAR, "along": "u\0"}},
        "out_of_range",
        "along is .*, must be a text of 1 to 256",
    ),
    "no rows": ({"vectorize": {}}, "missing", "vectorize names no input"),
    "rows of nothing": ({"vectorize": {"q": 0}}, "unknown_option", "the key 'q'"),
    "axis": ({"vectorize": {"x": 1}}, "out_of_range", "axis of 'x' is 1, must be 0 to 0"),
    "axis no number": ({"vectorize": {"x": True}}, "out_of_range", "axis of 'x' is True"),
    "dimension": ({"vectorize": {"x": 0}, "dimension": -1}, "out_of_range", "dimension is -1"),
    "dimension name": ({"vectorize": {"x": 0}, "dimension": "2n"}, "out_of_range", "dimension"),
    "dimension alone": ({"bind": {"x": 1}, "dimension": 2}, "conflict", '"dimension" goes with'),
    "bind nothing": ({"bind": {}}, "missing", "bind names no input"),
    "bind no array": ({"bind": {"x": 1}}, "missing", "bind: no array for 'x'"),
}


def test_a_direction_has_no_gradient():
    slope = derive(parse(CUBE), gradient={**SCALAR, "along": "u"})
    assert run(slope, mx.array(2.0), mx.array(1), mx.array(0.0), mx.array(0.5))[0].item() == 6.0
    with pytest.raises(ProgramError, match="'u', which is the direction of a gradient") as caught:
        derive(slope, gradient={"of": "f/x", "with_respect_to": ["u"]})
    assert caught.value.reason == "conflict"


@pytest.mark.parametrize(("spec", "reason", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_derived_is_named(spec, reason, message):
    with pytest.raises(ProgramError, match=message) as caught:
        parse(CUBE).derive(json.dumps(spec))
    assert caught.value.reason == reason


def test_an_array_that_does_not_fit_is_not_bound():
    program = parse(CUBE)
    for array, message in (
        (mx.array(1), r"input 'x' is float32\(\), but the array is int32\(\)"),
        (mx.zeros(3), r"but the array is float32\(3\)"),
    ):
        with pytest.raises(ProgramError, match=message):
            derive(program, {"x": array}, bind={"x": 1})
    composite = graph([value("a", ["n"]), value("b", ["2*n"])], [node("s", "sum", "b")], ["s"])
    with pytest.raises(ProgramError, match=r"bind: .*'n' has no value; bind the inputs"):
        derive(parse(composite), {"b": mx.zeros(4)}, bind={"b": 1})
    both = derive(parse(composite), {"b": mx.zeros(4), "a": mx.zeros(2)}, bind={"b": 1, "a": 1})
    assert run(both)[0].item() == 0


def test_a_gradient_through_integers_alone_is_refused():
    program = graph(
        [value("x", [3])],
        [
            node("i", "argmax", "x"),
            node("f", "astype", "i", dtype="float32"),
            node("g", "sin", "f"),
        ],
        ["g"],
    )
    with pytest.raises(ProgramError, match="through integers, bools and steps alone"):
        derive(parse(program), gradient={"of": "g", "with_respect_to": ["x"]})


def test_an_operation_without_a_derivative_is_named():
    program = graph(
        [value("x", [3, 3])],
        [node(["u", "s", "v"], "svd", "x"), node("t", "sum", "s")],
        ["t"],
    )
    with pytest.raises(Unsupported, match=r"node 'u' \(svd\): svd has no derivative") as caught:
        derive(parse(program), gradient={"of": "t", "with_respect_to": ["x"]})
    assert caught.value.details["op"] == "svd"


CAST = [node("b", "astype", "x", dtype="bool"), node("i", "astype", "b", dtype="uint8")]
INDICES = {
    "a cast": [node("i", "astype", "x", dtype="int32")],
    "a cast to bools": CAST,
    "argmax": [node("i", "argmax", "x")],
    "argsort": [node("i", "argsort", "x")],
    "argpartition": [node("i", "argpartition", "x", kth=1)],
    "count_nonzero": [node("i", "count_nonzero", "x")],
    "searchsorted": [node("i", "searchsorted", "x", "x")],
    "greater": [node("b", "greater", "x", "x"), node("i", "astype", "b", dtype="int32")],
    "a draw": [node("k", "random_key", seed=1), node("i", "random_categorical", "x", "k")],
    "8-bit floats": [node("i", "to_fp8", "x")],
    "a function": [node("i", "call", "x", function="first")],
}
FIRST = graph([value("x", [3])], [node("i", "argmax", "x")], ["i"], name="first")


@pytest.mark.parametrize("how", INDICES)
@pytest.mark.parametrize("op", ["take", "take_along_axis", "put_along_axis", "scatter_add"])
def test_indices_count_as_constants(op, how):
    """Also those that are computed from what the gradient is with respect to."""
    updates = ["t"] if op in ("put_along_axis", "scatter_add") else []
    after = [
        node("j", "reshape", "i", shape=[-1]),
        node("u", "square", "x"),
        node("t", "take", "u", "j", indices="clamp"),
        node("y", op, "u", "j", *updates, axis=0, indices="clamp"),
        node("s", "sum", "y"),
    ]
    own = parse(graph([value("x", [3])], [*INDICES[how], *after], ["s", "i"], functions=[FIRST]))
    x = mx.array([0.5, 2.25, 1.0])
    total, indices = run(own, x)
    dtype = str(indices.dtype).removeprefix("mlx.core.")
    given = [value("x", [3]), value("i", list(indices.shape), dtype)]
    wanted = derive(parse(graph(given, after, ["s"])), gradient=SLOPE)
    found = run(derive(own, gradient=SLOPE), x)
    assert [bits(each) for each in found] == [bits(each) for each in run(wanted, x, indices)]
    assert bits(found[0]) == bits(total)


SLOPE = {"of": "s", "with_respect_to": ["x"], "value": True}


def test_a_gradient_of_rows_that_decide_by_what_it_is_of():
    double = graph([value("x", [2])], [node("y", "add", "x", "x")], ["y"], name="double")
    square = graph([value("x", [2])], [node("y", "square", "x")], ["y"], name="square")
    program = graph(
        [value("x", [2])],
        [
            node("p", "all", "x"),
            node("y", "cond", "p", "x", then="square", **{"else": "double"}),
            node("s", "sum", "y"),
        ],
        ["s"],
        functions=[double, square],
    )
    rows = derive(derive(parse(program), gradient=SLOPE), vectorize={"x": 0})
    found = run(rows, mx.array([[3.0, 4.0], [0.0, 5.0]]))
    assert [each.tolist() for each in found] == [[25, 10], [[6, 8], [2, 2]]]


ZERO = {"name": "zero", "dtype": "float32", "value": 0}


@pytest.mark.parametrize("op", ["log", "sqrt", "reciprocal", "arccos"])
def test_a_branch_that_a_row_does_not_take_has_no_part_in_its_gradient(op):
    """Where it is not taken its slope is infinite or nan."""
    plain = graph([value("x", [])], [node("y", "square", "x")], ["y"], name="plain")
    steep = graph([value("x", [])], [node("y", op, "x")], ["y"], name="steep")
    program = graph(
        [value("x", [])],
        [
            node("z", "greater", "x", "zero"),
            node("f", "cond", "z", "x", then="steep", **{"else": "plain"}),
            node("s", "positive", "f"),
        ],
        ["s"],
        constants=[ZERO],
        functions=[plain, steep],
    )
    gradient = derive(parse(program), gradient=SLOPE)
    x = mx.array([[0.5, 0.0, -1.0], [-3.0, 0.25, 0.0]])
    rows = derive(derive(gradient, vectorize={"x": 0}), vectorize={"x": 1})
    found = run(rows, x)[1].transpose()
    alone = [[run(gradient, each)[1] for each in line] for line in x]
    assert bits(found) == bits(mx.array(alone))
    assert mx.all(mx.isfinite(found))


def test_steps_count_as_constants():
    program = parse(
        graph(
            [value("x", [])],
            [node("w", "floor", "x"), node("r", "subtract", "x", "w"), node("f", "square", "r")],
            ["f", "w"],
        )
    )
    gradient = derive(program, gradient={"of": "f", "with_respect_to": ["x"]})
    assert run(gradient, mx.array(2.25))[0].item() == 0.5
    with pytest.raises(ProgramError, match="through integers, bools and steps alone"):
        derive(program, gradient={"of": "w", "with_respect_to": ["x"]})


def test_an_operation_without_a_derivative_beside_one_that_has_is_named():
    program = graph(
        [value("x", [3, 3])],
        [
            node(["u", "s", "v"], "svd", "x"),
            node("d", "add", "s", "s"),
            node("y", "multiply", "x", "d"),
            node("t", "sum", "y"),
        ],
        ["t"],
    )
    with pytest.raises(Unsupported, match=r"node 'u' \(svd\)"):
        derive(parse(program), gradient={"of": "t", "with_respect_to": ["x"]})


def test_rows_one_by_one_are_bounded():
    inputs = [value("line", [3]), value("x", [])]
    program = parse(graph(inputs, [node("y", "searchsorted", "line", "x")], ["y"]))
    rows = derive(program, vectorize={"line": 0})
    few = mx.broadcast_to(mx.array([0.0, 1.0, 2.0]), (4, 3))
    assert rows.run([few, mx.array(0.5)]).finish()[0].tolist() == [1] * 4
    many = mx.zeros((MAX_ROWS + 1, 3))
    mx.eval(few, many)
    with pytest.raises(OperationError, match=r"searchsorted .* one by one, 4097 .* 4096 at most"):
        rows.run([many, mx.array(0.5)]).finish()


def test_derivations_of_derivations_are_bounded():
    program = parse(graph([value("x", [])], [node("f", "exp", "x")], ["f"]))
    wide = program
    for _ in range(8):
        wide = derive(wide, vectorize={"x": 0})
    with pytest.raises(ProgramError, match="'x' has 8 dimensions already"):
        derive(wide, vectorize={"x": 0})
    many = graph(
        [value("x", []), *(value(f"a{at}", []) for at in range(17))], [node("f", "exp", "x")], ["f"]
    )
    bound = parse(many)
    for at in range(bounds.MAX_DERIVATIONS):
        bound = derive(bound, {f"a{at}": mx.array(0.0)}, bind={f"a{at}": 1})
    with pytest.raises(ProgramError, match="derived 16 times, which is the most"):
        derive(bound, {"a16": mx.array(0.0)}, bind={"a16": 1})
