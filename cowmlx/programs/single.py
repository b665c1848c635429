"""One operation of the table on arrays, lazily: what ``array_apply`` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import mlx.core as mx

from cowmlx.errors import CowMlxError, Unsupported
from cowmlx.programs.checking import text
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of, names_in
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.operations.rules import described, is_as_declared, name_of
from cowmlx.programs.operations.scratch import scratch_of
from cowmlx.programs.running.cost import made_by
from cowmlx.programs.running.tracing import compute, laid_out

MAX_KNOWN = 512
"""Operations with their attributes, and with their inputs, that are known to be right."""
MAX_TEXT = 1024
"""Characters of attributes that are kept with them."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """An operation and its attributes, checked.

    Args:
        row: the operation.
        attributes: all of them.
    """

    row: Operation
    attributes: dict[str, object]


def prepare(name: str, attributes: str | None) -> Prepared:
    """Return an operation and its attributes, checked.

    Args:
        name: its name or an alias.
        attributes: a JSON object, or None for none.

    Raises:
        ProgramError, OperationError: there is no such operation, or it does not take these.
    """
    if len(name) + len(attributes or "") > MAX_TEXT:
        return _prepared(name, attributes)
    return _known(name, attributes)


def _prepared(name: str, attributes: str | None) -> Prepared:
    row = find(name)
    given = {} if attributes is None else text.read(attributes, "attributes_json")
    checked = attributes_of(row, given)
    names = sorted(names_in(row, checked))
    if names:
        raise ProgramError(
            "wrong_type",
            f"{row.name}: its shape has the dimension {shown(names[0])}, must have numbers",
            op=row.name,
            value=shown(names[0]),
            accepted="numbers",
        )
    return Prepared(row, checked)


_known = lru_cache(MAX_KNOWN)(_prepared)


@lru_cache(MAX_KNOWN)
def _results(
    prepared: Prepared, types: tuple[tuple[tuple[int, ...], mx.Dtype] | None, ...], gpu: bool
) -> tuple[list[Spec], int]:
    """Return the specs of an operation's results for inputs of some types, and the bytes it takes.

    These are the bytes of its results, and of what it makes on its way.
    """
    row = prepared.row
    specs = [None if type_ is None else Spec(type_[0], name_of(type_[1])) for type_ in types]
    inferred = row.infer(specs, prepared.attributes)
    for spec in inferred:
        if gpu and spec.dtype == "float64":
            raise Unsupported(
                f"{row.name} gives float64, which a GPU does not have",
                op=row.name,
                dtypes="float64",
            )
    return inferred, made_by(row.name, inferred) + scratch_of(
        row.name, specs, prepared.attributes, inferred
    )


def apply(
    prepared: Prepared, arrays: Sequence[mx.array | None], gpu: bool = False
) -> tuple[list[mx.array], list[Check], int]:
    """Return the results of an operation, which are lazy, what has to be looked at, and bytes.

    The bytes are those of the results once they are computed, and of what is made on the way.

    Args:
        prepared: the operation and its attributes.
        arrays: its inputs, None for one that is left out; they may be lazy.
        gpu: whether the device has no float64.

    Raises:
        OperationError: it cannot take these dtypes or shapes.
        Unsupported: a result is of a dtype that the device lacks.
        CowMlxError: mlx does not compute what the table says.
    """
    row, attributes = prepared.row, prepared.attributes
    given = row.arranged(arrays)
    types = tuple(
        [None if operand is None else (operand.shape, operand.dtype) for operand in given]
    )
    specs, size = _results(prepared, types, gpu)
    given = [laid_out(operand) for operand in given]
    checks = [] if row.checks is None else row.checks(given, attributes)
    results = compute(row, given, attributes, specs)
    for array, spec in zip(results, specs, strict=True):
        if not is_as_declared(array, spec):
            raise CowMlxError(f"{row.name}: mlx gives {described(array)}, the table says {spec}")
    return results, checks, size
