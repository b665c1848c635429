"""One operation of the table on arrays, lazily: what ``array_apply`` does."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from cowmlx.errors import Unsupported
from cowmlx.programs.checking import text
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of, names_in
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.promotion import name_of
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.running.memory import made_by

Prepared = tuple[Operation, dict[str, object]]


def prepare(name: str, attributes: str | None) -> Prepared:
    """Return an operation and its attributes, checked.

    Args:
        name: its name or an alias.
        attributes: a JSON object, or None for none.

    Raises:
        ProgramError, OperationError: there is no such operation, or it does not take these.
    """
    row = find(name)
    given = {} if attributes is None else text.read(attributes, "attributes_json")
    found = attributes_of(row, given)
    names = sorted(names_in(row, found))
    if names:
        raise ProgramError(
            "wrong_type",
            f"{row.name}: its shape has the dimension {shown(names[0])}, must have numbers",
            op=row.name,
            value=shown(names[0]),
            accepted="numbers",
        )
    return row, found


def apply(
    prepared: Prepared, arrays: Sequence[mx.array | None], gpu: bool = False
) -> tuple[list[mx.array], list[Check], int]:
    """Return the results of an operation, which are lazy, what has to be looked at, and bytes.

    The bytes are those of the results once they are computed.

    Args:
        prepared: the operation and its attributes.
        arrays: its inputs, None for one that is left out; they may be lazy.
        gpu: whether the device has no float64.

    Raises:
        OperationError: it cannot take these dtypes or shapes.
        Unsupported: a result is of a dtype that the device lacks.
    """
    row, attributes = prepared
    given = row.arranged(arrays)
    specs = [
        None if each is None else Spec(tuple(each.shape), name_of(each.dtype)) for each in given
    ]
    found = row.infer(specs, attributes)
    for spec in found:
        if gpu and spec.dtype == "float64":
            raise Unsupported(
                f"{row.name} gives float64, which a GPU does not have",
                op=row.name,
                dtypes="float64",
            )
    checks = [] if row.checks is None else row.checks(given, attributes)
    return row.compute(given, attributes), checks, made_by(row.name, found)
