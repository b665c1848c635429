"""Programs of Python functions: trace() calls a function once, and notes its operations.

    from cowmlx import program

    def loss(x, y, w):
        return program.mean((x @ w - y).square())

    made = program.trace(
        loss,
        inputs={"x": ("float32", ["rows", 3]), "y": ("float32", ["rows"])},
        parameters={"w": mx.zeros((3,))},
    )
    made.save("loss.json")  # which cow_mlx_program_load() reads
    print(made.run(x=x, y=y))

Each operation of the table (``cow_mlx_operations_info``) is a function of this module and a method
of values. It takes inputs in order, and attributes by name. The operation ``trace``, the sum of a
diagonal, is a method alone: the function of this module makes programs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.program.control_flow import cond, scan, while_loop
from cowmlx.program.values import Value, apply, called, constant, graph_value, operation
from cowmlx.programs import dimensions
from cowmlx.programs.failure import shown
from cowmlx.programs.importing import save
from cowmlx.programs.importing import values as graph_values
from cowmlx.programs.importing.book import Book
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.program import Program
from cowmlx.steps import finished

if TYPE_CHECKING:
    from typing import TypeAlias

    Declared: TypeAlias = tuple[str, Sequence[int | str]]
    Results: TypeAlias = Value | Sequence[Value] | Mapping[str, Value]

__all__ = ["TracedProgram", "Value", "apply", "cond", "constant", "scan", "trace", "while_loop"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return operation(name)


class TracedProgram:
    """The program of a function.

    Args:
        entry: as JSON has it.
        values: of parameters by their names.
    """

    def __init__(self, entry: dict[str, Any], values: Mapping[str, mx.array]) -> None:
        self._entry = entry
        self._values = dict(values)
        self.program = finished(Program.of_entry_steps(entry, self._values))

    def json(self) -> str:
        """Return it as ``cow_mlx_program_create`` takes it; values of parameters are not in it."""
        return json.dumps(self._entry, separators=(",", ":"))

    def save(self, path: str) -> None:
        """Write it as JSON, and values of parameters as safetensors beside it.

        Args:
            path: a name that ends with .json.

        Raises:
            InvalidArgument: it ends otherwise, the program has more than 16 MiB of JSON, or it has
                no parameters and a file of other values is beside it.
            InputOutput: it cannot be written.
        """
        save(self._entry, self._values, path)

    def run(self, /, **inputs: Any) -> Any:
        """Run it in this process; parameters that are left out have their values.

        Args:
            inputs: arrays by the names of inputs and parameters.

        Returns:
            the result, or a dict of results by name if there are several.
        """
        names = [each.name for each in self.program.inputs]
        for name in inputs:
            if name not in names:
                raise InvalidArgument(
                    f"run has {shown(name)}, which is no input; inputs are {', '.join(names)}",
                    reason="unknown_option",
                    argument=name,
                    accepted=", ".join(names),
                )
        given = []
        for each in self.program.inputs:
            array = inputs.get(each.name, each.value)
            if array is None:
                raise InvalidArgument(
                    f"run lacks the input {each.name}", reason="missing", argument=each.name
                )
            given.append(array if isinstance(array, mx.array) else mx.array(array))
        results = self.program.run(given).finish()
        names = [each.name for each in self.program.outputs]
        return results[0] if len(results) == 1 else dict(zip(names, results, strict=True))


def trace(
    function: Callable[..., Results],
    inputs: Mapping[str, Declared],
    parameters: Mapping[str, mx.array] | None = None,
) -> TracedProgram:
    """Call a function once with values in place of arrays, and return it as a program.

    Args:
        function: takes inputs and parameters by name. It returns a value, a list of values, or a
            dict of values by the names of the results, and computes with operations of this module
            alone.
        inputs: dtype and shape of each; a dimension is a number from 0, or a text such as ``rows``
            for one that is known when it is run.
        parameters: arrays that a training changes, with their first values.

    Raises:
        OperationError: an operation does not take what it is given.
        InvalidArgument: a declaration is wrong, a parameter is not used, or a result has the name
            of an input.
    """
    book = Book()
    scope = Scope(book)
    values = dict(parameters or {})
    given = {name: Value(scope.input(name, _spec(name, inputs[name]))) for name in inputs}
    for name, array in values.items():
        if not isinstance(array, mx.array):
            raise InvalidArgument(
                f"the parameter {shown(name)} is {type(array).__name__}, must be an array of mlx",
                reason="wrong_type",
                argument=name,
            )
        spec = Spec(tuple(array.shape), str(array.dtype).removeprefix("mlx.core."))
        weight = graph_values.Weight(name, spec, functools.partial(_same, array), uses=2)
        given[name] = Value(scope.parameter(weight))
    mx.eval(list(values.values()))  # another thread cannot compute what this one has begun
    if len(given) != len(inputs) + len(values):
        raise InvalidArgument("an input and a parameter have one name", reason="conflict")
    for name, value in given.items():
        if scope.named(value._value) != name:
            raise InvalidArgument(f"{shown(name)} is no name of an input")
    with called(scope):
        found = function(**given)
        if isinstance(found, Mapping):
            outputs = [(name, graph_value(value)) for name, value in found.items()]
        elif isinstance(found, list | tuple):
            outputs = [(f"output_{at}", graph_value(value)) for at, value in enumerate(found)]
        else:
            outputs = [("output", graph_value(found))]
    for name, _ in outputs:
        if name in given:
            raise InvalidArgument(
                f"the result {shown(name)} has the name of an input; results need other names",
                reason="conflict",
                argument=name,
            )
        if name in book.taken:
            _rename(scope, name, [value for _, value in outputs])
        book.reserve(name)
    entry = finished(scope.program_steps(outputs))
    unused = [name for name in values if name not in book.parameters]
    if unused:
        raise InvalidArgument(
            f"the function does not use the parameter {shown(unused[0])}", argument=unused[0]
        )
    return TracedProgram(entry, values)


def _rename(scope: Scope, name: str, results: Sequence[graph_values.Value]) -> None:
    """Rename a value that has the name of a result."""
    other = scope.book.name(name)
    finished(scope.rename_steps({name: other}))
    for value in results:
        if value.name == name:
            value.name = other


def _spec(name: str, declared: Declared) -> Spec:
    if not _is_declared(declared):
        raise InvalidArgument(
            f"input {shown(name)} is declared as {declared!r:.80}, must be a dtype and a list of "
            'numbers and names of dimensions, such as ("float32", ["rows", 3])',
            reason="wrong_type",
            argument=name,
        )
    dtype, shape = declared
    if dtype not in (*graph_values.NUMPY, "bfloat16"):
        accepted = ", ".join((*graph_values.NUMPY, "bfloat16"))
        raise InvalidArgument(
            f"input {shown(name)} has the dtype {shown(dtype)}, must be one of {accepted}",
            argument=name,
            accepted=accepted,
        )
    sides = tuple(side if isinstance(side, int) else dimensions.parse(side) for side in shape)
    dimensions.check_shape(sides)
    return Spec(sides, dtype)


def _is_declared(declared: object) -> bool:
    if not isinstance(declared, list | tuple) or len(declared) != 2:
        return False
    sides = declared[1]
    return isinstance(sides, list | tuple) and all(isinstance(side, int | str) for side in sides)


def _same(array: mx.array) -> mx.array:
    return array
