"""Random programs give the bits of the same operations one by one: mlx's, but for float64.

Functions that kernels compute otherwise are in tests/kernels/test_functions.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.programs import bits, derive, graph, node, parse, value

from cowmlx.programs.operations import elementary
from cowmlx.programs.program import Program

UNARY = ("sin", "cos", "abs", "square", "sigmoid", "negative", "exp", "floor", "erf")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
DTYPES = ("float32", "float16", "bfloat16", "float64")
SMOOTH = ("sin", "cos", "square", "sigmoid")


@dataclass
class Drawn:
    """A program, and the function that it should be."""

    shapes: list[tuple[int, ...]]
    dtype: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[str, list[int], dict[str, Any]]] = field(default_factory=list)

    def plain(self, *arrays: mx.array) -> list[mx.array]:
        values = list(arrays)
        for op, inputs, attributes in self.steps:
            # mlx computes some functions of float64 in float32; softmax is a kernel's.
            is_own = self.dtype == "float64" or op == "softmax"
            own = getattr(elementary, op, None) if is_own else None
            function = own or getattr(mx, op)
            taken = [values[each] for each in inputs]
            arguments = [taken] if op == "concatenate" else taken
            values.append(function(*arguments, **attributes))
        return values[len(arrays) :]

    def program(self, outputs: list[str], extra: list[dict[str, Any]] | None = None) -> Program:
        names = [f"in{at}" for at in range(len(self.shapes))]
        inputs = [
            value(name, list(shape), self.dtype)
            for name, shape in zip(names, self.shapes, strict=True)
        ]
        return parse(graph(inputs, [*self.nodes, *(extra or [])], outputs))


@st.composite
def drawn(draw, dtypes=DTYPES, unary=UNARY, binary=BINARY) -> Drawn:
    shapes = draw(
        st.lists(st.sampled_from([(), (3,), (2, 3), (2, 1), (4, 2, 3)]), min_size=1, max_size=3)
    )
    found = Drawn(shapes, draw(st.sampled_from(dtypes)))
    values = [mx.zeros(shape, getattr(mx, found.dtype)) for shape in shapes]
    for number in range(draw(st.integers(1, 20))):
        pick = st.integers(0, len(values) - 1)
        kind = draw(st.sampled_from(["unary", "binary", "sum", "max", "shape", "softmax", "join"]))
        inputs, attributes = [draw(pick)], {}
        given = values[inputs[0]]
        if kind == "unary" or not given.ndim:
            op = draw(st.sampled_from(unary))
        elif kind == "binary":
            op = draw(st.sampled_from(binary))
            same = [at for at, each in enumerate(values) if fits(each.shape, given.shape)]
            inputs.append(draw(st.sampled_from(same)))
        elif kind in ("sum", "max"):
            op = kind
            attributes["axis"] = draw(st.integers(-given.ndim, given.ndim - 1))
            attributes["keepdims"] = draw(st.booleans())
        elif kind == "softmax":
            op = kind
            attributes["axis"] = draw(st.integers(-given.ndim, given.ndim - 1))
        elif kind == "shape":
            op = "transpose"
            attributes["axes"] = draw(st.permutations(range(given.ndim)))
        else:
            op = "concatenate"
            inputs = inputs * draw(st.integers(1, 3))
            attributes["axis"] = draw(st.integers(0, given.ndim - 1))
        found.steps.append((op, inputs, attributes))
        name = [f"in{at}" if at < len(shapes) else f"v{at - len(shapes)}" for at in inputs]
        found.nodes.append(node(f"v{number}", op, *name, **attributes))
        values = [*values, found.plain(*values[: len(shapes)])[-1]]
    return found


def require_same(found: Drawn, results: list[mx.array], wanted: list[mx.array]) -> None:
    """Check for mlx's bits. Sums of a transposed float32 array may be added up in another order."""
    if found.dtype == "float32" and any(op == "transpose" for op, *_ in found.steps):
        for result, exact in zip(results, wanted, strict=True):
            assert result.shape == exact.shape
            assert mx.allclose(result, exact, rtol=1e-4, atol=1e-4, equal_nan=True)
    else:
        assert [bits(result) for result in results] == [bits(each) for each in wanted]


def fits(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def arrays_of(found: Drawn, seed: int) -> list[mx.array]:
    keys = mx.random.split(mx.random.key(seed), len(found.shapes))
    return [
        mx.random.normal(shape, key=key).astype(getattr(mx, found.dtype))
        for shape, key in zip(found.shapes, keys, strict=True)
    ]


FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(drawn(), st.integers(0, 2**32))
def test_a_program_gives_the_bits_of_plain_mlx(found, seed):
    names = [each["name"] for each in found.nodes]
    program = found.program(names)
    for number in range(2):  # the second run finds what the first has traced
        arrays = arrays_of(found, seed + number)
        wanted = found.plain(*arrays)
        run = program.run(arrays)
        for spec, each in zip(run.specs, wanted, strict=True):
            assert (spec.shape, getattr(mx, spec.dtype)) == (tuple(each.shape), each.dtype)
        results = run.finish()
        require_same(found, results, wanted)


@FEW
@given(drawn(("float32", "float64"), SMOOTH, BINARY), st.integers(0, 2**32))
def test_gradients_have_the_bits_of_mlx_s(found, seed):
    last = found.nodes[-1]["name"]
    program = found.program(["loss", last], [node("loss", "sum", last)])
    used = used_inputs(found)
    arrays = arrays_of(found, seed)
    gradient = derive(
        program,
        gradient={"of": "loss", "with_respect_to": [f"in{at}" for at in used], "value": True},
    )

    def loss(*arrays):
        return found.plain(*arrays)[-1].sum()

    value, gradients = mx.value_and_grad(loss, argnums=used)(*arrays)
    wanted = [value, *(gradients if len(used) > 1 else [gradients])]
    for _ in range(2):
        results = gradient.run(arrays).finish()
        require_same(found, results, wanted)


@FEW
@given(drawn(("float32",), SMOOTH, BINARY), st.integers(0, 2**32))
def test_rows_have_the_bits_of_mlx_s_vmap_of_gradients(found, seed):
    last = found.nodes[-1]["name"]
    program = found.program(["loss"], [node("loss", "sum", last)])
    used = used_inputs(found)
    inputs = [f"in{at}" for at in range(len(found.shapes))]
    wide = Drawn([(5, *shape) for shape in found.shapes], found.dtype)
    arrays = arrays_of(wide, seed)
    gradient = derive(program, gradient={"of": "loss", "with_respect_to": [f"in{used[0]}"]})
    rows = derive(gradient, vectorize=dict.fromkeys(inputs, 0))

    def loss(*arrays):
        return found.plain(*arrays)[-1].sum()

    wanted = mx.vmap(mx.grad(loss, argnums=used[0]))(*arrays)
    assert bits(rows.run(arrays).finish()[0]) == bits(wanted)


def used_inputs(found: Drawn) -> list[int]:
    """The inputs that the last value depends on."""
    count = len(found.shapes)
    needed = {count + len(found.steps) - 1}
    for at in reversed(range(len(found.steps))):
        if count + at in needed:
            needed.update(found.steps[at][1])
    return sorted(each for each in needed if each < count)
