"""Values that stand for arrays while a function is traced, and the operations on them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx
import numpy as np

from cowmlx.errors import InvalidArgument
from cowmlx.programs import operations
from cowmlx.programs.bounds import MAX_CONSTANT
from cowmlx.programs.failure import shown
from cowmlx.programs.importing import values as graph_values
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.operations.row import OperationError
from cowmlx.programs.operations.rules import FLOATS
from cowmlx.programs.operations.slicing import END

CALLS: ContextVar[tuple[Scope, ...]] = ContextVar("calls", default=())
"""The graphs of the functions that are called now, the innermost last."""
_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "matmul": "matmul",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip
_SIGNS = {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}


class Value:
    """What a function computes with while it is traced: an array that a run will have."""

    __hash__ = None  # type: ignore[assignment] # == is an operation
    __array_ufunc__ = None  # numpy leaves its operators to this class

    def __init__(self, value: graph_values.Value) -> None:
        self._value = value

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Its dimensions: numbers, and texts such as ``rows``."""
        return tuple(side if isinstance(side, int) else str(side) for side in self._value.shape)

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return self._value.dtype

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return self._value.rank

    @property
    def T(self) -> Any:  # noqa: N802 - numpy's name
        """Its transpose."""
        return apply("transpose", self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(operation(name), self)

    def __getitem__(self, index: Any) -> Any:
        return _chosen(self, index if isinstance(index, tuple) else (index,))

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no elements before a run: use where() or cond()")

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} has no elements before a run: use split(), or an index")

    def __repr__(self) -> str:
        return f"Value({self._value.spec})"


def _add_operators() -> None:
    def binary(op: str, *, turned: bool = False) -> Callable[[Any, Any], Any]:
        return lambda a, b: apply(op, b, a) if turned else apply(op, a, b)

    for name, op in _OPERATORS.items():
        setattr(Value, f"__{name}__", binary(op))
        setattr(Value, f"__r{name}__", binary(op, turned=True))
    for name, op in _COMPARISONS.items():
        setattr(Value, f"__{name}__", binary(op))
    for name, op in _SIGNS.items():
        setattr(Value, f"__{name}__", lambda a, op=op: apply(op, a))


_add_operators()


def graph_of_call() -> Scope:
    """Return the graph of the function that is called now."""
    return CALLS.get()[-1]


@contextmanager
def called(scope: Scope) -> Iterator[None]:
    """Let a function that is called now compute in a graph."""
    token = CALLS.set((*CALLS.get(), scope))
    try:
        yield
    finally:
        CALLS.reset(token)


def apply(op: str, *inputs: Any, **attributes: Any) -> Any:
    """Apply an operation of the table.

    Args:
        op: its name, or an alias.
        inputs: values, arrays, numbers, or None for an optional one that is left out. Numbers take
            the dtype of the values beside them, as mlx's do.
        attributes: as the table has them.

    Returns:
        a value, or a tuple of them if the operation has several results.

    Raises:
        OperationError: it does not take these.
    """
    if not CALLS.get():
        raise InvalidArgument(f"{op} is applied outside of a function that is traced")
    row = operations.find(op)
    flat: list[Any] = []
    for each in inputs:
        flat += each if isinstance(each, list | tuple) else [each]
    dtypes = [_own(each).dtype for each in flat if not _is_number(each) and each is not None]
    given = [None if each is None else graph_value(each, dtypes) for each in flat]
    results = graph_of_call().several(row.name, *given, **attributes)
    if len(row.outputs) == 1 and not row.outputs_vary:
        return Value(results[0])
    return tuple(map(Value, results))


def constant(array: Any) -> Value:
    """Return an array as a value. Left of an operator, an array of mlx must be one: mlx refuses it.

    Raises:
        InvalidArgument: it has more than 262,144 elements, or they are no numbers.
    """
    return Value(graph_value(array))


def operation(name: str) -> Callable[..., Any]:
    """Return the function of an operation.

    Raises:
        AttributeError: there is none of that name.
    """
    try:
        operations.find(name)
    except OperationError as error:
        raise AttributeError(str(error)) from None
    return functools.partial(apply, name)


def _is_number(given: Any) -> bool:
    return isinstance(given, bool | int | float | complex)


def _is_around(scope: Scope) -> bool:
    """Whether a graph is that of the function that is called now, or one around it."""
    own: Scope | None = graph_of_call()
    while own is not None and own is not scope:
        own = own.parent
    return own is not None


