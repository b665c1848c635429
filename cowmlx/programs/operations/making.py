"""Short ways to write rows: an operation on elements, on pairs of them, along axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import DimensionError, Shape, check_shape
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.row import (
    Attribute,
    Attributes,
    Checks,
    Compute,
    Example,
    Infer,
    Input,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import (
    DTYPES,
    broadcast,
    promote,
    require_dtype,
    require_rank,
    spec,
)

ABOUT = {"key": "A random key: uint32 of shape (2,), from random_key or random_split."}
"""What is special about inputs of some names."""

PAIR = ("a", "b")
"""The names of two inputs."""

Result = Callable[[str], str]
"""The dtype of a result, for that in which the inputs meet."""


def same(dtype: str) -> str:
    """Return the dtype of the inputs."""
    return dtype


def truth(dtype: str) -> str:
    """Return bool."""
    return "bool"


def magnitude(dtype: str) -> str:
    """Return the dtype of an absolute value or a part of a complex number."""
    return "float32" if dtype == "complex64" else dtype


def inputs_of(signature: str) -> tuple[str, tuple[Input, ...]]:
    """Return the name and the inputs of a text such as ``"concatenate(arrays…)"``.

    ``?`` marks an input that may be missing, ``…`` the last one if it takes all that follow, and
    ``∂`` those that a gradient goes through; :func:`row` reads that.
    """
    name, _, rest = signature.rstrip(")").partition("(")
    places = [
        Input(text.strip("∂?…"), text.endswith("?"), text.endswith("…"), ABOUT.get(text, ""))
        for text in rest.split(", ")
        if text
    ]
    return name, tuple(places)


def _named(name: str, infer: Callable[..., Any]) -> Infer:
    """Return a rule whose results are within the bounds of arrays and whose errors have a name."""

    def specs(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        try:
            inferred = infer(*inputs, **attributes)
            listed = [inferred] if isinstance(inferred, Spec) else list(inferred)
        except OperationError as error:
            raise error.of(name) from None
        for each in listed:
            try:
                check_shape(each.shape)
            except DimensionError as error:
                raise OperationError(error.reason, str(error), **error.details).of(name) from None
        return listed

    return specs


def _computed(function: Callable[..., Any]) -> Compute:
    """Return a function that gives a list of results."""

    def results(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        outcome = function(*arrays, **attributes)
        return [outcome] if type(outcome) is mx.array else list(outcome)

    return results


def _checked(name: str, checks: Checks) -> Checks:
    """Return checks that name their operation."""

    def found(arrays: list[Any], attributes: Attributes) -> list[Check]:
        listed = checks(arrays, attributes)
        for check in listed:
            check.operation = name
        return listed

    return found


def row(
    signature: str,
    infer: Callable[..., Any],
    compute: Callable[..., Any],
    summary: str,
    formula: str,
    examples: Sequence[Example],
    *,
    aliases: str = "",
    attributes: Sequence[Attribute] = (),
    outputs: Sequence[str] = ("out",),
    differentiable: Sequence[str] | None = None,
    checks: Checks | None = None,
    of_many_rows: Callable[..., Any] | None = None,
    **more: Any,
) -> Operation:
    """Return a row.

    The signature is that of :func:`inputs_of`; aliases are separated by spaces. ``infer``,
    ``compute`` and ``of_many_rows`` take inputs, then attributes by name, and give one result or
    several. ``more`` are other fields of the row.
    """
    name, places = inputs_of(signature)
    if differentiable is None:
        differentiable = re.findall(r"∂(\w+)", signature)

    return Operation(
        name=name,
        aliases=tuple(aliases.split()),
        inputs=places,
        attributes=tuple(attributes),
        outputs=tuple(outputs),
        infer=_named(name, infer),
        compute=_computed(compute),
        differentiable=tuple(differentiable),
        summary=summary,
        formula=formula,
        examples=tuple(examples),
        checks=None if checks is None else _checked(name, checks),
        of_many_rows=None if of_many_rows is None else _computed(of_many_rows),
        **more,
    )


def example(*inputs: str | None, **attributes: Any) -> Example:
    """Return an example: a text for each input, of float32 if it has no dtype, then attributes."""
    texts = [
        f"float32{operand}" if operand and operand.startswith("[") else operand
        for operand in inputs
    ]
    return Example(tuple(texts), attributes)


def constant(value: float, like: mx.array) -> mx.array:
    """Return a number in an array's dtype, so that a result keeps it."""
    return mx.array(value, dtype=like.dtype)


