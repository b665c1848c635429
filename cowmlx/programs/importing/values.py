"""Values of a graph that is imported, what is known of them before a run, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.checking.constants import array_of
from cowmlx.programs.dimensions import Dim, Symbolic
from cowmlx.programs.operations.row import Spec
from cowmlx.steps import finished

NUMPY = {"bool": "bool", "complex64": "complex64"} | {
    name: name
    for name in (
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
}
"""numpy's names of dtypes; numpy has no bfloat16."""


@dataclass(eq=False)
class Weight:
    """An array of a file, which is read when it is needed.

    Args:
        name: its name in the file.
        spec: its dtype and shape.
        make: reads it, or makes it of the elements of another weight.
        uses: how many nodes read it.
        base: the other weight; None for an array that is in the file as it is.
    """

    name: str
    spec: Spec
    make: Callable[..., Any]
    uses: int = 1
    base: Weight | None = None

    def changed(self, spec: Spec, change: Callable[[Any], Any]) -> Weight:
        """Return the weight in another layout, under its name."""
        return Weight(self.name, spec, change, self.uses, self)

    def read(self) -> Any:
        """Return its elements as a numpy array."""
        return finished(self.read_steps())

    def read_steps(self) -> Steps[Any]:
        """Return its elements as a numpy array, in steps: it may have changed many times."""
        changes, weight, pace = [], self, Pace()
        while weight.base is not None:
            changes.append(weight.make)
            weight = weight.base
        array = weight.make()
        for change in reversed(changes):
            yield from pace.rest()
            array = change(array)
        return array


class Made(NamedTuple):
    """The node that computes a value."""

    op: str
    inputs: Sequence[Value | None]
    attributes: Mapping[str, Any]


@dataclass(eq=False)
class Value:
    """A value of a graph.

    Args:
        spec: its dtype and shape.
        scope: the graph whose nodes may read it.
        name: its name in the program, once it has one.
        known: its elements as a numpy array, if they do not depend on inputs; of objects, where
            some are symbolic dimensions.
        source: another value and axes: this is its transpose, which no node has computed yet.
        weight: the array of the file that it is.
        made: the node that computes it, if one does.
        bits: of its integers, where the file has fewer than the dtype.
    """

    spec: Spec
    scope: Any
    name: str | None = None
    known: Any = None
    source: tuple[Value, tuple[int, ...]] | None = None
    weight: Weight | None = None
    made: Made | None = None
    bits: int | None = None
    cache: dict[Any, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Its dimensions."""
        return self.spec.shape

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return self.spec.dtype

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.spec.shape)


def numpy_type(dtype: str) -> Any:
    """Return numpy's dtype of a name."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(NUMPY[dtype])


def name_of(array: Any) -> str:
    """Return the name of a numpy array's dtype."""
    return str(array.dtype)


def to_mlx(array: Any) -> mx.array:
    """Return a numpy array as mlx's, evaluated."""
    whole = np.ascontiguousarray(array)
    return array_of(whole.tobytes(), name_of(array), array.shape)


def to_numpy(array: mx.array) -> Any:
    """Return mlx's array as numpy's."""
    if array.dtype == mx.bfloat16:
        return np.array(array.astype(mx.float32)).astype(numpy_type("bfloat16"))
    return np.array(array)


def is_symbolic(array: Any) -> bool:
    """Whether a known value has dimensions without a number."""
    return array is not None and array.dtype == object


@dataclass
class Imported:
    """A program of a file.

    Args:
        entry: the program as JSON has it.
        weights: of parameters by their names.
    """

    entry: dict[str, Any]
    weights: dict[str, Weight]

    def arrays_steps(self) -> Steps[dict[str, mx.array]]:
        """Read the arrays of all parameters, in steps."""
        arrays = {}
        pace = Pace()
        for name, weight in self.weights.items():
            yield from pace.rest()
            arrays[name] = to_mlx((yield from weight.read_steps()))
        return arrays


def written_attribute(value: Any) -> Any:
    """Return an attribute, its numbers as JSON can have them."""
    if isinstance(value, list | tuple):
        return [written_attribute(item) for item in value]
    if isinstance(value, Symbolic):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return listed(np.array(value))
    return value.item() if isinstance(value, np.generic) else value


def listed(array: Any) -> Any:
    """Return a numpy array as nested lists that JSON can have."""
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype.kind == "c":
        values = [f"{item.real:.9g}{item.imag:+.9g}j" for item in array.ravel()]
        return np.array(values, object).reshape(array.shape).tolist()
    with np.errstate(invalid="ignore"):  # NaNs with odd bits
        wide = array.astype("float64")
    if np.isfinite(wide).all():
        return wide.tolist()
    plain = wide.astype(object)
    plain[np.isnan(wide)] = "nan"
    plain[np.isposinf(wide)] = "inf"
    plain[np.isneginf(wide)] = "-inf"
    return plain.tolist()
