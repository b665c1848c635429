"""Broken programs and derivations end in one clear error, or run: nothing else comes out."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.broken_programs import SEED, VALUES, broken

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.programs.operations.rules import mlx_dtype
from cowmlx.programs.program import Program

FINDS = sorted((Path(__file__).parent / "finds").glob("*.json"))


def tried(text: str | bytes) -> None:
    """Make, ask, derive and run a program: all of it works, or is refused in words."""
    try:
        program = Program.parse(text)
        program.info()
        dimensions = dict.fromkeys(program.info()["dimensions"], 2)
        program.info(dimensions)
        small = sum(each["run"]["intermediate_bytes"] for each in [program.info(dimensions)])
    except InvalidArgument as error:
        refused(error)
        return
    for step in (
        {"gradient": {"of": "s", "with_respect_to": ["x", "w"], "value": True}},
        {"vectorize": {"x": 0}},
    ):
        try:
            program.derive(json.dumps(step))
        except (InvalidArgument, Unsupported) as error:
            refused(error)
    if small > 1 << 24 or len(program.inputs) > 100:
        return
    try:
        arrays = [
            mx.zeros(
                [each if isinstance(each, int) else 2 for each in entry["shape"]],
                mlx_dtype(entry["dtype"]),
            )
            for kind in ("inputs", "parameters")
            for entry in program.info()[kind]
            if all(not isinstance(each, int) or each < 1 << 12 for each in entry["shape"])
        ]
        steps = program.run(arrays).steps()
        for _ in range(50):
            next(steps)
        steps.close()
    except StopIteration:
        pass
    except (InvalidArgument, Unsupported) as error:
        refused(error)


def refused(error: InvalidArgument | Unsupported) -> None:
    assert 10 < len(str(error)) < 10_000
    assert error.reason
    assert all(isinstance(detail, str | int | float | bool) for detail in error.details.values())


def test_the_seed_is_right():
    program = Program.parse(json.dumps(SEED))
    arrays = [mx.ones((4, 3)), mx.zeros(4, mx.int32), mx.array(True), mx.eye(3)]
    assert program.run(arrays).finish()[0].item() == float("inf")


@given(broken())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_broken_programs(text):
    tried(text)


@given(st.binary(max_size=64) | VALUES.map(json.dumps).map(str.encode))
@example(b"\xef\xbb\xbf{}")
@example(b'{"outputs": ["\\ud800"]}')
@settings(max_examples=200, deadline=None)
def test_texts_of_all_kinds(text):
    tried(text)


@given(
    VALUES
    | st.fixed_dictionaries(
        {},
        optional={
            "gradient": VALUES,
            "vectorize": VALUES,
            "bind": VALUES,
            "dimension": VALUES,
        },
    )
)
@settings(max_examples=300, deadline=None)
def test_derivations_of_all_kinds(spec):
    try:
        Program.parse(json.dumps(SEED)).derive(json.dumps(spec))
    except (InvalidArgument, Unsupported) as error:
        refused(error)


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)
def test_what_was_found_before(path):
    tried(path.read_bytes())
