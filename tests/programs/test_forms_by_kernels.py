"""Attention, softmax, norms and convolutions by kernels against the same program in float64.

The table computes float64 by mlx's plain operations, so each form of an operation has another way
beside it: run, vectorized over every set of inputs, differentiated, and both.
"""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support.programs import derive, graph, node, parse, value

from cowmlx.programs.program import Program

ATTENTION = "scaled_dot_product_attention"
CASES: list[tuple[str, list[list[int]], dict[str, Any]]] = [
    ("softmax", [[3, 17]], {"axis": -1}),
    ("softmax", [[2, 1, 5]], {"axis": 2}),
    ("softmax", [[3, 5]], {"axis": 0}),
    ("softmax", [[3, 5]], {}),
    ("softmax", [[33]], {}),
    ("layer_norm", [[2, 3, 17], [17], [17]], {}),
    ("layer_norm", [[5]], {"eps": 1e-3}),
    ("layer_norm", [[1, 1], [1], [1]], {}),
    ("rms_norm", [[3, 17], [17]], {}),
    ("rms_norm", [[2, 1, 64]], {}),
    (ATTENTION, [[2, 2, 3, 5], [2, 2, 7, 5], [2, 2, 7, 3]], {}),
    (ATTENTION, [[1, 4, 3, 8], [1, 2, 3, 8], [1, 2, 3, 8]], {"causal": True}),
    (ATTENTION, [[1, 1, 5, 4], [1, 1, 3, 4], [1, 1, 3, 4]], {"causal": True}),
    (ATTENTION, [[2, 2, 3, 4], [2, 2, 5, 4], [2, 2, 5, 6], [3, 5]], {"scale": 0.5}),
    (ATTENTION, [[1, 2, 2, 3], [1, 1, 4, 3], [1, 1, 4, 2], []], {}),
    (ATTENTION, [[1, 2, 2, 3], [1, 1, 4, 3], [1, 1, 4, 2], [4]], {}),
    (ATTENTION, [[1, 2, 2, 3], [1, 1, 4, 3], [1, 1, 4, 2], [2, 1, 1]], {}),
    (ATTENTION, [[1, 2, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]], {}),
]
CONVOLUTIONS: list[tuple[str, list[list[int]], dict[str, Any]]] = [
    ("conv1d", [[2, 9, 3], [4, 3, 3]], {"stride": 2, "padding": 1}),
    ("conv1d", [[1, 10, 2], [17, 2, 2]], {"dilation": 3, "padding": 4}),
    ("conv2d", [[2, 6, 5, 3], [5, 3, 2, 3]], {"padding": 1}),
    ("conv2d", [[1, 7, 8, 1], [4, 3, 3, 1]], {"stride": [2, 3]}),
    ("conv2d", [[2, 4, 4, 4], [4, 3, 3, 1]], {"groups": 4, "padding": 1}),
    ("conv3d", [[1, 3, 4, 3, 2], [3, 2, 2, 1, 2]], {"stride": 2, "padding": 1}),
    ("conv_transpose2d", [[2, 3, 4, 3], [4, 3, 2, 3]], {"stride": 2, "padding": 1}),
    ("conv_general", [[2, 7, 3], [2, 3, 3]], {"padding": [[3, 0]], "stride": 2}),
    ("conv_general", [[2, 7, 3], [2, 3, 3]], {"padding": [[1, 2]], "flip": True}),
]
BOUNDS = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def program_of(op: str, shapes: list[list[int]], attributes: dict[str, Any], dtype: str) -> Program:
    names = [f"x{at}" for at in range(len(shapes))]
    nodes = [node("y", op, *names, **attributes), node("q", "square", "y"), node("s", "sum", "q")]
    inputs = [value(name, shape, dtype) for name, shape in zip(names, shapes, strict=True)]
    return parse(graph(inputs, nodes, ["y", "s"]))


