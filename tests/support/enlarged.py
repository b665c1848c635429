"""Examples of the table with larger shapes, and the memory that mlx takes for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of, spec_of
from cowmlx.programs.operations.row import Attributes, Example, Operation, OperationError, Spec
from cowmlx.programs.operations.rules import mlx_dtype
from cowmlx.programs.running.tracing import compute

FIXED = ("key",)
"""Inputs that have one shape alone."""


def enlarged(
    row: Operation, example: Example, elements: int, most: int
) -> Iterator[tuple[list[Spec | None], Attributes]]:
    """Yield inputs of an example with some sizes multiplied, and its attributes.

    Sizes that are equal in the example stay equal. What the operation refuses is left out.

    Args:
        row: the operation.
        example: one of its examples.
        elements: how many its inputs and results have at most, in all, if sizes are multiplied.
        most: how many are yielded; the first have most sizes multiplied, and the last are the
            example's own.
    """
    specs = [None if text is None else spec_of(text) for text in example.inputs]
    names = [row.inputs[min(at, len(row.inputs) - 1)].name for at in range(len(specs))]
    free = [
        each.shape
        for name, each in zip(names, specs, strict=True)
        if each is not None and name not in FIXED
    ]
    shapes = [attribute for attribute in row.attributes if attribute.kind == "shape"]
    free += [tuple(example.attributes.get(each.name, ())) for each in shapes]
    sizes = sorted({size for shape in free for size in shape if size > 0})
    yielded = 0
    for count in range(len(sizes), -1, -1):
        for chosen in combinations(sizes, count):
            found = None
            for factor in (2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 1 << 14, 1 << 16, 1 << 18):
                larger = {size: size * factor for size in chosen}
                given = [
                    each
                    if each is None or name in FIXED
                    else Spec(tuple(larger.get(size, size) for size in each.shape), each.dtype)
                    for name, each in zip(names, specs, strict=True)
                ]
                attributes = dict(example.attributes)
                for each in shapes:
                    if each.name in attributes:
                        value = attributes[each.name]
                        attributes[each.name] = [larger.get(size, size) for size in value]
                try:
                    whole = attributes_of(row, attributes)
                    results = row.infer(row.arranged(given), whole)
                except OperationError:
                    continue
                parts = [*(each for each in given if each is not None), *results]
                if chosen and sum(math.prod(part.shape) for part in parts) > elements:
                    break
                found = given, whole
            if found is not None and (yielded < most - 1 or count == 0):
                yielded += 1
                yield found


def filled(row: Operation, example: Example, specs: list[Spec | None]) -> list[mx.array | None]:
    """Return arrays of shapes with the elements of an example's inputs, again and again."""
    found: list[mx.array | None] = []
    for text, spec in zip(example.inputs, specs, strict=True):
        if text is None or spec is None:
            found.append(None)
            continue
        array = array_of(text).reshape(-1)
        count = math.prod(spec.shape)
        shape: Any = spec.shape
        if array.size == 0:
            found.append(mx.zeros(shape, mlx_dtype(spec.dtype)))
            continue
        times = -(-count // array.size)
        found.append(mx.contiguous(mx.tile(array, times)[:count].reshape(shape)))
    mx.eval([each for each in found if each is not None])
    return row.arranged(found)


def peak_of(
    row: Operation, arrays: list[mx.array | None], attributes: Attributes, results: list[Spec]
) -> int:
    """Return the bytes that mlx has at most for an operation, beside its inputs."""
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    checks = [] if row.checks is None else row.checks(list(arrays), attributes)
    found = compute(row, list(arrays), attributes, results)
    mx.eval([check.found for check in checks])
    mx.eval(found)
    mx.synchronize()
    return mx.get_peak_memory() - before
