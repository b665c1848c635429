"""Random numbers, each from a key that is an input: the same key gives the same numbers."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.creation import SHAPE
from cowmlx.programs.operations.making import example, mlx_dtype, row
from cowmlx.programs.operations.promotion import FLOATS
from cowmlx.programs.operations.row import Attribute, Attributes, Input, Spec
from cowmlx.programs.operations.rules import require_dtype, shapes_refused, spec, value_refused

KEY = Input("key", about="A random key: uint32 of shape (2,), from random_key or random_split.")
DTYPE = Attribute("dtype", "dtype", "float32", "The result's dtype, a float.")


def require_key(operation: str, given: Spec) -> None:
    """Check that an input is a random key.

    Raises:
        OperationError: it is not uint32 of shape (2,).
    """
    require_dtype(operation, "key", given, ("uint32",))
    if given.shape != (2,):
        raise shapes_refused(operation, [given.shape], "a key has the shape (2,)")


def require_float(operation: str, attributes: Attributes) -> None:
    """Check that the wanted dtype is a float."""
    if attributes["dtype"] not in FLOATS:
        raise value_refused(operation, "dtype", attributes["dtype"], ", ".join(FLOATS))


def _drawn(name: str) -> Any:
    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        require_key(name, inputs[0])
        require_float(name, attributes)
        return [spec(name, attributes["shape"], attributes["dtype"])]

    return infer


def _normal(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    return [
        mx.random.normal(
            attributes["shape"],
            mlx_dtype(attributes["dtype"]),
            attributes["loc"],
            attributes["scale"],
            key=arrays[0],
        )
    ]


ROWS = (
    row(
        "random_normal",
        (KEY,),
        _drawn("random_normal"),
        _normal,
        "Numbers of a normal distribution.",
        "out ~ N(loc, scale^2)",
        [
            example("uint32[2]", shape=[2, 3]),
            example("uint32[2]", shape=[], loc=3.0, scale=0.5, dtype="float16"),
            example("uint32[2]", shape=[0]),
        ],
        aliases=("normal", "randn"),
        attributes=(
            SHAPE,
            DTYPE,
            Attribute("loc", "float", 0.0, "The mean."),
            Attribute("scale", "float", 1.0, "The standard deviation."),
        ),
    ),
)