def numbers(shapes: list[list[int]], dtype: str, seed: int = 0) -> list[mx.array]:
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    return [
        mx.random.normal(shape, key=key).astype(getattr(mx, dtype))
        for shape, key in zip(shapes, keys, strict=True)
    ]


def agrees(program: Program, exact: Program, given: list[mx.array], dtype: str) -> None:
    found = program.run(list(given)).finish()
    wide = [array.astype(mx.float64) for array in given]
    for one, other in zip(found, exact.run(wide).finish(), strict=True):
        assert one.shape == other.shape
        assert one.dtype == getattr(mx, dtype)
        wanted = np.array(other)
        size = max(1.0, float(np.nanmax(abs(np.where(np.isinf(wanted), 0, wanted)), initial=0)))
        bound = BOUNDS[dtype] * size
        np.testing.assert_allclose(np.array(one.astype(mx.float64)), wanted, rtol=0, atol=bound)


def both(case: Any, dtype: str, *specs: dict[str, Any]) -> list[Program]:
    found = [program_of(*case, kind) for kind in (dtype, "float64")]
    for spec in specs:
        found = [derive(program, **spec) for program in found]
    return found


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("case", [*CASES, *CONVOLUTIONS], ids=str)
def test_a_run_and_a_gradient_are_those_of_float64(case, dtype):
    shapes = case[1]
    names = [f"x{at}" for at in range(len(shapes))]
    slopes = {"gradient": {"of": "s", "with_respect_to": names}}
    for specs in ((), (slopes,)):
        agrees(*both(case, dtype, *specs), numbers(shapes, dtype), dtype)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("case", [*CASES, *CONVOLUTIONS], ids=str)
def test_rows_of_every_set_of_inputs_are_those_of_float64(case, rows):
    shapes = case[1]
    names = [f"x{at}" for at in range(len(shapes))]
    slopes = {"gradient": {"of": "s", "with_respect_to": names}}
    for count in range(1, len(names) + 1):
        for chosen in itertools.combinations(range(len(names)), count):
            place = {names[at]: len(shapes[at]) if at == chosen[0] else 0 for at in chosen}
            given = [[*shape] for shape in shapes]
            for at in chosen:
                given[at].insert(place[names[at]], rows)
            for specs in (({"vectorize": place},), (slopes, {"vectorize": place})):
                programs = both(case, "float32", *specs)
                agrees(*programs, numbers(given, "float32", count), "float32")


@pytest.mark.parametrize("case", CASES[:-1], ids=str)
def test_numbers_that_are_not_finite_spread_as_in_float64(case):
    programs = both(case, "float32")
    for odd in (np.nan, np.inf, -np.inf):
        given = numbers(case[1], "float32")
        changed = np.array(given[0])
        changed.reshape(-1)[1 % changed.size] = odd
        found, wanted = (
            np.array(program.run([mx.array(changed).astype(kind), *rest]).finish()[0])
            for program, kind, rest in zip(
                programs,
                (mx.float32, mx.float64),
                (given[1:], [array.astype(mx.float64) for array in given[1:]]),
                strict=True,
            )
        )
        assert (np.isnan(found) == np.isnan(wanted)).all()


TWICE = [
    (ATTENTION, [[1, 2, 3, 4]] * 3, {}),
    (ATTENTION, [[1, 2, 3, 4]] * 3, {"causal": True}),
    ("softmax", [[3, 7]], {"axis": -1}),
    *CONVOLUTIONS,
]


@pytest.mark.parametrize("case", TWICE, ids=str)
def test_a_slope_of_slopes_is_that_of_float64(case):
    names = [f"x{at}" for at in range(len(case[1]))]
    for of in names[:2]:
        first = {"gradient": {"of": "s", "with_respect_to": names}}
        along = {"of": f"s/{of}", "with_respect_to": names, "along": "v"}
        programs = both(case, "float32", first, {"gradient": along})
        shape = case[1][names.index(of)]
        agrees(*programs, numbers([*case[1], shape], "float32"), "float32")


