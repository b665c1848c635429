"""What a row of the table of operations says, and what its functions take and give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx

from cowmlx.errors import InvalidArgument
from cowmlx.programs.dimensions import Dim, Shape, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generated.reasons import Reason
    from cowmlx.programs.operations.indices import Check

T = TypeVar("T")

FLOAT64_ERROR = 1e-14
"""Of operations that are computed in float64, sums of some elements included."""

Attributes = dict[str, Any]
"""Values as :func:`cowmlx.programs.operations.attributes.attributes_of` gives them."""


_VERBS = ("cannot ", "would ", "makes ", "needs ", "has ")
"""Beginnings of sentences whose subject is the operation."""


class OperationError(InvalidArgument):
    """An operation that cannot take its inputs or attributes.

    Args:
        reason: one of ``COW_MLX_REASONS``.
        sentence: what is wrong, with shapes and dtypes, and what would be accepted.
        details: what ``cow_mlx_error_details`` has with the reason.
    """

    def __init__(self, reason: Reason, sentence: str, **details: Any) -> None:
        super().__init__(sentence, reason=reason, **details)

    def of(self, operation: str) -> OperationError:
        """Return the error with the name of its operation, which rules do not know."""
        separator = " " if str(self).startswith(_VERBS) else ": "
        details = {**self.details, "op": operation}
        return OperationError(self.reason, f"{operation}{separator}{self}", **details)


@dataclass(frozen=True)
class Spec:
    """What is known of an array before a run.

    Args:
        shape: numbers and symbolic dimensions.
        dtype: its name.
    """

    shape: Shape
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{text_of(self.shape)}"


@dataclass(frozen=True)
class Input:
    """A place for an array.

    Args:
        name: its name, mlx's where it has one.
        optional: whether it may be missing: at the end, or null.
        variadic: whether it takes all that follow, one at least; it is the last then.
        about: one sentence of what is special about it.
    """

    name: str
    optional: bool = False
    variadic: bool = False
    about: str = ""


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True)
class Attribute:
    """A keyword argument.

    Args:
        name: mlx's name of it.
        kind: what it takes, see :mod:`cowmlx.programs.operations.attributes`.
        default: its value if it is not given; :data:`REQUIRED` if it has none; None is null.
        about: one sentence of what it does.
        choices: the texts that a choice takes.
        low: the least number that it takes.
        high: the greatest.
        nullable: whether null is taken where it is not the default.
    """

    name: str
    kind: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    nullable: bool = False

    @property
    def takes_null(self) -> bool:
        """Whether null is a value of it."""
        return self.nullable or self.default is None


@dataclass(frozen=True)
class Example:
    """Inputs that an operation takes, for its page and for its tests.

    Args:
        inputs: a text for each, such as ``"float32[2,3]"``; see
            :mod:`cowmlx.programs.operations.examples`; None for an optional one that is missing.
        attributes: as in a node.
    """

    inputs: tuple[str | None, ...]
    attributes: Attributes


Infer = Callable[[list[Any], Attributes], list[Spec]]
Compute = Callable[[list[Any], Attributes], list[mx.array]]
Checks = Callable[[list[Any], Attributes], "list[Check]"]


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    Args:
        name: mlx's name where it has one.
        aliases: other names that find it.
        inputs: its arrays, in order.
        attributes: its keyword arguments.
        outputs: the names of its results; the last is of any number if ``outputs_vary``.
        infer: the specs of its results for those of its inputs (a :class:`Spec`, or None for a
            missing optional input); raises OperationError for what is certainly wrong, and where
            dimensions must be equal, also for what cannot be proved. With concrete dimensions
            nothing is left to prove, so what infers then computes without an error of mlx.
        compute: the results, of arrays that ``infer`` has taken. Pure, so mlx can compile,
            differentiate and vectorize it; never reads outside of an array, whatever indices say.
        differentiable: the names of inputs that a gradient goes through.
        stacks: the places of inputs that ``compute`` takes with an axis of rows before their own,
            all of them or none; where other inputs have rows, these are computed one by one. None:
            mlx's vmap computes rows.
        of_many_rows: as ``compute``, for so many rows that they are left to mlx's vmap.
        summary: one sentence.
        formula: what it computes, in plain text.
        examples: inputs that it takes.
        source: where the formula comes from, if it is not plain.
        checks: what has to be looked at after a run, such as indices out of range; None: nothing.
        outputs_vary: whether the number of its results depends on attributes and shapes.
        cpu_only: whether mlx computes it on a CPU alone; then it runs there on every machine.
        multiplications: how many multiply-adds it takes, if they are worth telling.
        settled: the attributes with what the specs of inputs decide before dimensions have
            values, such as which axes have a length of 1; None: nothing.
        float64_error: the bound of its errors, and those of its gradients, where inputs or
            results are float64, relative to the largest absolute value.
    """

    name: str
    aliases: tuple[str, ...]
    inputs: tuple[Input, ...]
    attributes: tuple[Attribute, ...]
    outputs: tuple[str, ...]
    infer: Infer
    compute: Compute
    differentiable: tuple[str, ...]
    summary: str
    formula: str
    examples: tuple[Example, ...]
    source: str = ""
    checks: Checks | None = None
    outputs_vary: bool = False
    cpu_only: bool = False
    stacks: tuple[int, ...] | None = None
    of_many_rows: Compute | None = None
    multiplications: Callable[[list[Any], Attributes], Dim] | None = None
    settled: Callable[[list[Any], Attributes], Attributes] | None = None
    float64_error: float = FLOAT64_ERROR

    @property
    def variadic(self) -> bool:
        """Whether the last input takes all that follow."""
        return bool(self.inputs) and self.inputs[-1].variadic

    def arranged(self, given: Sequence[T | None]) -> list[T | None]:
        """Return an element for each input, None for missing optional ones.

        Args:
            given: what a node names, in order; None for an optional input that is left out.
        """
        whole = len(given) == len(self.inputs) and all(operand is not None for operand in given)
        if whole and not self.variadic:
            return list(given)
        least = sum(not place.optional for place in self.inputs)
        most = len(self.inputs)
        names = ", ".join(place.name + ("?" if place.optional else "") for place in self.inputs)
        if self.variadic:
            names += ", …"
        if len(given) < least or (len(given) > most and not self.variadic):
            number = f"{least} or more" if self.variadic else f"{least}"
            if not self.variadic and most > least:
                number += f" to {most}"
            raise OperationError(
                "missing" if len(given) < least else "out_of_range",
                f"{self.name} has {len(given)} inputs, must have {number}"
                + (f": {names}" if names else ""),
                op=self.name,
                argument="inputs",
                value=len(given),
                accepted=number,
            )
        operands = [*given, *[None] * (most - len(given))]
        for place, each in zip(self._places(len(operands)), operands, strict=True):
            if each is None and not place.optional:
                raise OperationError(
                    "missing",
                    f"{self.name} needs its input {place.name!r}",
                    op=self.name,
                    argument=place.name,
                )
        return operands

    def _places(self, count: int) -> list[Input]:
        return [self.inputs[min(at, len(self.inputs) - 1)] for at in range(count)]
