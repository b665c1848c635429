"""Cases of one operation, drawn from a seed: inputs, attributes, and what is done with them."""

from __future__ import annotations

import copy
import random
from typing import Any

from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import _parts
from cowmlx.programs.operations.row import (
    REQUIRED,
    Attribute,
    Example,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import DTYPES, FLOATS, INTEGERS

Case = dict[str, Any]
EXTREMES = (0, -1, 1, 2, 3, -2, 7, 2**31 - 1, -(2**31), 65536, 65535, 2**24, 2**31, 2**63 - 1)
SIDES = (0, 1, 1, 2, 3, 4, 5, 7, 16, 17, 33)
KINDS = ("range", "range", "range", "normal", "ties", "special", "zeros")
# Sums of products: their order, which kernels choose, decides whether large terms overflow.
SUMS = (
    "matmul", "inner", "vecdot", "addmm", "tensordot", "einsum", "gather_mm", "linear",
    "scaled_dot_product_attention", "quantized_matmul", "gather_qmm", "convolve",
)  # fmt: skip
TRIES = 40
MOST = 1 << 16  # elements of an input


class Draw:
    """Draws from one seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0

    def operation(self, names: list[str] | None = None) -> Case:
        """A case of one operation; most of them are accepted."""
        rows = [row for row in ROWS if names is None or row.name in names]
        row = self.random.choice(rows)
        case: Case = {}
        refused = self.one_in(12)
        for _ in range(TRIES):
            case = self._attempt(row)
            if accepted(row, case) != refused:
                break
        case["checks"] = self._checks(row, case)
        return case

    def _attempt(self, row: Operation) -> Case:
        example = self.random.choice(row.examples)
        convolution = row.name.startswith("conv") and row.name != "convolve"
        if convolution and not self.one_in(5):
            inputs, attributes = self._convolution(row)
        else:
            inputs = self._inputs(row, example)
            attributes = self._attributes(row, example)
        return {
            "kind": "operation",
            "operation": row.name,
            "inputs": inputs,
            "attributes": attributes,
        }

    # Inputs.

    def _inputs(self, row: Operation, example: Example) -> list[dict[str, Any] | None]:
        texts = list(example.inputs)
        if row.variadic and self.one_in(2) and row.name != "einsum":
            texts = [self.random.choice(texts) for _ in range(self.random.randint(1, 4))]
        places = [row.inputs[min(at, len(row.inputs) - 1)] for at in range(len(texts))]
        texts = [
            None if place.optional and self.one_in(6) else text
            for place, text in zip(places, texts, strict=True)
        ]
        renamed = self._renamed(texts)
        floats = self.random.choice(FLOATS)
        kind = self.random.choice(KINDS)
        if kind == "special" and row.name in SUMS:
            kind = "infinite"
        return [
            None if text is None else self._input(text, renamed, floats, kind) for text in texts
        ]

    def _renamed(self, texts: list[str | None]) -> dict[int, int]:
        """Other sizes for those of an example: equal ones stay equal."""
        sizes = {side for text in texts if text is not None for side in _parts(text)[1]}
        style = self.random.randrange(6)
        if style == 0:
            return {}
        if style == 1:
            return {side: self.random.choice((0, 1, side)) for side in sizes}
        unequal = self.random.sample((2, 3, 4, 5, 6, 7, 8, 9), min(len(sizes), 8))
        if style == 2:
            return dict(zip(sorted(sizes), unequal, strict=False))
        return {
            side: self.random.choice(SIDES) if self.one_in(2) else side for side in sorted(sizes)
        }

    def _input(self, text: str, renamed: dict[int, int], floats: str, kind: str) -> dict[str, Any]:
        written, shape, words, low, high = _parts(text)
        shape = tuple(renamed.get(side, side) for side in shape)
        dtype = written
        if written == "float32":
            dtype = floats
            if self.one_in(10):
                dtype = self.random.choice(DTYPES)
        elif written in INTEGERS and self.one_in(3):
            dtype = self.random.choice(INTEGERS)
        elif self.one_in(10):
            dtype = self.random.choice(DTYPES)
        style = self.random.randrange(14)
        if style == 0 and shape:  # broadcast
            shape = tuple(1 if self.one_in(2) else side for side in shape)
        elif style == 1:
            shape = shape[1:]
        elif style == 2 and len(shape) < 6:
            shape = (self.random.choice((0, 1, 2, 3)), *shape)
        elif style == 3 and self.one_in(2):
            shape = tuple(self.random.choice(SIDES) for _ in range(self.random.randint(0, 4)))
        if dtype not in (*FLOATS, "complex64"):
            kind = "range" if not self.one_in(8) else self.random.choice(("bits", "special"))
            if "bits" in words:
                kind = "bits"
        values: dict[str, Any] = {"kind": kind, "seed": self.random.randrange(2**31)}
        if low is not None:
            values.update(low=low, high=high)
        elif dtype in INTEGERS or written in INTEGERS:
            low, high = self.random.choice(((0, 4), (0, 0), (-1, 0), (0, 1), (-2, 1), (-5, 5)))
            values.update(low=low, high=high)
        if words:
            values["words"] = list(words)
        return {
            "dtype": dtype,
            "shape": list(shape),
            "values": values,
            "layout": self._layout(len(shape)),
        }

    def _layout(self, rank: int) -> dict[str, Any] | None:
        if rank == 0 or self.one_in(2):
            return None
        order = list(range(rank))
        if self.one_in(2):
            self.random.shuffle(order)
        found: dict[str, Any] = {
            "order": order,
            "steps": [self.random.choice((1, 1, 2, 3, -1, -2)) for _ in range(rank)],
        }
        if self.one_in(3):
            found["odd"] = self.random.choice((0, -1, 7, 12345, -999, 2**40))
        return found

    # Attributes.

    def _attributes(self, row: Operation, example: Example) -> dict[str, Any]:
        found = copy.deepcopy(dict(example.attributes))
        for attribute in row.attributes:
            if not self.one_in(3):
                continue
            if attribute.default is not REQUIRED and self.one_in(4):
                found.pop(attribute.name, None)
                continue
            found[attribute.name] = self._attribute(attribute, found.get(attribute.name))
        return found

    def _number(self, attribute: Attribute, usual: tuple[int, ...] = (0, 1, 2, 3, 4)) -> int:
        if self.one_in(5):
            bounds = [
                int(bound) + more
                for bound in (attribute.low, attribute.high)
                if bound is not None
                for more in (-1, 0, 1)
            ]
            return self.random.choice((*EXTREMES, *bounds))
        return self.random.choice(usual)

    def _attribute(self, attribute: Attribute, given: Any) -> Any:
        kind, one_of = attribute.kind, self.random.choice
        if attribute.takes_null and self.one_in(6):
            return None
        if kind == "bool":
            return self.one_in(2)
        if kind == "choice":
            return one_of(attribute.choices)
        if kind == "dtype":
            return one_of(DTYPES)
        if kind == "text":
            return given if given is not None and not self.one_in(10) else one_of(("", "ij->ji"))
        if kind in ("float", "number"):
            usual = (0.0, 1.0, -1.0, 0.5, 2.0, 1e-9, -0.5, 3)
            odd = ("nan", "inf", "-inf", 1e30, -1e30, 2**31, 1e-45, 2**63 - 1)
            return one_of(odd if self.one_in(6) else usual)
        if kind == "int":
            return self._number(attribute)
        if kind == "axis" or (kind == "axis or axes" and self.one_in(2)):
            return self._number(attribute, (0, 1, 2, -1, -2, -3))
        if kind in ("axes", "axis or axes"):
            return self.random.sample((0, 1, 2, 3, -1, -2), self.random.randint(0, 3))
        if kind == "shape":
            if isinstance(given, list) and self.one_in(2):
                return [one_of((0, 1, -1, side)) for side in given]
            sides = (0, 1, 2, 3, 4, 6, 12, 24, 100)
            if self.one_in(10):
                sides = (-1, 0, 1, 65536, 2**31 - 1)
            return [one_of(sides) for _ in range(self.random.randint(0, 4))]
        if kind == "pairs" and not self.one_in(3):
            count = len(given) if isinstance(given, list) else self.random.randint(1, 3)
            return [[self._number(attribute), self._number(attribute)] for _ in range(count)]
        if kind == "ints" or (kind == "int or ints" and self.one_in(2)):
            count = len(given) if isinstance(given, list) else self.random.randint(0, 3)
            return [self._number(attribute, (0, 1, 2, 3, -1)) for _ in range(count)]
        return self._number(attribute)

    def _convolution(self, row: Operation) -> tuple[list[dict[str, Any] | None], dict[str, Any]]:
        """Inputs and attributes that a convolution takes, unless they are extreme."""
        one_of = self.random.choice
        axes = one_of((1, 2, 3)) if row.name == "conv_general" else int(row.name[-2])
        groups = one_of((1, 1, 1, 2, 3))
        share, made = one_of((1, 2, 3)), one_of((1, 2, 3))
        most = {1: (0, 1, 2, 5, 8, 31), 2: (0, 1, 3, 4, 7), 3: (1, 2, 3, 4)}[axes]
        kernel = [one_of((1, 2, 3)) for _ in range(axes)]
        shapes = (
            (one_of((0, 1, 2, 3)), *(one_of(most) for _ in range(axes)), share * groups),
            (made * groups, *kernel, share),
        )
        attributes: dict[str, Any] = {"groups": groups} if groups > 1 else {}
        usual = {"padding": (0, 0, 1, 2), "output_padding": (0, 0, 0, 1, 2)}
        for attribute in row.attributes:
            if attribute.name == "groups" or self.one_in(2):
                continue
            if attribute.kind == "bool":
                attributes[attribute.name] = self.one_in(2)
                continue
            near = usual.get(attribute.name, (1, 1, 2, 3))
            if self.one_in(2):
                attributes[attribute.name] = self._number(attribute, near)
            elif attribute.kind == "pairs":
                attributes[attribute.name] = [[one_of(near), one_of(near)] for _ in range(axes)]
            else:
                attributes[attribute.name] = [one_of(near) for _ in range(axes)]
        floats, kind = one_of(FLOATS), one_of(("range", "range", "normal"))
        described = [
            {
                "dtype": floats,
                "shape": list(shape),
                "values": {"kind": kind, "seed": self.random.randrange(2**31)},
                "layout": self._layout(len(shape)),
            }
            for shape in shapes
        ]
        return list(described), attributes

    # What is done with it.

    def _checks(self, row: Operation, case: Case) -> list[dict[str, Any]]:
        there = [at for at, each in enumerate(case["inputs"]) if each is not None]
        checks: list[dict[str, Any]] = [
            {"check": "eager"},
            {
                "check": "program",
                # Squeeze takes an axis with a name for a long one.
                "symbolic": self.one_in(3) and row.name != "squeeze",
                "submit": self.one_in(3),
                "check_finite": self.one_in(4),
                "host": self.one_in(2),
                "bind": self.random.randrange(8) if self.one_in(4) else None,
            },
        ]
        if there and not self.one_in(4):
            checks.append({"check": "vectorized", "levels": self._levels(case, there)})
        if row.differentiable and not self.one_in(3):
            inputs = [
                at
                for at in there
                if row.inputs[min(at, len(row.inputs) - 1)].name in row.differentiable
            ]
            inputs = [at for at in inputs if len(inputs) == 1 or not self.one_in(3)] or inputs
            if self.one_in(2):  # where slopes can be compared
                for at in there:
                    described = case["inputs"][at]
                    if described["dtype"] in FLOATS:
                        described["dtype"] = "float64"
                        if described["values"]["kind"] in ("special", "infinite", "ties", "zeros"):
                            described["values"]["kind"] = "range"
            check: dict[str, Any] = {"check": "gradient", "inputs": inputs}
            check["second"] = self.one_in(3)
            if self.one_in(2):
                check["levels"] = self._levels(case, there)[:1]
            checks.append(check)
        return checks

    def _levels(self, case: Case, there: list[int]) -> list[dict[str, Any]]:
        """Which inputs have rows along which axis; a second time now and then."""
        levels = []
        for level in range(2 if self.one_in(6) else 1):
            chosen = [at for at in there if self.one_in(2)] or [self.random.choice(there)]
            axes = {
                str(at): self.random.randint(0, len(case["inputs"][at]["shape"]) + level)
                for at in chosen
            }
            levels.append({"axes": axes, "rows": self.random.choice((0, 1, 2, 3, 5))})
        return levels


def specs(case: Case) -> list[Spec | None]:
    return [
        None if each is None else Spec(tuple(each["shape"]), each["dtype"])
        for each in case["inputs"]
    ]


def accepted(row: Operation, case: Case) -> bool:
    """Whether the table takes the inputs and attributes, and they are small."""
    given = specs(case)
    if any(_size(each.shape) > MOST for each in given if each is not None):
        return False
    try:
        found = row.infer(row.arranged(given), attributes_of(row, case["attributes"]))
    except OperationError:
        return False
    return all(_size(each.shape) <= MOST * 4 for each in found)


def _size(shape: Any) -> int:
    found = 1
    for side in shape:
        if not isinstance(side, int):
            return 0
        found *= side
    return found
