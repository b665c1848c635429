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
from cowmlx.programs.checking.constants import Unfit, encode
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
    "lshift": "left_shift", "rshift": "right_shift",
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

    def __pos__(self) -> Value:
        return self

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

    def in_place(op: str) -> Callable[[Any, Any], Any]:
        def change(a: Value, b: Any) -> Value:  # every name of it sees that, as in mlx
            a._value = apply(op, a, b)._value
            return a

        return change

    for name, op in _OPERATORS.items():
        setattr(Value, f"__{name}__", binary(op))
        setattr(Value, f"__r{name}__", binary(op, turned=True))
        setattr(Value, f"__i{name}__", in_place(op))
    for name, op in _COMPARISONS.items():
        setattr(Value, f"__{name}__", binary(op))
    for name, op in _SIGNS.items():
        setattr(Value, f"__{name}__", lambda a, op=op: apply(op, a))


_add_operators()


def graph_of_call() -> Scope:
    """Return the graph of the function that is called now.

    Raises:
        InvalidArgument: no function is traced.
    """
    calls = CALLS.get()
    if not calls:
        raise InvalidArgument("operations of cowmlx.program work in a function that trace() calls")
    return calls[-1]


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
        inputs: values, arrays, lists of numbers, numbers, or None for an optional input without a
            value. Arrays and lists become constants with mlx's dtypes. A number takes the dtype of
            the values beside it, as in mlx. Operations of any number of inputs take a list, too.
        attributes: their names and kinds are the table's.

    Returns:
        a value, or a tuple of values if the operation has several results.

    Raises:
        OperationError: the operation does not take these inputs or attributes.
        InvalidArgument: an input is no value, array or number; or no function is traced.
    """
    scope, row = graph_of_call(), operations.find(op)
    if row.inputs and row.inputs[-1].variadic and len(inputs) == 1 and _is_list(inputs[0]):
        (inputs,) = inputs
    whole = [None if each is None or _is_number(each) else graph_value(each) for each in inputs]
    dtypes = [value.dtype for value in whole if value is not None]
    given = [
        graph_value(each, dtypes) if _is_number(each) else value
        for each, value in zip(inputs, whole, strict=True)
    ]
    results = scope.several(row.name, *given, **attributes)
    if len(row.outputs) == 1 and not row.outputs_vary:
        return Value(results[0])
    return tuple(map(Value, results))


def constant(array: Any) -> Value:
    """Return an array, or a list of numbers, as a value.

    An array of mlx on the left of an operator must be converted so: its own operators do not know
    values.

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


def _is_list(given: Any) -> bool:
    return isinstance(given, list | tuple)


def _is_number(given: Any) -> bool:
    return isinstance(given, bool | int | float | complex)


def _is_around(scope: Scope) -> bool:
    """Whether a graph is that of the function that is called now, or one around it."""
    own: Scope | None = graph_of_call()
    while own is not None and own is not scope:
        own = own.parent
    return own is not None


def _whole(given: Any) -> graph_values.Value:
    """Return a value of the graph for a value, or a constant for an array."""
    if isinstance(given, Value):
        value = given._value
        if value.known is None and not _is_around(value.scope):
            raise InvalidArgument(f"{given!r} is used outside of the function that computes it")
        return value
    try:
        array = given if isinstance(given, mx.array) else mx.array(given)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidArgument(
            f"{shown(given)} is no value, array or number", value=shown(given)
        ) from None
    if array.size > MAX_CONSTANT:
        raise InvalidArgument(
            f"a constant has {array.size:,} elements, {MAX_CONSTANT:,} at most; make larger arrays "
            "parameters",
            value=array.size,
            limit=MAX_CONSTANT,
        )
    return graph_of_call().constant(graph_values.to_numpy(array))


