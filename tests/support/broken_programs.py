"""Programs that are broken in places, and values that are no programs, for Hypothesis."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from support.programs import graph, node, value

SEED = graph(
    [value("x", ["n", 3]), value("i", ["n"], "int32"), value("p", [], "bool")],
    [
        node("m", "matmul", "x", "w"),
        node("r", "reshape", "m", shape=["n", 3]),
        node("t", "take", "r", "i", axis=0, indices="clamp"),
        node("c", "cond", "p", "t", then="f", **{"else": "g"}),
        node("l", "while", "c", condition="low", body="g", max_iterations=9),
        node(["h", "hs"], "scan", "row", "l", body="step", carries=1),
        node(["a", "b"], "split", "hs", indices_or_sections=2, axis=0),
        node("s", "sum", "h", axis=[0], keepdims=False),
    ],
    ["s", "hs"],
    parameters=[{**value("w", [3, 3]), "init": "orthogonal"}],
    constants=[{"name": "row", "dtype": "float32", "value": [1, 2.5, "inf"]}],
    functions=[
        graph([value("x", ["n", 3])], [node("y", "sin", "x")], ["y"], name="f"),
        graph([value("x", ["n", 3])], [node("y", "add", "x", "x")], ["y"], name="g"),
        graph(
            [value("x", ["n", 3])],
            [node("s", "sum", "x"), node("y", "less", "s", "k")],
            ["y"],
            name="low",
            constants=[{"name": "k", "dtype": "float32", "value": 50}],
        ),
        graph(
            [value("h", [3]), value("e", [3])],
            [node("y", "maximum", "h", "e")],
            ["y", "e"],
            name="step",
        ),
    ],
)
SEED["nodes"].pop(6)  # split of n rows by 2 cannot be proved

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([2**31, -(2**63), 2**64, 10**30, 0.5, 1e308, -0.0])
    | st.sampled_from(
        ["x", "n", "m", "h", "f", "g", "float32", "int64", "2*n+1", "n//2", "", "nan"]
    )
    | st.sampled_from(["scan", "cond", "while", "call", "add", "reshape", "einsum", "svd", "pad"])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    found, waiting = [], [value]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here))
        for key in keys:
            found.append((here, key))
            if isinstance(here[key], dict | list):
                waiting.append(here[key])
    return found


@st.composite
def broken(draw) -> str:
    """The seed with a few places changed, left out or moved."""
    program = copy.deepcopy(SEED)
    for _ in range(draw(st.integers(1, 4))):
        here, key = draw(st.sampled_from(places(program)))
        kind = draw(st.sampled_from(["change", "drop", "copy"]))
        if kind == "change":
            here[key] = draw(VALUES)
        elif kind == "drop":
            del here[key]
        else:
            other, its = draw(st.sampled_from(places(program)))
            here[key] = copy.deepcopy(other[its])
    return json.dumps(program)
