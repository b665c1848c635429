"""One operation of the table on arrays: what ``array_apply`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import CowMlxError, Unsupported
from cowmlx.programs.checking import text
from cowmlx.programs.dimensions import count
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of, names_in
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.operations.rules import described, mlx_dtype, name_of
from cowmlx.programs.operations.scratch import scratch_of
from cowmlx.programs.running.compiling import Launch, Unit
from cowmlx.programs.running.cost import made_by
from cowmlx.programs.running.flags import Flags
from cowmlx.programs.running.tracing import compute, laid_out

MAX_KNOWN = 512
"""Operations with their attributes, and with their inputs, that are known to be right."""
MAX_TEXT = 1024
"""Characters of attributes that are kept with them."""
MOST_WORK = 1 << 16
"""Elements of inputs and results, and multiply-adds, of an operation that is computed at once."""

Type = tuple[tuple[int, ...], mx.Dtype]


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


class Known:
    """An operation on inputs of some types.

    Args:
        prepared: the operation and its attributes.
        types: shape and dtype of each input.
        gpu: whether the device has no float64.

    Attributes:
        specs: of its results.
        dtypes: mlx's, of its results.
        size: bytes of its results, and of what it makes on its way.
        is_empty: whether an input or all results have no elements.

    Raises:
        OperationError: it cannot take these types.
        Unsupported: a result is of a dtype that the device lacks.
    """

    def __init__(self, prepared: Prepared, types: Sequence[Type | None], gpu: bool) -> None:
        row, attributes = prepared.row, prepared.attributes
        given = [None if type_ is None else Spec(type_[0], name_of(type_[1])) for type_ in types]
        self.specs = row.infer(given, attributes)
        for spec in self.specs:
            if gpu and spec.dtype == "float64":
                raise Unsupported(
                    f"{row.name} gives float64, which a GPU does not have",
                    op=row.name,
                    dtypes="float64",
                )
        self.dtypes = [mlx_dtype(spec.dtype) for spec in self.specs]
        self.size = made_by(row.name, self.specs)
        self.size += scratch_of(row.name, given, attributes, self.specs)
        there = [spec.shape for spec in given if spec is not None]
        made = [spec.shape for spec in self.specs]
        self.is_empty = any(0 in shape for shape in there) or all(0 in shape for shape in made)
        self._row, self._attributes = row, attributes
        self._unit: Unit | None = None
        if self.is_empty or len(there) < len(given) or row.checks is not None:
            return
        work: list[Any] = [sum(map(count, (*there, *made)))]
        if row.multiplications is not None:
            work.append(row.multiplications(given, attributes))
        if max(work) <= MOST_WORK and kernels.usable():
            self._unit = Unit(self._traced, steady=False)

    def results(self, arrays: list[Any]) -> tuple[list[mx.array], bool]:
        """Return the results, and whether they are computed.

        Args:
            arrays: the inputs.
        """
        unit = self._unit
        if unit is None:
            return self._row.compute(arrays, self._attributes), False
        if not unit.is_short:
            results, _ = unit(arrays)  # records it
            if not unit.is_short:
                self._unit = None
                return results, False
        found = unit.at_once(list(arrays))
        if found is not None:
            return found[0], True
        return unit(arrays)[0], False

    @property
    def launch(self) -> Launch | None:
        """What computes the results of computed inputs at once, if kernels do."""
        return None if self._unit is None else self._unit.launch

    def _traced(self, arrays: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
        return self._row.compute(list(arrays), self._attributes), {}


_of_types = lru_cache(MAX_KNOWN)(Known)


def known(prepared: Prepared, given: Sequence[mx.array | None], gpu: bool) -> Known:
    """Return an operation for the types of its inputs, None for one that is left out.

    Raises:
        OperationError, Unsupported: as :class:`Known`.
    """
    types = [None if operand is None else (operand.shape, operand.dtype) for operand in given]
    return _of_types(prepared, tuple(types), gpu)


def apply(
    prepared: Prepared,
    arrays: Sequence[mx.array | None],
    gpu: bool = False,
    require_room: Callable[[int, str], object] = lambda size, what: None,
) -> tuple[list[mx.array], bool, list[Check]]:
    """Return an operation's results, whether they are computed, and its checks of values.

    Kernels compute small results of computed inputs at once; other results are lazy.

    Args:
        prepared: the operation and its attributes.
        arrays: its inputs, None for one that is left out; they may be lazy.
        gpu: whether the device has no float64.
        require_room: called with the bytes that an operation needs and its name, before anything
            is computed; raises an error if there is less memory.

    Raises:
        OperationError: it cannot take these dtypes or shapes.
        Unsupported: a result is of a dtype that the device lacks.
        CowMlxError: mlx does not compute what the table says; what ``require_room`` raises.
    """
    row, attributes = prepared.row, prepared.attributes
    given = row.arranged(arrays)
    found = known(prepared, given, gpu)
    require_room(found.size, row.name)
    if found.is_empty:
        given = [laid_out(operand) for operand in given]
    checks = [] if row.checks is None else row.checks(given, attributes)
    if found.is_empty:
        results, is_computed = compute(row, given, attributes, found.specs), False
    else:
        results, is_computed = found.results(given)
    for array, spec, dtype in zip(results, found.specs, found.dtypes, strict=True):
        if array.shape != spec.shape or array.dtype != dtype:
            raise CowMlxError(f"{row.name}: mlx gives {described(array)}, the table says {spec}")
    return results, is_computed, checks
