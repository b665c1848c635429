"""Arrays made of nothing but a shape."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.making import example, mlx_dtype, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import spec

SHAPE = Attribute("shape", "shape", REQUIRED, "The result's shape.")
DTYPE = Attribute("dtype", "dtype", "float32", "The result's dtype.")


def _shaped(name: str) -> Any:
    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        return [spec(name, attributes["shape"], attributes["dtype"])]

    return infer


ROWS = (
    row(
        "zeros",
        (),
        _shaped("zeros"),
        lambda arrays, attributes: [mx.zeros(attributes["shape"], mlx_dtype(attributes["dtype"]))],
        "An array of zeros.",
        "out = 0",
        [example(shape=[2, 3]), example(shape=[], dtype="int32"), example(shape=[0, 2])],
        attributes=(SHAPE, DTYPE),
    ),
)