def _own(given: Any) -> graph_values.Value:
    """Return a value of the graph: a value's own, or a constant."""
    if isinstance(given, Value):
        value = given._value
        if value.known is None and not _is_around(value.scope):
            raise InvalidArgument(f"{given!r} is used outside of the function that computes it")
        return value
    if isinstance(given, mx.array):
        given = graph_values.to_numpy(given)
    array = np.asarray(given)
    if array.dtype.name not in (*graph_values.NUMPY, "bfloat16") or array.size > MAX_CONSTANT:
        raise InvalidArgument(
            f"{array.dtype}{list(array.shape)} is no constant: it must be numbers, "
            f"{MAX_CONSTANT:,} at most; make larger arrays parameters",
            value=f"{array.dtype}{list(array.shape)}",
        )
    return graph_of_call().constant(array)


def graph_value(given: Any, dtypes: Sequence[str] = ()) -> graph_values.Value:
    """Return a value of the graph; a number's dtype follows from those beside it."""
    if not _is_number(given):
        return _own(given)
    kinds = [each for each in dtypes if each in FLOATS or each == "complex64"]
    if isinstance(given, bool):
        dtype = "bool"
    elif isinstance(given, complex):
        dtype = "complex64"
    elif isinstance(given, float):
        dtype = kinds[0] if kinds else "float32"
    else:
        dtype = next((each for each in (*kinds, *dtypes) if each != "bool"), "int32")
    return graph_of_call().constant(np.array(given), dtype)


def _chosen(value: Value, index: tuple[Any, ...]) -> Any:
    """Return what numpy's index chooses: numbers, slices, None, ..., and one array of indices."""
    if len(index) == 1 and isinstance(index[0], Value | mx.array | np.ndarray | list):
        return apply("take", value, _index(index[0]), axis=0)
    plain = [part for part in index if part is not None]
    if plain.count(Ellipsis) == 0:
        index, plain = (*index, Ellipsis), [*plain, Ellipsis]
    at = next(place for place, part in enumerate(index) if part is Ellipsis)
    filling = (slice(None),) * (value.ndim - len(plain) + 1)
    index = (*index[:at], *filling, *index[at + 1 :])
    starts: list[int] = []
    stops: list[int] = []
    strides: list[int] = []
    dropped: list[int] = []
    added: list[int] = []
    taken: list[tuple[int, int]] = []  # of axes whose length a run says
    for part in index:
        if part is None:
            added.append(len(starts) - len(dropped) + len(added))
        elif isinstance(part, slice):
            step = 1 if part.step is None else part.step
            starts.append(part.start if part.start is not None else 0 if step > 0 else END)
            stops.append(part.stop if part.stop is not None else END if step > 0 else -END)
            strides.append(step)
        elif isinstance(part, int) and not isinstance(part, bool):
            axis = len(starts)
            dropped.append(axis)
            whole = isinstance(value.shape[axis : axis + 1] and value.shape[axis], str)
            if whole:
                taken.append((axis, part))
            starts.append(0 if whole else part)
            stops.append(END if whole or part == -1 else part + 1)
            strides.append(1)
        else:
            raise InvalidArgument(
                f"an index has {shown(part)}, must have numbers, slices, None and ..., or be one "
                "array of whole numbers; take() takes other axes"
            )
    if len(starts) != value.ndim:
        raise InvalidArgument(f"an index has {len(starts)} axes, the value has {value.ndim}")
    _check_places(value, index, dropped, starts)
    if any((a, b, c) != (0, END, 1) for a, b, c in zip(starts, stops, strides, strict=True)):
        value = apply("slice", value, start=starts, stop=stops, strides=strides)
    for axis, place in taken:
        value = apply("take", value, np.array([place], "int32"), axis=axis)
    if dropped:
        value = apply("squeeze", value, axis=dropped)
    for axis in added:
        value = apply("expand_dims", value, axis=axis)
    return value


def _check_places(value: Value, index: Any, dropped: list[int], starts: list[Any]) -> None:
    for axis in dropped:
        side = value.shape[axis]
        if isinstance(side, int) and not -side <= starts[axis] < side:
            raise InvalidArgument(
                f"an index has {starts[axis]} for axis {axis} of {side}", value=starts[axis]
            )


def _index(given: Any) -> Any:
    return given if isinstance(given, Value | mx.array) else np.asarray(given, "int32")
