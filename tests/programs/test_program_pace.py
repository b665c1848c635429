"""Checking, deriving, describing and tracing large programs takes many turns, none of them long."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest
from support.programs import graph, node, value

from cowmlx.programs import bounds
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.program import Program

NODES = 300


def chain(count: int) -> str:
    """A program of so many nodes, and their last one's sum."""
    nodes = [node(f"v{at + 1}", "sin", f"v{at}") for at in range(count)]
    nodes.append(node("s", "sum", f"v{count}"))
    return json.dumps(graph([value("v0", ["n"])], nodes, ["s"]))


@pytest.fixture
def hurried(monkeypatch):
    """Every turn is long enough at once."""
    monkeypatch.setattr(bounds, "TURN", 0)


def turns(steps) -> tuple[object, int]:
    """The result, and how many turns it took."""
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, count
        count += 1


def test_every_node_may_end_a_turn(hurried):
    program, count = turns(Program.parse_steps(chain(NODES)))
    assert count > 3 * NODES  # read, put in order, given their shapes
    spec = '{"gradient": {"of": "s", "with_respect_to": ["v0"]}}'
    derived, count = turns(program.derive_steps(spec))
    assert count > 2 * NODES  # what depends on what, and a rehearsal
    x = [mx.ones((3,))]
    for each in (program, derived):
        assert each.prepared(x, False) is None
        assert turns(each.prepare(x, False))[1] > NODES
        assert each.prepared(x, False) is not None
        assert turns(each.info_steps({"n": 3}))[1] > 2 * NODES
    assert program.run(x).finish()[0].shape == ()


def test_a_prepared_program_is_prepared_for_such_inputs_alone():
    program = Program.parse(chain(3))
    turns(program.prepare([mx.ones((3,))], False))
    assert program.prepared([mx.zeros((3,))], False) is not None
    assert program.prepared([mx.zeros((4,))], False) is None
    assert program.prepared([mx.zeros((3,))], True) is None


def test_many_wrong_names_are_told_of_at_once():
    """Names like them are looked for a few times only."""
    nodes = [node(f"v{at}", "sin", f"none{at}") for at in range(bounds.MAX_NODES - 1)]
    with pytest.raises(ProgramError, match="and 49991 more") as caught:
        Program.parse(json.dumps(graph([value("x", [])], nodes, ["v0"])))
    assert caught.value.reason == "missing"


def test_a_constant_is_bounded():
    def text(count: int) -> str:
        constant = {"name": "c", "dtype": "float32", "value": [[1] * count] * 2}
        return json.dumps(graph([], [], ["c"], constants=[constant]))

    Program.parse(text(bounds.MAX_CONSTANT // 2))
    with pytest.raises(ProgramError, match="pass large arrays as inputs") as caught:
        Program.parse(text(bounds.MAX_CONSTANT // 2 + 1))
    assert caught.value.reason == "limit_exceeded"
