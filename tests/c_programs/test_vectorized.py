"""Vectorized programs through C: no rows, rows without elements."""

from __future__ import annotations

import numpy as np
import pytest
from support.programs import graph, node, value

from cowmlx.programs.operations import FAMILIES
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import spec_of
from cowmlx.programs.operations.row import Example, Operation


def programs_of(row: Operation, example: Example) -> tuple[dict, list[np.ndarray], list]:
    """A program of one operation, its inputs for no rows, and the specs of its results."""
    specs = [None if text is None else spec_of(text) for text in example.inputs]
    names = [None if spec is None else f"x{at}" for at, spec in enumerate(specs)]
    found = row.infer(row.arranged(specs), attributes_of(row, example.attributes))
    results = [f"y{at}" for at in range(len(found))]
    inputs = [
        value(f"x{at}", list(spec.shape), spec.dtype)
        for at, spec in enumerate(specs)
        if spec is not None
    ]
    nodes = [node(results, row.name, *names, **example.attributes)]
    given = [np.zeros((0, *spec.shape), spec.dtype) for spec in specs if spec is not None]
    return graph(inputs, nodes, results), given, found


@pytest.mark.parametrize("family", FAMILIES)
def test_no_rows_give_nothing(programs, arrays, family):
    """Of the right shapes and dtypes, whether the number of rows is known before or not."""
    rows = [row for row in FAMILIES[family] if row.inputs]
    for number, row in enumerate(rows):
        program, given, specs = programs_of(row, row.examples[0])
        one = programs.create(program)
        names = {each["name"]: 0 for each in program["inputs"]}
        known = {"dimension": 0} if number % 2 else {}
        many = programs.derive(one, vectorize=names, **known)
        for handle, spec in zip(programs.run(many, given, len(specs)), specs, strict=True):
            assert arrays.type(handle) == (spec.dtype, (0, *spec.shape))
            arrays.free(handle)
        programs.free(many)
        programs.free(one)


def test_no_rows_of_rows_and_of_gradients(programs, arrays):
    x = value("x", [3])
    one = programs.create(graph([x], [node("y", "square", "x"), node("s", "sum", "y")], ["s"]))
    slope = programs.derive(one, gradient={"of": "s", "with_respect_to": ["x"], "value": True})
    rows = programs.derive(slope, vectorize={"x": 1})
    many = programs.derive(rows, vectorize={"x": 0})
    for program, shape in ((rows, (3, 0)), (many, (2, 3, 0)), (many, (0, 3, 2))):
        outer = (*shape[:-2], shape[-1])
        handles = programs.run(program, [np.zeros(shape, np.float32)], 2)
        assert [arrays.type(each)[1] for each in handles] == [outer, (*outer, 3)]
        for handle in handles:
            arrays.free(handle)
    for program in (one, slope, rows, many):
        programs.free(program)


@pytest.mark.parametrize("axes", [{"x": 0}, {"x": 1}, {"y": 0}, {"x": 0, "y": 0}, {"x": 1, "y": 0}])
@pytest.mark.parametrize("op", ["allclose", "array_equal"])
def test_rows_without_elements_are_close(programs, op, axes):
    second = [0] if op == "array_equal" else []
    one = programs.create(
        graph([value("x", [0]), value("y", second)], [node("z", op, "x", "y")], ["z"])
    )
    many = programs.derive(one, vectorize=axes)
    x = np.zeros(([0], [2, 0], [0, 2])[axes.get("x", -1) + 1], np.float32)
    y = np.zeros([2, *second] if "y" in axes else second, np.float32)
    for _ in range(5):  # what lay in memory beside them decided
        z = np.zeros(2, bool)
        programs.run(many, [x, y], [z])
        assert z.tolist() == [True, True]
    programs.free(one)
    programs.free(many)


REDUCED = {"sum": 0, "prod": 1, "all": True, "any": False, "count_nonzero": 0}


@pytest.mark.parametrize("op", REDUCED)
def test_nothing_is_reduced_to_nothing_in_any_layout(programs, arrays, op):
    """Also transposed, applied at once or in a program: no foreign memory is read."""
    x = arrays.create(np.ones((0, 4, 4), np.float32))
    (turned,) = arrays.apply("transpose", x, axes=[1, 2, 0])
    (result,) = arrays.apply(op, turned, axis=[1, 2])
    assert arrays.read(result).tolist() == [REDUCED[op]] * 4
    program = programs.create(
        graph(
            [value("x", [0, 4, 4])],
            [
                node("turned", "transpose", "x", axes=[1, 2, 0]),
                node("y", op, "turned", axis=[1, 2]),
            ],
            ["y"],
        )
    )
    (found,) = programs.run(program, [x])
    assert arrays.read(found).tolist() == [REDUCED[op]] * 4
    for handle in (x, turned, result, found):
        arrays.free(handle)
    programs.free(program)