def graph_value(given: Any, dtypes: Sequence[str] = ()) -> graph_values.Value:
    """Return a value of the graph.

    Args:
        given: a value, an array, a list of numbers, or a number.
        dtypes: of the values beside a number, which decide its dtype.
    """
    if not _is_number(given):
        return _whole(given)
    kinds = [each for each in dtypes if each in FLOATS or each == "complex64"]
    if isinstance(given, bool):
        dtype = "bool"
    elif isinstance(given, complex):
        dtype = "complex64"
    elif isinstance(given, float):
        dtype = kinds[0] if kinds else "float32"
    else:
        is_long = not dtypes and not -(1 << 31) <= given < 1 << 31
        plain = "int64" if is_long else "int32"
        dtype = next((each for each in (*kinds, *dtypes) if each != "bool"), plain)
    return graph_of_call().constant(_number(given, dtype), dtype)


def _number(given: bool | int | float | complex, dtype: str) -> Any:
    """Return a number that takes a dtype, as a numpy array.

    Raises:
        InvalidArgument: it is an integer that the dtype does not hold.
    """
    if isinstance(given, bool) or not isinstance(given, int):
        return np.array(given)
    try:
        if "int" not in dtype:
            return np.array(float(given))
        encode([given], dtype)
    except (Unfit, OverflowError) as error:
        accepted = str(error) if isinstance(error, Unfit) else "a number within float64"
        raise InvalidArgument(
            f"a number of {dtype} is {shown(given)}, must be {accepted}",
            value=shown(given),
            accepted=accepted,
        ) from None
    return np.array(given, dtype)


def _plain(part: Any) -> Any:
    """Return a part of an index with Python's numbers in place of numpy's.

    Raises:
        InvalidArgument: it is a slice whose ends depend on a run.
    """
    if isinstance(part, np.integer):
        return int(part)
    if not isinstance(part, slice):
        return part
    ends = [_plain(end) for end in (part.start, part.stop, part.step)]
    for end in ends:
        if end is not None and (isinstance(end, bool) or not isinstance(end, int)):
            raise InvalidArgument(
                f"a slice has {shown(end)}, must have whole numbers; dynamic_slice() begins where "
                "a value says"
            )
    return slice(*ends)


def _chosen(value: Value, index: tuple[Any, ...]) -> Any:
    """Return the elements that numpy's index chooses.

    The index has numbers, slices, None and ``...``, or is one array of indices.
    """
    if len(index) == 1 and isinstance(index[0], Value | mx.array | np.ndarray | list):
        return apply("take", value, index[0], axis=0)
    plain = [part for part in index if part is not None]
    if plain.count(Ellipsis) == 0:
        index, plain = (*index, Ellipsis), [*plain, Ellipsis]
    at = next(place for place, part in enumerate(index) if part is Ellipsis)
    filling = (slice(None),) * (value.ndim - len(plain) + 1)
    index = tuple(map(_plain, (*index[:at], *filling, *index[at + 1 :])))
    starts: list[int] = []
    stops: list[int] = []
    strides: list[int] = []
    dropped: list[int] = []
    added: list[int] = []
    taken: list[tuple[int, int]] = []  # axes of named length: a slice needs a number
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
            has_name = axis < value.ndim and isinstance(value.shape[axis], str)
            if has_name:
                taken.append((axis, part))
            starts.append(0 if has_name else part)
            stops.append(END if has_name or part == -1 else part + 1)
            strides.append(1)
        else:
            raise InvalidArgument(
                f"an index has {shown(part)}, must have numbers, slices, None and ..., or be one "
                "array of whole numbers; take() takes other axes"
            )
    if len(starts) != value.ndim:
        raise InvalidArgument(f"an index has {len(starts)} axes, the value has {value.ndim}")
    for axis in dropped:
        side = value.shape[axis]
        if isinstance(side, int) and not -side <= starts[axis] < side:
            raise InvalidArgument(
                f"an index has {starts[axis]} for axis {axis} of {side}", value=starts[axis]
            )
    if any((a, b, c) != (0, END, 1) for a, b, c in zip(starts, stops, strides, strict=True)):
        value = apply("slice", value, start=starts, stop=stops, strides=strides)
    for axis, place in taken:
        value = apply("take", value, [place], axis=axis)
    if dropped:
        value = apply("squeeze", value, axis=dropped)
    for axis in added:
        value = apply("expand_dims", value, axis=axis)
    return value
