"""Every operation gives for rows what it gives for each of them, whichever inputs have rows.

The cases are made of the examples of the table, so a new operation is tested by itself. All of them
take half an hour; this sample is the same in every run.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support.programs import derive, graph, node, parse, value
from support.vectorized import Case, cases

from cowmlx.programs.failure import ProgramError
from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.row import Operation

WITH_INPUTS = [row for row in ROWS if row.inputs]
DIFFERENTIABLE = [row for row in WITH_INPUTS if row.differentiable]


def drawn(row: Operation, gradients: bool, most: int) -> list[Case]:
    """Cases of an operation: each set of inputs with rows is there if so many are wanted."""
    random = Random(row.name)
    kinds: dict[object, list[Case]] = {}
    for case in cases(row, random, gradients):
        kinds.setdefault((case.rows and min(case.rows, 2), *case.axes), []).append(case)
    # Several rows before one and none.
    order = sorted(kinds, key=lambda kind: (-kind[0], random.random()))
    for each in kinds.values():
        random.shuffle(each)
    found: list[Case] = []
    while len(found) < most and any(kinds.values()):
        found += [kinds[kind].pop() for kind in order if kinds[kind]]
    return found[:most]


@pytest.mark.parametrize("row", WITH_INPUTS, ids=lambda row: row.name)
def test_rows_are_those_of_the_operation(row):
    for case in drawn(row, False, 6):
        case.check()


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_rows_of_gradients_are_gradients_of_rows(row):
    for case in drawn(row, True, 3):
        case.check()


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_place_among_all_has_its_rows_wherever_they_are(name):
    """With mlx 0.32.4 alone, rows that come last stay there."""
    row, attributes = find(name), {"axis": None, "keepdims": True}

    def places(array: mx.array) -> mx.array:
        return row.compute([array], attributes)[0]

    x = mx.random.normal((5, 1, 3, 11), key=mx.random.key(0))
    for axis in range(4):
        found: Any = mx.vmap(places, in_axes=axis)(mx.moveaxis(x, 3, axis))
        alone = mx.stack([places(x[..., at]) for at in range(11)])
        assert found.tolist() == alone.tolist()


SMOOTH = [row for row in DIFFERENTIABLE if not row.attributes and len(row.inputs) <= 2]
ODD = [0.0, -0.0, 1.25, -1.25, 0.5, 40.0, -40.0, 800.0, -800.0, 1e300, math.inf, math.nan]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.name)
def test_rows_of_gradients_at_odd_numbers(row, dtype):
    """A function may have a custom gradient, which mlx's vmap would lose."""
    names = [f"x{at}" for at in range(len(row.inputs))]
    nodes = [node("y", row.name, *names), node("r", "real", "y"), node("s", "sum", "r")]
    try:
        program = parse(graph([value(name, [], dtype) for name in names], nodes, ["s"]))
    except ProgramError:  # of matrices and such
        return
    gradient = derive(program, gradient={"of": "s", "with_respect_to": names})
    rows = derive(gradient, vectorize=dict.fromkeys(names, 0))
    arrays = [mx.array(ODD[at:] + ODD[:at], dtype=getattr(mx, dtype)) for at in range(len(names))]
    found = rows.run(list(arrays)).finish()
    alone = [gradient.run([array[at] for array in arrays]).finish() for at in range(len(ODD))]
    for one, other in zip(found, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(np.array(one), np.array(mx.stack(other)), rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("row", WITH_INPUTS, ids=lambda row: row.name)
def test_more_rows_are_those_of_the_operation(row):
    for case in drawn(row, False, 30):
        case.check()


@pytest.mark.long
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_more_rows_of_gradients_are_gradients_of_rows(row):
    for case in drawn(row, True, 20):
        case.check()
