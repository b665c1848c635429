"""Arrays for the examples of rows, as their texts say; which examples take float64.

A text is a dtype with a shape, then words: a range of values (``0..4``, else -2..2 and 0 to 4 for
integers), ``sorted``, ``distinct``, ``bits`` (any bits), and of matrices ``regular``, ``definite``,
``lower`` or ``upper``.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import Example, Operation, OperationError, Spec
from cowmlx.programs.operations.rules import INTEGERS, UNSIGNED, mlx_dtype

_TEXT = re.compile(r"(\w+)\[([\d,]*)\]((?: \w+)*)(?: (-?[\d.]+)\.\.(-?[\d.]+))?")


def spec_of(text: str) -> Spec:
    """Return the dtype and shape that a text says."""
    dtype, shape, *_ = _parts(text)
    return Spec(shape, dtype)


def specs_of(example: Example) -> list[Spec | None]:
    """Return the specs of an example's inputs."""
    return [None if text is None else spec_of(text) for text in example.inputs]


def array_of(text: str, seed: int = 0, dtype: str | None = None) -> mx.array:
    """Return an array as a text says.

    Args:
        text: see the module.
        seed: the same gives the same.
        dtype: another one than the text's.
    """
    written, shape, words, low, high = _parts(text)
    generator = random.Random(f"{text} {seed}")
    count = math.prod(shape)
    dtype = dtype or written
    if written in INTEGERS:
        low, high = (0, 4) if low is None or high is None else (low, high)
        low = 0 if dtype in UNSIGNED and low < 0 else low
        places = range(int(low), int(high) + 1)
        if "bits" in words:
            values: list[Any] = [generator.getrandbits(32) for _ in range(count)]
        elif "distinct" in words:
            values = generator.sample(places, count)
        else:
            values = [generator.choice(places) for _ in range(count)]
    elif written == "bool":
        values = [generator.random() < 0.5 for _ in range(count)]
    else:
        low, high = (-2.0, 2.0) if low is None or high is None else (low, high)
        values = _numbers(generator, count, low, high)
        if written == "complex64":
            pairs = zip(values, _numbers(generator, count, low, high), strict=True)
            values = [complex(*pair) for pair in pairs]
    if "sorted" in words:
        values.sort()
    if {"regular", "definite", "lower", "upper"} & set(words):
        values = _matrices(values, shape[-1], words)
    return mx.array(values, dtype=_first(values, dtype)).astype(mlx_dtype(dtype)).reshape(shape)


def arrays_of(example: Example, seed: int = 0) -> list[mx.array | None]:
    """Return arrays for an example's inputs, different ones for texts that are the same."""
    return [
        None if text is None else array_of(text, 100 * seed + at)
        for at, text in enumerate(example.inputs)
    ]


def _first(values: list[Any], dtype: str) -> mx.Dtype:
    """The dtype in which values lose nothing on their way."""
    if any(isinstance(value, complex) for value in values):
        return mx.complex64
    if any(isinstance(value, float) for value in values):
        return mx.float64
    return mx.int64 if values and not isinstance(values[0], bool) else mlx_dtype(dtype)


def _numbers(generator: random.Random, count: int, low: float, high: float) -> list[float]:
    """Numbers that differ by enough for a gradient to see no tie, in a random order."""
    step = (high - low) / max(count, 1)
    values = [low + (at + 0.25 + 0.5 * generator.random()) * step for at in range(count)]
    generator.shuffle(values)
    return values


def _matrices(values: list[float], size: int, words: tuple[str, ...]) -> list[float]:
    """Make each matrix regular, and of the form that words say."""
    numbers: list[float] = []
    for at in range(0, len(values), size * size):
        rows = [values[at + size * row :][:size] for row in range(size)]
        if "definite" in words:
            rows = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]
        for row in range(size):
            rows[row][row] += 3 if rows[row][row] >= 0 else -3
            for column in range(size):
                hidden = column > row if "lower" in words else column < row
                if ("lower" in words or "upper" in words) and hidden:
                    rows[row][column] = 0.0
        numbers += [number for row in rows for number in row]
    return numbers


def _parts(text: str) -> tuple[str, tuple[int, ...], tuple[str, ...], float | None, float | None]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no text of an example")
    dtype, shape, words, low, high = match.groups()
    lengths = tuple(int(each) for each in shape.split(",") if each)
    bounds = (None, None) if low is None else (float(low), float(high))
    return dtype, lengths, tuple(words.split()), *bounds


def float64_error(row: Operation) -> float | None:
    """Return the bound of errors with float64, or None for an operation that has no float64.

    It holds for results and their gradients, relative to the largest absolute value of each.
    """
    takes = any(_takes(row, example) for example in row.examples)
    return row.float64_error if takes else None


def _takes(row: Operation, example: Example) -> bool:
    wide = {attribute.name: "float64" for attribute in row.attributes if attribute.kind == "dtype"}
    texts = [
        None if given is None else replace(given, dtype="float64") if _is_float(given) else given
        for given in specs_of(example)
    ]
    if not wide and texts == specs_of(example):
        return False
    given: dict[str, Any] = {**example.attributes, **wide}
    try:
        row.infer(row.arranged(texts), attributes_of(row, given))
    except OperationError:
        return False
    return True


def _is_float(given: Any) -> bool:
    return bool(given.dtype == "float32")
