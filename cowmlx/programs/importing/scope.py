"""Graphs that an importer builds: nodes of the table, with constants and transposes folded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.programs import control
from cowmlx.programs.bounds import MAX_CONSTANT, MAX_NODES, Steps
from cowmlx.programs.dimensions import Dim, Symbolic, count
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.book import Book
from cowmlx.programs.importing.elementwise import ELEMENTWISE
from cowmlx.programs.importing.runtime_sides import value_of
from cowmlx.programs.importing.values import (
    Made,
    Value,
    Weight,
    is_symbolic,
    listed,
    numpy_type,
    to_mlx,
    to_numpy,
    written_attribute,
)
from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import FLOATS
from cowmlx.programs.operations.scratch import scratch_of

INLINED = 1 << 12
"""Elements of an array of integers that is a constant; larger ones are parameters."""
FOLDED = 1 << 16
"""Elements of a constant that is computed at load."""
FOLDED_WORK = 1 << 28
"""Multiply-adds of such a constant."""
FOLDED_SCRATCH = 1 << 26
"""Bytes that such a constant takes on the way."""


class Scope:
    """A program's graph, or a function's, while it is built.

    Args:
        book: what all graphs of the import share.
        parent: the graph whose values it may read; None for the program.
    """

    def __init__(self, book: Book, parent: Scope | None = None) -> None:
        self.book = book
        self.parent = parent
        self.inputs: list[Value] = []
        self.captured: dict[int, tuple[Value, Value]] = {}
        self._nodes: list[dict[str, Any]] = []
        self._constants: dict[str, dict[str, Any]] = {}
        self.needed: set[str] = set()
        self._single: set[str] = set()
        self._results: set[str] = set()
        self._copies: dict[int, tuple[Value, Value]] = {}

    # ---------------------------------------------------------------- values

    def input(self, name: str, spec: Spec) -> Value:
        """Declare an input."""
        value = Value(spec, self, self.book.name(name))
        self.inputs.append(value)
        return value

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """Return a value of known elements: numbers, a numpy array, or dimensions."""
        if not isinstance(array, np.ndarray) or array.dtype == object:
            array = np.asarray(array) if dtype is None else _listed(array, dtype)
        elif dtype is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # which it would print
                array = array.astype(numpy_type(dtype))
        self.book.hold(array.size)
        kind = (dtype or "int64") if array.dtype == object else str(array.dtype)
        return Value(Spec(tuple(array.shape), kind), self, known=array)

    def fixed(self, name: str, spec: Spec, given: Any) -> Value:
        """Return an input whose value is known at load.

        Args:
            name: the input.
            spec: what it takes.
            given: numbers in lists.

        Raises:
            InvalidArgument: these are no numbers for it.
        """
        try:
            array = np.array(given, numpy_type(spec.dtype))
        except (ValueError, TypeError, OverflowError):
            array = None
        if array is None or not _fits(array.shape, spec.shape):
            raise InvalidArgument(
                f"fixed has {shown(given)} for the input {shown(name)}, must be numbers for {spec}",
                reason="wrong_type",
                argument=name,
                accepted=str(spec),
            )
        return self.constant(array)

    def weight(self, weight: Weight) -> Value:
        """Return a parameter, or a constant where no training would change it."""
        spec = weight.spec
        size = count(spec.shape)
        assert isinstance(size, int)
        trainable = spec.dtype in FLOATS and spec.shape and size > 1
        if trainable or size > INLINED:
            return self.parameter(weight)
        return self.constant(weight.read())

    def parameter(self, weight: Weight) -> Value:
        """Return a parameter of the program, which functions take as an input."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return Value(weight.spec, scope, weight=weight)

    def local(self, value: Value) -> Value:
        """Return a value of an outer graph as one of this graph."""
        if value.scope is self:
            return value
        if value.known is not None:
            if id(value) not in self._copies:
                copy = Value(value.spec, self, known=value.known, bits=value.bits)
                self._copies[id(value)] = (value, copy)
            return self._copies[id(value)][1]
        assert self.parent is not None
        outer = self.parent.local(value)
        if id(outer) not in self.captured:
            self.parent.named(outer)
            inner = Value(outer.spec, self, self.book.name(f"{outer.name}"))
            self.captured[id(outer)] = (outer, inner)
        return self.captured[id(outer)][1]

    def known(self, value: Value | None) -> Any:
        """Return the elements of a value as a numpy array; None if they depend on inputs."""
        if value is None:
            return None
        if value.known is not None:
            return value.known
        if value.weight is not None and count(value.shape) <= MAX_CONSTANT:  # type: ignore[operator]
            return value.weight.read()
        return None

    def named(self, value: Value) -> str:
        """Return the name of a value for nodes; adds what computes it, if nothing has yet."""
        value = self.local(value)
        if value.name is None:
            if value.known is not None:
                self._name_known(value)
            elif value.weight is not None:
                self._name_weight(value)
            else:
                assert value.source is not None
                source, axes = value.source
                made = self._node("transpose", [source], {"axes": list(axes)})[0]
                value.name = made.name
        assert value.name is not None
        return value.name

    def _name_known(self, value: Value) -> None:
        if is_symbolic(value.known):
            value.name = self.named(value_of(self, value.known, value.dtype))
            return
        if not value.known.size:  # lists would lose its shape
            attributes = {"shape": list(value.shape), "dtype": value.dtype}
            value.name = self._node("zeros", [], attributes)[0].name
            return
        if value.known.size > MAX_CONSTANT:
            raise Unsupported(
                f"a constant has {value.known.size} elements, must have {MAX_CONSTANT} at most",
                needed=value.known.size,
                limit=MAX_CONSTANT,
            )
        self.book.hold(4 * value.known.size)  # lists take more memory than arrays
        value.name = self.book.name("constant")
        entry = {"name": value.name, "dtype": value.dtype, "value": listed(value.known)}
        self._constants[value.name] = entry

    def _name_weight(self, value: Value) -> None:
        weight = value.weight
        assert weight is not None
        value.name = self.book.name(weight.name)
        self.book.add_parameter(value.name, value.spec, weight)

    # ----------------------------------------------------------------- nodes

    def apply(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        """Return the one result of an operation."""
        return self.several(op, *inputs, **attributes)[0]

    def several(self, op: str, *inputs: Value | None, **attributes: Any) -> list[Value]:
        """Return the results of an operation, computed now if its inputs are known."""
        given = [None if value is None else self.local(value) for value in inputs]
        folded = self._folded(op, given, attributes)
        if folded is not None:
            return folded
        if op in ELEMENTWISE:
            sunk = self._sunk(op, given, attributes)
            if sunk is not None:
                return [sunk]
        return self._node(op, given, attributes)

    def _folded(
        self, op: str, given: Sequence[Value | None], attributes: dict[str, Any]
    ) -> list[Value] | None:
        arrays = [None if value is None else value.known for value in given]
        for value, array in zip(given, arrays, strict=True):
            if value is not None and (array is None or array.dtype == object):
                return None
        row, checked, specs = self._inferred(op, given, attributes)
        sizes = [count(spec.shape) for spec in specs]
        if not all(isinstance(size, int) and size <= FOLDED for size in sizes):
            return None
        operands = row.arranged([None if value is None else value.spec for value in given])
        work = row.multiplications(operands, checked) if row.multiplications else 0
        if work > FOLDED_WORK or scratch_of(row.name, operands, checked, specs) > FOLDED_SCRATCH:
            return None
        if not self.book.may_fold(sum(size for size in sizes if isinstance(size, int))):
            return None
        results = row.compute([None if a is None else to_mlx(a) for a in arrays], checked)
        return [
            Value(spec, self, known=to_numpy(result).reshape(spec.shape))
            for spec, result in zip(specs, results, strict=True)
        ]

    def _inferred(self, op: str, given: Sequence[Value | None], attributes: dict[str, Any]) -> Any:
        row = find(op)
        arranged = row.arranged(list(given))
        checked = attributes_of(row, attributes)
        specs = row.infer([None if value is None else value.spec for value in arranged], checked)
        return row, checked, specs

    def _sunk(
        self, op: str, given: Sequence[Value | None], attributes: dict[str, Any]
    ) -> Value | None:
        """Apply an elementwise operation before the transpose of its inputs, if that is cheaper."""
        axes = next((v.source[1] for v in given if v is not None and v.source is not None), None)
        if axes is None:
            return None
        inner = []
        for value in given:
            turned = value and self._turned(value, axes)
            if turned is None and value is not None:
                return None
            inner.append(turned)
        result = self.several(op, *inner, **attributes)[0]
        if result.rank != len(axes):
            return None
        return self.transpose(result, axes)

    def _turned(self, value: Value, axes: tuple[int, ...]) -> Value | None:
        """Return what a value is the transpose of, if that costs little."""
        if value.source is not None:
            return value.source[0] if value.source[1] == axes else None
        if value.rank > len(axes):
            return None
        if not value.shape or count(value.shape) == 1:
            return value if value.rank <= 1 else self.reshape(value, [])
        is_small = value.rank < len(axes) or value.known is not None
        if not is_small:
            return None
        whole = self.reshape(value, [1] * (len(axes) - value.rank) + list(value.shape))
        return self.transpose(whole, tuple(int(axis) for axis in np.argsort(axes)))

    def _node(
        self, op: str, given: Sequence[Value | None], attributes: dict[str, Any]
    ) -> list[Value]:
        _, _, specs = self._inferred(op, given, attributes)
        names = [None if value is None else self.named(value) for value in given]
        while names and names[-1] is None:
            names.pop()
        results = self._added(op, names, attributes, specs)
        for result in results:
            result.made = Made(op, given, attributes)
        return results

    def _added(
        self,
        op: str,
        names: Sequence[str | None],
        attributes: dict[str, Any],
        specs: Sequence[Spec],
    ) -> list[Value]:
        self.book.count += 1
        if self.book.count > MAX_NODES:
            raise Unsupported(f"the graph has more than {MAX_NODES} nodes", value=MAX_NODES)
        results = [Value(spec, self, self.book.name(op)) for spec in specs]
        node: dict[str, Any] = {"outputs": [value.name for value in results], "op": op}
        if len(results) == 1 and (op in control.CONTROL or not find(op).outputs_vary):
            node = {"name": results[0].name, "op": op}
            self._single.add(node["name"])
        node["inputs"] = list(names)
        if attributes:
            rows = () if op in control.CONTROL else find(op).attributes
            nullable = {row.name for row in rows if row.default is not None}
            node["attributes"] = {
                name: written_attribute(value)
                for name, value in attributes.items()
                if value is not None or name in nullable
            }
        self._nodes.append(node)
        return results

    def controlled(
        self, op: str, given: Sequence[Value], attributes: dict[str, Any], specs: Sequence[Spec]
    ) -> list[Value]:
        """Add control flow, whose results have these specs."""
        return self._added(op, [self.named(value) for value in given], attributes, specs)

    # --------------------------------------------------------------- layouts

    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        """Return a transpose, which joins with others and is computed where it is needed."""
        value = self.local(value)
        axes = tuple(axes)
        if value.known is not None:
            return _moved(self.constant(np.transpose(value.known, axes), value.dtype), value)
        if value.source is not None:
            value, inner = value.source
            axes = tuple(inner[axis] for axis in axes)
        if axes == tuple(range(len(axes))):
            return value
        spec = Spec(tuple(value.shape[axis] for axis in axes), value.dtype)
        if value.weight is not None and value.weight.uses == 1 and value.name is None:
            changed = value.weight.changed(spec, lambda array: np.transpose(array, axes))
            return Value(spec, self, weight=changed, bits=value.bits)
        if axes not in value.cache:
            value.cache[axes] = Value(spec, self, source=(value, axes), bits=value.bits)
        found: Value = value.cache[axes]
        return found

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """Return a value in another shape, which may have one -1."""
        value = self.local(value)
        if is_symbolic(value.known):
            whole = value.known.reshape([int(side) for side in shape])  # type: ignore[arg-type]
            return self.constant(whole, value.dtype)
        if tuple(shape) == value.shape:
            return value
        weight = value.weight
        if weight is not None and weight.uses == 1 and value.name is None and -1 not in shape:
            sides = [int(side) for side in shape]  # type: ignore[arg-type]
            if math.prod(sides) == count(value.shape):
                spec = Spec(tuple(sides), value.dtype)
                changed = weight.changed(spec, lambda array: array.reshape(sides))
                return Value(spec, self, weight=changed, bits=value.bits)
        return _moved(self.apply("reshape", value, shape=list(shape)), value)

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value in another dtype."""
        if value.dtype == dtype:
            return value
        if is_symbolic(value.known) and "int" in dtype:
            return Value(Spec(value.shape, dtype), self, known=value.known)
        return self.apply("astype", value, dtype=dtype)

    # ------------------------------------------------------------------ ends

    def written(self, outputs: Sequence[Value]) -> dict[str, Any]:
        """Return nodes, constants and outputs as JSON has them, without what no output needs."""
        names = [self.named(value) for value in outputs]
        needed = set(names)
        nodes = []
        for node in reversed(self._nodes):
            results = node.get("outputs") or [node["name"]]
            if needed.isdisjoint(results):
                continue
            needed.update(name for name in node["inputs"] if name is not None)
            nodes.append(node)
        constants = [entry for name, entry in self._constants.items() if name in needed]
        self.needed = needed
        return {"constants": constants, "nodes": nodes[::-1], "outputs": names}

    def function(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> str:
        """Add a function of this graph to the program; returns its name."""
        own = self.book.name(name)
        declared = [_declared(value) for value in inputs]
        self.book.functions.append({"name": own, "inputs": declared, **self.written(outputs)})
        return own

    def program_steps(self, outputs: Sequence[tuple[str, Value]]) -> Steps[dict[str, Any]]:
        """Return the program as JSON has it, its outputs under these names, in steps."""
        named: list[Value] = []
        names: dict[str, str] = {}
        for name, value in outputs:
            yield from self.book.pace.rest()
            value = self.local(value)
            self.named(value)
            named.append(self._copied(name, value, names))
        yield from self.rename_steps(names)
        written = self.written(named)
        self.book.parameters = {
            name: entry for name, entry in self.book.parameters.items() if name in self.needed
        }
        return {
            "inputs": [_declared(value) for value in self.inputs],
            "parameters": [
                {"name": name, "dtype": spec.dtype, "shape": _sides(spec)}
                for name, (spec, _) in self.book.parameters.items()
            ],
            "functions": _used(written["nodes"], self.book.functions),
            **written,
        }

    def rename_steps(self, names: Mapping[str, str]) -> Steps[None]:
        """Give values that are computed here, or constants, other names, in steps."""
        for node in self._nodes:
            yield from self.book.pace.rest()
            if "name" in node:
                node["name"] = names.get(node["name"], node["name"])
            for listing in (node.get("outputs", []), node["inputs"]):
                listing[:] = [names.get(each, each) for each in listing]
        for old in self._constants.keys() & names.keys():
            self._constants[names[old]] = {**self._constants.pop(old), "name": names[old]}
        self._single.update(names[old] for old in self._single & names.keys())

    def _copied(self, name: str, value: Value, names: dict[str, str]) -> Value:
        """Return a value under the name of a result, which has it alone.

        Args:
            name: of the result.
            value: of this graph, with a name.
            names: receives the value's name, if nodes have to change it.
        """
        if value.name not in self._single or value.name in self._results:
            value = self._added("contiguous", [self.named(value)], {}, [value.spec])[0]
        if self.book.claim(name):
            assert value.name is not None
            names[value.name] = name
            value.name = name
        assert value.name is not None
        self._results.add(value.name)
        return value


def _used(nodes: list[dict[str, Any]], functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the functions that nodes use, also through others."""
    named = {function["name"]: function for function in functions}
    waiting, used = list(nodes), set()
    while waiting:
        node = waiting.pop()
        row = control.CONTROL.get(node["op"])
        for attribute in row.functions if row else ():
            name = node["attributes"][attribute]
            if name not in used:
                used.add(name)
                waiting.extend(named[name]["nodes"])
    return [function for function in functions if function["name"] in used]


def _moved(result: Value, value: Value) -> Value:
    """Note that a result has the elements of a value."""
    result.bits = value.bits
    return result


def _fits(sides: tuple[int, ...], declared: tuple[Dim, ...]) -> bool:
    """Whether an array's shape is one that is declared; a name is any number."""
    return len(sides) == len(declared) and all(
        own == side or not isinstance(side, int) for own, side in zip(sides, declared, strict=True)
    )


def _listed(array: Any, dtype: str) -> Any:
    if isinstance(array, np.ndarray) or not any(isinstance(a, Symbolic) for a in np.ravel(array)):
        return np.asarray(array, None if isinstance(array, np.ndarray) else numpy_type(dtype))
    found = np.empty(len(array), object)
    found[:] = array
    return found


def _sides(spec: Spec) -> list[int | str]:
    return [side if isinstance(side, int) else str(side) for side in spec.shape]


def _declared(value: Value) -> dict[str, Any]:
    return {"name": value.name, "dtype": value.dtype, "shape": _sides(value.spec)}
