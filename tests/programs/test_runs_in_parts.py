"""Runs of kernels alone take turns, and give what they give at once."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest
from support.kernel_module import needed
from support.programs import bits, graph, node, value

from cowmlx.errors import CowMlxError
from cowmlx.programs import traced
from cowmlx.programs.program import Program

needed()
STEPS = 12


def network():
    """Layers, a table of rows that integers choose, and a mean."""
    nodes = [node("v0", "embedding", "table", "ids")]
    for at in range(STEPS):
        nodes += [
            node(f"m{at}", "multiply", f"v{at}", "w"),
            node(f"v{at + 1}", "gelu", f"m{at}"),
        ]
    nodes.append(node("loss", "mean", f"v{STEPS}"))
    inputs = [value("ids", ["n"], "int32")]
    parameters = [value("table", [9, 16]), value("w", [16])]
    return json.dumps(graph(inputs, nodes, ["loss"], parameters=parameters))


def given():
    arrays = [
        mx.array([1, 5, 8, 0, 5] * 8, mx.int32),
        mx.random.normal((9, 16), key=mx.random.key(0)),
        mx.random.normal((16,), key=mx.random.key(1)),
    ]
    mx.eval(arrays)
    return arrays


@pytest.fixture
def long(monkeypatch):
    """Every run is too long for one turn, and every turn is long enough at once."""
    monkeypatch.setattr(traced.Traced, "is_one_turn", property(lambda self: False))
    monkeypatch.setattr(traced, "TURN", 0)


def program(derivation):
    made = Program.parse(network())
    return made if derivation is None else made.derive(json.dumps(derivation))


GRADIENT = {"gradient": {"of": "loss", "with_respect_to": ["table", "w"], "value": True}}


def turns(run):
    """The results of a run, and how many turns it took."""
    steps, count = run.steps(), 1
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


@pytest.mark.parametrize("derivation", [None, GRADIENT], ids=["loss", "gradient"])
def test_turns_give_the_bits_of_one(derivation, monkeypatch):
    made = program(derivation)
    made.run(given()).finish()
    wanted = made.run(given()).finish()
    monkeypatch.setattr(traced.Traced, "is_one_turn", property(lambda self: False))
    monkeypatch.setattr(traced, "TURN", 0)
    found, count = turns(made.run(given()))
    assert count > STEPS // 2
    assert [bits(one) for one in found] == [bits(one) for one in wanted]


def test_an_operation_that_takes_too_long_is_left_to_mlx(long, monkeypatch):
    made = program(None)
    turns(made.run(given()))
    assert turns(made.run(given()))[1] > STEPS // 2
    monkeypatch.setattr(traced, "SHORT_KERNEL_WORK", 100)
    assert turns(made.run(given()))[1] == 1


def test_an_index_out_of_range_is_an_error_after_the_turns(long):
    made = program(GRADIENT)
    made.run(given()).finish()
    arrays = given()
    arrays[0] = mx.array([1, 5, 9, 0, 5] * 8, mx.int32)
    mx.eval(arrays)
    with pytest.raises(CowMlxError, match="9"):
        made.run(arrays).finish()
