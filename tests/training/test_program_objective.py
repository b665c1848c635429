"""A program as an objective: what it keeps, and its hash."""

from __future__ import annotations

import json

import mlx.core as mx
import pytest
from support.programs import graph, node, value
from support.trainings import data, network

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
