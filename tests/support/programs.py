"""Programs as tests write them: short ways to their JSON, and to the bits of arrays."""

from __future__ import annotations

import json
from typing import Any

import mlx.core as mx

from cowmlx.programs.program import Program


def value(name: str, shape: list[int | str], dtype: str = "float32") -> dict[str, Any]:
    """An input or a parameter."""
    return {"name": name, "dtype": dtype, "shape": shape}


def node(name: str | list[str], op: str, *inputs: str | None, **attributes: Any) -> dict[str, Any]:
    """A node; a list of names for several results."""
    names = {"name": name} if isinstance(name, str) else {"outputs": name}
    return {**names, "op": op, "inputs": list(inputs), "attributes": attributes}


def graph(
    inputs: list[dict[str, Any]], nodes: list[dict[str, Any]], outputs: list[str], **more: Any
) -> dict[str, Any]:
    """A program, or with ``name`` a function."""
    return {"inputs": inputs, "nodes": nodes, "outputs": outputs, **more}


def endless() -> dict[str, Any]:
    """A loop that does not end before it is cancelled."""
    state = [value("x", [])]
    return graph(
        state,
        [node("y", "while", "x", condition="always", body="step", max_iterations=2**31 - 1)],
        ["y"],
        functions=[
            graph(state, [node("p", "greater_equal", "x", "x")], ["p"], name="always"),
            graph(state, [node("r", "multiply", "x", "x")], ["r"], name="step"),
        ],
    )


def parse(program: dict[str, Any]) -> Program:
    return Program.parse(json.dumps(program))


def derive(program: Program, arrays: dict[str, mx.array] | None = None, **spec: Any) -> Program:
    return program.derive(json.dumps(spec), arrays)


def bits(array: mx.array) -> tuple[Any, ...]:
    """What two arrays share if they are the same, NaNs and zeros' signs included."""
    array = mx.contiguous(array)
    mx.eval(array)
    return tuple(array.shape), array.dtype, bytes(memoryview(array.reshape(-1).view(mx.uint8)))
