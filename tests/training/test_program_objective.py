"""A program as an objective: what it keeps, and its hash."""

from __future__ import annotations

import json
from itertools import pairwise

import mlx.core as mx
import pytest
from support.programs import bits, graph, node, value
from support.trainings import data, network

from cowmlx.accelerate import kernels
from cowmlx.programs import traced
from cowmlx.programs.program import Program
from cowmlx.steps import finished
from cowmlx.training.array_data import Rows
from cowmlx.training.program_objective import ProgramObjective
from cowmlx.training.training import Settings, Training

WIDE = 2048


def parsed(program) -> Program:
    return Program.parse(json.dumps(program))


@pytest.mark.parametrize("turns", [1, 2])
def test_a_step_that_is_broken_off_leaves_nothing(turns):
    """The graph of a micro-batch may have more bytes than all parameters."""
    objective = ProgramObjective(parsed(network()), {}, 0)
    training = Training(objective, Settings('{"name": "sgd", "learning_rate": 0.1}'))
    batch = [mx.array(each) for each in data()]
    steps = training.advance(Rows([batch] * 3))
    for _ in range(turns):
        mx.eval(next(steps))
    assert objective.flags()
    steps.close()
    assert objective.flags() == []


def steps_of(training: Training, batch: list[mx.array], count: int) -> list[int]:
    """Make steps, and return how many turns each took."""
    taken = []
    for _ in range(count):
        steps = training.advance(Rows([batch] * 2))
        taken.append(1)
        while (waiting := next(steps, steps)) is not steps:
            mx.eval(waiting or [])
            taken[-1] += 1
    return taken


def test_steps_that_compute_in_turns_give_the_same_bits(monkeypatch):
    layers = [f"v{at}" for at in range(9)]
    nodes = [
        node(after, "gelu" if at % 2 else "multiply", before, *([] if at % 2 else ["w"]))
        for at, (before, after) in enumerate(pairwise(layers))
    ]
    nodes.append(node("loss", "mean", layers[-1]))
    softened = graph([value("v0", ["rows", 5])], nodes, ["loss"], parameters=[value("w", [5])])
    given = {"w": mx.arange(5.0)}
    batch = [mx.random.normal((6, 5), key=mx.random.key(0))]
    mx.eval(batch, given)
    found = []
    for in_turns in (False, True):
        if in_turns:
            monkeypatch.setattr(traced.Traced, "is_one_turn", property(lambda self: False))
            monkeypatch.setattr(traced, "TURN", 0)
        objective = ProgramObjective(parsed(softened), given, 0)
        training = Training(objective, Settings('{"name": "adam", "learning_rate": 0.1}'))
        taken = steps_of(training, batch, 3)
        assert not in_turns or not kernels.available() or min(taken[1:]) > 10
        if in_turns:
            before = objective.parameters()
            steps = training.advance(Rows([batch]))
            next(steps)
            steps.close()
            assert training.step == 3 and objective.parameters() == before
            assert min(steps_of(training, batch, 1)) > (10 if kernels.available() else 0)
        else:
            steps_of(training, batch, 1)
        found.append({name: bits(one) for name, one in objective.parameters().items()})
    assert found[0] == found[1]


def test_a_hash_of_large_parameters_is_made_in_steps():
    program = graph(
        [value("x", ["rows", WIDE])],
        [node("h", "matmul", "x", "frozen"), node("y", "multiply", "h", "w"),
         node("loss", "mean", "y")],
        ["loss"],
        parameters=[{**value("frozen", [WIDE, WIDE]), "init": "zeros"},
                    {**value("w", [WIDE]), "init": "ones"}],
    )  # fmt: skip

    def steps(**given):
        return ProgramObjective.steps(parsed(program), given, 0, ["w"])

    turns = sum(1 for _ in steps())
    assert turns >= 4  # of 16 MiB
    plain = ProgramObjective(parsed(program), {}, 0, ["w"]).fingerprint()
    assert finished(steps()).fingerprint() == plain
    other = mx.zeros((WIDE, WIDE)).at[WIDE - 1, WIDE - 1].add(1.0)
    assert finished(steps(frozen=other)).fingerprint() != plain
