"""Whether two results are the same, exactly or but for rounding."""

from __future__ import annotations

import numpy as np

from support.fuzz.inputs import INEXACT, Array

ROUNDING = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 2e-5,
    "float64": 1e-6,
    "complex64": 5e-5,
}


def difference(found: Array, wanted: Array, loose: float = 1.0, least: float = 0.0) -> str:
    """How a result differs from the one that is wanted; empty if it does not.

    Args:
        found: the result.
        wanted: what it should be, in the same dtype and shape.
        loose: by what rounding is multiplied.
        least: the size of numbers whose rounding a result may have, if it is smaller itself.
    """
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"shape: {found.dtype}{found.shape} for {wanted.dtype}{wanted.shape}"
    if found.data.tobytes() == wanted.data.tobytes():
        return ""
    one, other = found.numbers, wanted.numbers
    if found.dtype not in INEXACT:
        places = np.argwhere(one != other)
        return f"numbers: {len(places)} differ, {_shown(one, other, places[0])}"
    return parts_differ(one, other, ROUNDING[found.dtype] * loose, least)


def parts_differ(one: np.ndarray, other: np.ndarray, rounding: float, least: float = 0.0) -> str:
    """How inexact numbers differ by more than rounding, which is of a complex number's size."""
    if np.iscomplexobj(one):
        other = np.asarray(other, np.complex128)
        least = np.max(np.abs(other), initial=least, where=np.isfinite(other))
        return parts_differ(one.real, other.real, rounding, least) or parts_differ(
            one.imag, other.imag, rounding, least
        )
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    wrong = np.isnan(one) != np.isnan(other)
    if not wrong.any():
        infinite = np.isinf(one) | np.isinf(other)
        wrong = infinite & (one != other) & ~np.isnan(one)
    if not wrong.any():
        finite = np.isfinite(one) & np.isfinite(other)
        scale = np.max(np.abs(other), initial=max(1e-4, least), where=finite)
        with np.errstate(all="ignore"):
            wrong = finite & (np.abs(one - other) > rounding * scale)
    if not wrong.any():
        return ""
    places = np.argwhere(wrong)
    return f"numbers: {len(places)} of {one.size} differ, {_shown(one, other, places[0])}"


def _shown(one: np.ndarray, other: np.ndarray, place: np.ndarray) -> str:
    at = tuple(place.tolist())
    return f"{one[at]} for {other[at]} at {list(at)}"