def masked(kind: str, mask: Any) -> np.ndarray:
    shapes: Any = [[1, 1, 2, 4], [1, 1, 3, 4], [1, 1, 3, 2]]
    names = ["x0", "x1", "x2"]
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    inputs.append(value("m", [2, 3], kind))
    program = parse(graph(inputs, [node("y", ATTENTION, *names, "m")], ["y"]))
    return np.array(program.run([*numbers(shapes, "float32"), mask]).finish()[0])


def test_a_query_that_sees_nothing_has_what_mlx_gives():
    """The mean of the values where a mask of bool says so; nan where scores are -infinity."""
    values = np.array(numbers([[1, 1, 2, 4], [1, 1, 3, 4], [1, 1, 3, 2]], "float32")[2])
    seen = mx.array([[False] * 3, [True, False, True]])
    found = masked("bool", seen)
    np.testing.assert_allclose(found[0, 0, 0], values[0, 0].mean(axis=0), atol=1e-6)
    added = masked("float32", mx.where(seen, 0.0, -mx.inf))
    assert np.isnan(added[0, 0, 0]).all()
    np.testing.assert_allclose(added[0, 0, 1], found[0, 0, 1], atol=1e-6)


@pytest.mark.parametrize("shape", [[], [5], [1], [3, 1], [3, 5], [4, 1, 5], [2, 4, 3, 5]], ids=str)
def test_a_mask_of_bool_is_that_of_float64(shape):
    """Queries that see nothing have no gradient by q and k."""
    sides = {"q": [2, 4, 3, 8], "k": [2, 2, 5, 8], "v": [2, 2, 5, 6]}
    slopes = {"gradient": {"of": "s", "with_respect_to": list(sides)}}
    nodes = [node("y", ATTENTION, *sides, "m"), node("t", "square", "y"), node("s", "sum", "t")]

    def made(dtype, *specs):
        inputs = [value(name, side, dtype) for name, side in sides.items()]
        program = parse(graph([*inputs, value("m", shape, "bool")], nodes, ["y", "s"]))
        for spec in specs:
            program = derive(program, **spec)
        return program

    rng = np.random.default_rng(len(shape))
    for seed, rows in enumerate(({}, {"m": 0}, {"q": 1, "m": len(shape)}, {"k": 0})):
        given = [
            [*side[: rows[name]], 3, *side[rows[name] :]] if name in rows else side
            for name, side in [*sides.items(), ("m", shape)]
        ]
        arrays = numbers(given[:3], "float32", seed)
        seen = mx.array(rng.random(given[3]) < (0.6 if seed % 2 else 0.1))
        wide = [array.astype(mx.float64) for array in arrays]
        for specs in ((), (slopes,)):
            derived = (*specs, {"vectorize": rows}) if rows else specs
            found = made("float32", *derived).run([*arrays, seen]).finish()
            wanted = made("float64", *derived).run([*wide, seen]).finish()
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.array(one), np.array(other), rtol=2e-5, atol=2e-4)


def test_keys_that_a_mask_of_bool_hides_may_hold_anything():
    shapes = [[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 5, 6]]
    arrays = numbers(shapes, "float32")
    inputs = [value(name, shape) for name, shape in zip("qkv", shapes, strict=True)]
    inputs.append(value("m", [5], "bool"))
    program = parse(graph(inputs, [node("y", ATTENTION, *"qkv", "m")], ["y"]))
    mask = mx.array([True, True, False, True, False])
    (wanted,) = program.run([*arrays, mask]).finish()
    for odd in (np.nan, np.inf, -np.inf):
        keys = np.array(arrays[1])
        keys[:, :, [2, 4]] = odd
        (found,) = program.run([arrays[0], mx.array(keys), arrays[2], mask]).finish()
        np.testing.assert_array_equal(np.array(found), np.array(wanted))
