"""Operations that take long for their number of elements are not waited for in one turn."""

from __future__ import annotations

import mlx.core as mx
import pytest
from support.programs import graph, node, parse, value

from cowmlx.steps import finished

OPERATIONS = {
    **{
        name: {}
        for name in ["inv", "pinv", "cholesky", "det", "eigvals", "eigvalsh", "sort", "argsort"]
    },
    "topk": {"k": 3},
    "partition": {"kth": 3},
    "argpartition": {"kth": 3},
    "svd": {"compute_uv": False},
    "fft": {},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_only_small_ones_are_one_turn(name):
    for side, expected in ((8, True), (2000, False)):
        program = parse(
            graph([value("x", [side, side])], [node("y", name, "x", **OPERATIONS[name])], ["y"])
        )
        prepared = finished(program.prepare([mx.zeros((side, side))], False))
        assert prepared.is_one_turn is expected
