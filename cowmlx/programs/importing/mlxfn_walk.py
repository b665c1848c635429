"""The walk over the primitives of an exported function of MLX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, CowMlxError, InvalidArgument
from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.book import Book
from cowmlx.programs.importing.failures import ODD, missing, placed, shortened, unreadable
from cowmlx.programs.importing.mlxfn_file import (
    Constant,
    Entry,
    Function,
    Reader,
    function_steps,
)
from cowmlx.programs.importing.mlxfn_node import PRIMITIVES, Node
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Imported, Value, Weight, numpy_type


def load_steps(path: str, fixed: Mapping[str, Any]) -> Steps[Imported]:
    """Return the program of an exported function, in steps.

    Args:
        path: the file.
        fixed: values of inputs by their names; and "function", which one of several, from 0.

    Raises:
        InputOutput: the file cannot be read.
        BadFormat: it is damaged.
        InvalidArgument: it has several functions, and ``fixed`` names none.
        Unsupported: it needs what programs do not have; names the primitive.
    """
    try:
        with open(path, "rb") as file:
            function = yield from function_steps(Reader(path, file), fixed.get("function"))
    except OSError as error:
        raise unreadable(path, error) from error
    values = {name: value for name, value in fixed.items() if name != "function"}
    return (yield from _program_steps(path, function, values))


def _program_steps(path: str, function: Function, fixed: Mapping[str, Any]) -> Steps[Imported]:
    """Return a function as a program, in steps.

    Args:
        path: the file, which has the elements of constants.
        function: what the file says of it.
        fixed: values of inputs by their names.
    """
    book = Book()
    book.read(path, sum(constant.size for constant in function.constants.values()))
    scope = Scope(book)
    names = [name for name, _, _ in function.inputs]
    for name in fixed:
        if name not in names:
            raise InvalidArgument(
                f"fixed has {shown(name)}, which is no input of the function; it has "
                f"{', '.join(names[:16]) or 'none'}",
                reason="unknown_option",
                argument=name,
                accepted=", ".join(names[:16]),
            )
    results = ["output"]
    if len(function.outputs) > 1:
        results = [f"output_{at}" for at in range(len(function.outputs))]
    for name in results:
        book.reserve(name)
    values: dict[int, Value] = {}
    for name, number, spec in function.inputs:
        given = name in fixed
        values[number] = scope.fixed(name, spec, fixed[name]) if given else scope.input(name, spec)
    pace = Pace()
    for at, number in enumerate(each for each in function.uses if each in function.constants):
        yield from pace.rest()
        constant, uses = function.constants[number], function.uses[number]
        weight = Weight(f"weight_{at}", constant.spec, _read(path, constant), uses)
        values.setdefault(number, scope.weight(weight))
    for entry in function.entries:
        yield from pace.rest()
        for number, value in zip(entry.outputs, _results(scope, entry, values), strict=True):
            values.setdefault(number, value)
    outputs = [
        (name, values[number]) for name, number in zip(results, function.outputs, strict=True)
    ]
    made = yield from scope.program_steps(outputs)
    return Imported(made, {name: weight for name, (_, weight) in book.parameters.items()})


def _results(scope: Scope, entry: Entry, values: Mapping[int, Value]) -> list[Value]:
    """Convert a primitive; its results must be what the file says."""
    node = Node(scope, entry.state, [values[number] for number in entry.inputs], entry.specs)
    try:
        found = PRIMITIVES[entry.name].convert(node)
    except CowMlxError as error:
        raise placed(error, f"primitive {entry.name}", op=entry.name) from None
    except ODD as error:  # inputs or axes that it cannot have
        raise BadFormat(
            f"the file is damaged: {entry.name} with {len(entry.inputs)} inputs: {error}",
            op=entry.name,
        ) from None
    results = [found] if isinstance(found, Value) else list(found)
    if [value.spec for value in results] != entry.specs:
        raise BadFormat(
            f"the file is damaged: {entry.name} gives "
            f"{', '.join(str(value.spec) for value in results)}, and not "
            f"{', '.join(map(str, entry.specs))}",
            op=entry.name,
        )
    return results


def _read(path: str, constant: Constant) -> Callable[[], Any]:
    """Return what reads the elements of a constant."""
    spec = constant.spec

    def read() -> Any:
        try:
            kind = numpy_type(spec.dtype)
        except ImportError as error:
            raise missing("constants of bfloat16", "ml_dtypes", error) from error
        try:
            with open(path, "rb") as file:
                file.seek(constant.offset)
                data = file.read(constant.size)
        except OSError as error:
            raise unreadable(path, error) from error
        if len(data) != constant.size:
            raise shortened(path)
        if spec.dtype == "bool":
            return (np.frombuffer(data, "uint8") != 0).reshape(spec.shape)
        return np.frombuffer(data, kind).reshape(spec.shape)

    return read
