"""Vectorized operations to compare with their rows, made of the examples of the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of, spec_of
from cowmlx.programs.operations.row import Operation, OperationError, Spec
from cowmlx.programs.operations.rules import FLOATS
from cowmlx.programs.program import Program
from support.programs import derive, graph, node, parse, value

Texts = tuple[str | None, ...]
"""The inputs of an example."""
ROWS = (11, 13, 17)
"""How many rows there are where there are several: more than any dimension."""


@dataclass(frozen=True)
class Case:
    """One vectorization.

    Args:
        row: the operation.
        texts: its inputs, as examples have them.
        attributes: its attributes.
        axes: where the rows of inputs are, by their places; others have none.
        rows: how many there are.
        with_respect_to: the place of the input of a gradient that is vectorized; None: the
            operation is.
        dtype: of the inputs that are float32 in the example.
    """

    row: Operation
    texts: Texts
    attributes: dict[str, Any]
    axes: dict[int, int]
    rows: int
    with_respect_to: int | None = None
    dtype: str = "float32"

    @property
    def specs(self) -> list[Spec | None]:
        """The inputs of a row."""
        return [None if text is None else self._spec(text) for text in self.texts]

    def _spec(self, text: str) -> Spec:
        spec = spec_of(text)
        return Spec(spec.shape, self.dtype if spec.dtype == "float32" else spec.dtype)

    def program(self) -> Program:
        """The operation, or the gradient of a sum of its results."""
        names = [None if text is None else f"x{at}" for at, text in enumerate(self.texts)]
        inputs = [
            value(f"x{at}", list(spec.shape), spec.dtype)
            for at, spec in enumerate(self.specs)
            if spec is not None
        ]
        results = self.results()
        outputs = [f"y{at}" for at in range(len(results))]
        nodes = [node(outputs, self.row.name, *names, **self.attributes)]
        if self.with_respect_to is None:
            return parse(graph(inputs, nodes, outputs))
        for at, name in enumerate(outputs):
            if results[at].dtype in FLOATS:
                # Of a sum the cotangent has no rows, of a sum of squares it has.
                op = ("square", "negative")[self.rows % 2]
                nodes += [
                    node(f"{name}/each", op, name),
                    node(f"{name}/sum", "sum", f"{name}/each"),
                    node(f"{name}/loss", "astype", f"{name}/sum", dtype="float64"),
                ]
        losses = [each["name"] for each in nodes if each.get("name", "").endswith("/loss")]
        nodes.append(node("stacked", "stack", *losses))
        nodes.append(node("loss", "sum", "stacked"))
        gradient = {"of": "loss", "with_respect_to": [f"x{self.with_respect_to}"]}
        return derive(parse(graph(inputs, nodes, ["loss"])), gradient=gradient)

    def results(self) -> list[Spec]:
        """What the operation gives for a row."""
        attributes = attributes_of(self.row, self.attributes)
        return self.row.infer(self.row.arranged(self.specs), attributes)

    def check(self) -> None:
        """Assert that the vectorized program gives what its rows give one by one."""
        program = self.program()
        vectorized = derive(program, vectorize={f"x{at}": axis for at, axis in self.axes.items()})
        there = [at for at, text in enumerate(self.texts) if text is not None]
        single = [self._inputs(there, number) for number in range(max(self.rows, 1))]
        together = [
            self._stacked(at, [given[place] for given in single]) if at in self.axes else one
            for place, (at, one) in enumerate(zip(there, single[0], strict=True))
        ]
        found = vectorized.run(together).finish()
        alone = [
            program.run(
                [
                    each if at in self.axes else one
                    for at, each, one in zip(there, given, single[0], strict=True)
                ]
            ).finish()
            for given in single
        ]
        assert len(found) == len(alone[0])
        for one, *wanted in zip(found, *alone, strict=True):
            assert one.shape == (self.rows, *wanted[0].shape)
            assert one.dtype == wanted[0].dtype
            if self.rows:
                self._compare(_numbers(one), _numbers(mx.stack(wanted)))

    def _inputs(self, there: list[int], number: int) -> list[mx.array]:
        return [
            array_of(text, 100 * number + at, spec.dtype)
            for at in there
            if (text := self.texts[at]) is not None and (spec := self.specs[at]) is not None
        ]

    def _stacked(self, at: int, arrays: list[mx.array]) -> mx.array:
        found = mx.stack(arrays, axis=self.axes[at])
        if not self.rows:
            found = mx.take(found, mx.zeros(0, mx.int32), axis=self.axes[at])
        mx.eval(found)
        return found

    def _compare(self, found: np.ndarray, wanted: np.ndarray) -> None:
        if found.dtype.kind in "biu":
            np.testing.assert_array_equal(found, wanted)
            return
        finite = np.abs(wanted[np.isfinite(wanted)])
        size = finite.max(initial=1.0)
        close = 1e-2 if self.dtype in ("float16", "bfloat16") else 2e-4
        np.testing.assert_allclose(found, wanted, rtol=close, atol=close * size)


def _numbers(array: mx.array) -> np.ndarray:
    return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)


def shapes_of(row: Operation, random: Random) -> Iterator[tuple[Texts, dict[str, Any]]]:
    """The examples of an operation in other shapes.

    No two dimensions of an example are equal but for those that have to be. Behind each follow
    those that have a dimension of 0.
    """
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        texts = _spread(row, example.inputs, attributes, random)
        yield texts, example.attributes
        for empty in _emptied(row, texts, attributes):
            yield empty, example.attributes


def _spread(row: Operation, texts: Texts, attributes: dict[str, Any], random: Random) -> Texts:
    shapes = _shapes(texts)
    places = [(at, axis) for at, shape in shapes.items() for axis in range(len(shape))]
    random.shuffle(places)
    for at, axis in places:
        taken = [side for shape in shapes.values() for side in shape]
        side = shapes[at][axis]
        if side < 2 or taken.count(side) == 1:
            continue
        for other in range(side + 1, side + 6):
            wider = {**shapes, at: [*shapes[at][:axis], other, *shapes[at][axis + 1 :]]}
            if other not in taken and _accepts(row, _with(texts, wider), attributes):
                shapes = wider
                break
    return _with(texts, shapes)


def _emptied(row: Operation, texts: Texts, attributes: dict[str, Any]) -> list[Texts]:
    shapes = _shapes(texts)
    sides = sorted({side for shape in shapes.values() for side in shape if side})
    found = []
    for side in sides:
        emptied = {
            at: [0 if each == side else each for each in shape] for at, shape in shapes.items()
        }
        for each in (emptied, *({**shapes, at: shape} for at, shape in emptied.items())):
            changed = _with(texts, each)
            if changed not in (texts, *found) and _accepts(row, changed, attributes):
                found.append(changed)
    return found


def _shapes(texts: Texts) -> dict[int, list[int]]:
    shapes = {at: list(spec_of(text).shape) for at, text in enumerate(texts) if text is not None}
    return {at: [int(side) for side in shape] for at, shape in shapes.items()}  # type: ignore


def _with(texts: Texts, shapes: dict[int, list[int]]) -> Texts:
    return tuple(
        None if text is None else re.sub(r"\[.*?\]", str(shapes[at]).replace(" ", ""), text)
        for at, text in enumerate(texts)
    )


def _accepts(row: Operation, texts: Texts, attributes: dict[str, Any]) -> bool:
    try:
        specs = [None if text is None else spec_of(text) for text in texts]
        row.infer(row.arranged(specs), attributes)
        for text in texts:
            if text is not None:
                array_of(text)
    except (OperationError, ValueError):  # ValueError: not so many distinct values
        return False
    return True


def cases(row: Operation, random: Random, gradients: bool = False) -> Iterator[Case]:
    """Vectorizations of an operation, or of its gradients.

    Every subset of inputs, every axis, no row, one, and several; of float64 one of each subset.
    """
    for texts, attributes in shapes_of(row, random):
        there = [at for at, text in enumerate(texts) if text is not None]
        plain = Case(row, texts, attributes, {}, 0)
        if not plain.results():
            continue
        places: list[int | None] = [None]
        if gradients:
            has_loss = any(spec.dtype in FLOATS for spec in plain.results())
            places = [
                at
                for at in there
                if has_loss
                and row.inputs[min(at, len(row.inputs) - 1)].name in row.differentiable
                and spec_of(texts[at] or "").dtype in FLOATS
            ]
        for place, subset in product(places, _subsets(there)):
            ranks = [len(spec_of(texts[at] or "").shape) for at in subset]
            every = list(product(*(range(rank + 1) for rank in ranks)))
            for axes in random.sample(every, min(len(every), 24)):
                where = dict(zip(subset, axes, strict=True))
                for rows in (0, 1, random.choice(ROWS)):
                    yield Case(row, texts, attributes, where, rows, place)
            wide = Case(row, texts, attributes, where, random.choice(ROWS), place, "float64")
            if any("float32" in (text or "") for text in texts) and _takes(wide):
                yield wide


def _subsets(places: list[int]) -> Iterator[tuple[int, ...]]:
    """All but the empty one; of many places each alone, and all."""
    sizes = range(1, len(places) + 1) if len(places) < 5 else (1, len(places))
    return chain.from_iterable(combinations(places, size) for size in sizes)


def _takes(case: Case) -> bool:
    try:
        case.results()
    except OperationError:
        return False
    return True
