"""Arrays and attributes as the JSON of a program has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cowmlx.programs.dimensions import Symbolic


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