def cast(arrays: Sequence[mx.array]) -> list[mx.array]:
    """Return arrays in the dtype in which they meet."""
    dtype = arrays[0].dtype
    for array in arrays[1:]:
        dtype = mx.result_type(dtype, array.dtype)
    return [array.astype(dtype) for array in arrays]


def shaped(
    signature: str,
    rule: Callable[..., Shape],
    summary: str,
    formula: str,
    examples: Sequence[Example],
    function: Callable[..., mx.array] | None = None,
    *,
    accepted: Sequence[str] = DTYPES,
    rank: int = 0,
    result: Result = same,
    meets: bool = False,
    differentiable: bool | Sequence[str] = True,
    **more: Any,
) -> Operation:
    """Return the row of an operation whose one result has a shape that follows from others.

    Args:
        signature: as :func:`row` takes it, like what is not named here.
        rule: the result's shape, for those of inputs and attributes.
        summary: one sentence.
        formula: what it computes.
        examples: inputs that it takes.
        function: takes the arrays, then attributes by name; mlx's of that name if None.
        accepted: the dtypes that each input may have.
        rank: the least number of dimensions of an input.
        result: the result's dtype, for that in which inputs meet.
        meets: whether the function gets arrays of one dtype.
        differentiable: whether all inputs can be differentiated, or which.
        more: as :func:`row` takes it.
    """
    name, inputs = inputs_of(signature)
    places = [operand.name for operand in inputs]
    apply = function or getattr(mx, name)
    if isinstance(differentiable, bool):
        differentiable = places if differentiable else ()

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        for place, given in zip(places, inputs, strict=True):
            require_dtype(place, given, accepted)
            require_rank(place, given, rank)
        dtype = result(promote([given.dtype for given in inputs]))
        return spec(rule(*(given.shape for given in inputs), attributes), dtype)

    def met(*arrays: mx.array, **attributes: Any) -> mx.array:
        result: mx.array = apply(*cast(arrays), **attributes)
        return result

    return row(
        signature,
        infer,
        met if meets else apply,
        summary,
        formula,
        examples,
        differentiable=differentiable,
        **more,
    )


def elementwise(
    name: str,
    summary: str,
    formula: str,
    function: Callable[..., mx.array] | None = None,
    *,
    places: Sequence[str] = ("a",),
    accepted: Sequence[str] = DTYPES,
    examples: Sequence[Example] | None = None,
    values: str = "",
    **more: Any,
) -> Operation:
    """Return the row of a function of elements: inputs are broadcast, and meet in one dtype.

    Args:
        name: the row's.
        summary: one sentence.
        formula: what it computes.
        function: as :func:`shaped` takes it, like what is not named here.
        places: the names of its inputs.
        accepted: the dtypes that each input may have.
        examples: if not those of two or three shapes.
        values: the range of the examples' inputs, such as ``" 0.1..0.9"``.
        more: other arguments of :func:`shaped`.
    """
    if examples is None:
        kind = "float32" if "float32" in accepted else "int32" if "int32" in accepted else "bool"
        shapes = [("[2,3]",) * len(places)]
        if len(places) > 1:
            shapes += [("[4,1,3]", "[2,1]", "[3]")[: len(places)], ("[]",) * len(places)]
            shapes += [("[0,3]", "[3]", "[1,1]")[: len(places)]]
        else:
            shapes += [("[]",), ("[0]",)]
        examples = [example(*(f"{kind}{shape}{values}" for shape in each)) for each in shapes]

    def rule(*given: Any) -> Shape:
        return broadcast(given[:-1])

    signature = f"{name}({', '.join(places)})"
    return shaped(signature, rule, summary, formula, examples, function, accepted=accepted, **more)


def moving(
    name: str,
    rule: Callable[[Shape, Attributes], Shape],
    summary: str,
    formula: str,
    examples: Sequence[Example],
    function: Callable[..., mx.array] | None = None,
    **more: Any,
) -> Operation:
    """Return the row of an operation on one array, as :func:`shaped` does."""
    return shaped(f"{name}(a)", rule, summary, formula, examples, function, **more)
