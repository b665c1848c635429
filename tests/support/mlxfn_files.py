"""Files of exported functions, written here: primitives that mlx exports on a GPU alone."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from cowmlx.programs.importing import load_steps
from cowmlx.programs.importing.mlxfn_file import DTYPES, SIZES
from cowmlx.programs.program import Program
from cowmlx.steps import finished

_NUMBERS = {"f": "f", "d": "d", "i": "i", "N": "Q", "b": "B"}
_LISTS = {"I": "i", "L": "q", "Z": "Q"}


def load(path: object, fixed: str | None = None) -> Program:
    """The program of a file."""
    return finished(load_steps(str(path), fixed))


def run(program: Program, *inputs: mx.array) -> list[mx.array]:
    """A program's results; parameters with values take these."""
    given = iter(inputs)
    return program.run(
        [next(given) if each.value is None else each.value for each in program.inputs]
    ).finish()


def name_of(array: mx.array) -> str:
    """The name of an array's dtype."""
    return str(array.dtype).removeprefix("mlx.core.")


def _list(code: str, values: Sequence[Any]) -> bytes:
    return struct.pack(f"<Q{len(values)}{code}", len(values), *values)


def _dtype(name: str) -> bytes:
    number = DTYPES.index(name)
    return struct.pack("<iB", number, SIZES[number])


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _state(codes: str, values: Sequence[Any]) -> bytes:
    parts = []
    for code, value in zip(codes, values, strict=True):
        if code in _NUMBERS:
            parts.append(struct.pack(f"<{_NUMBERS[code]}", value))
        elif code in _LISTS:
            parts.append(_list(_LISTS[code], value))
        else:
            parts.append(_dtype(value) if code == "t" else _text(value))
    return b"".join(parts)


def write(
    path: Path,
    inputs: Sequence[mx.array],
    name: str,
    codes: str,
    state: Sequence[Any],
    shape: Sequence[int],
    constants: Sequence[mx.array] = (),
) -> None:
    """Write a function with one primitive, whose result is float32.

    Args:
        path: the file.
        inputs: of the function and of the primitive.
        name: the primitive.
        codes: of the parts of its state.
        state: these parts.
        shape: of the result.
        constants: further inputs of the primitive.
    """
    numbers = [*range(1, len(inputs) + len(constants) + 1)]
    ours, fixed = numbers[: len(inputs)], numbers[len(inputs) :]
    parts = [_text("0.32.4"), struct.pack("<i?", 1, False), _text(""), _list("Q", [])]
    parts += [_list("Q", ours), struct.pack("<Q", len(inputs))]
    parts += [_list("i", array.shape) + _dtype(name_of(array)) for array in inputs]
    parts += [_list("Q", [99]), struct.pack("<Q", len(numbers) + 1)]
    parts += [struct.pack("<QBB", number, 0, 0) for number in ours]
    for number, array in zip(fixed, constants, strict=True):
        parts.append(struct.pack("<QBB", number, 0, 1))
        parts.append(_list("i", array.shape) + _dtype(name_of(array)))
        parts.append(np.array(array).tobytes())
    parts += [struct.pack("<QB", 99, 1), _list("Q", numbers), struct.pack("<3i", 0, 0, 0)]
    parts += [_text(name), _state(codes, state), struct.pack("<Q", 0)]
    parts += [_list("i", shape), _dtype("float32")]
    path.write_bytes(b"".join(parts))
