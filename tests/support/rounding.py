"""How near our numbers have to be to plain mlx-lm's.

Without kernels they are made by the same operations. Kernels add up the same numbers in another
order, so that both are roundings of the same exact numbers: ours may not be a worse one. How far
plain mlx-lm itself is off is computed beside it (``support/float64.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cowmlx.accelerate import kernels

# Of an element, without kernels.
STRICT = 1e-5
# Two roundings of one number differ by chance, most where a network makes much of one early sum:
# over the tests' models, and with any of x86's instruction sets, kernels' errors are 0.2 to 2.6
# times plain mlx-lm's.
FACTOR = 4.0
# What rounding the exact number to float32 costs at most, relative to it: nobody can do better.
_UNIT = 2.0**-24


def assert_as_exact(
    own: Any, plain: Any, error: Any, strict: float = STRICT, factor: float = FACTOR
) -> None:
    """Fail unless our numbers are plain mlx-lm's, but for the order of sums.

    Args:
        own: ours, of any shape.
        plain: those of plain mlx-lm in float32.
        error: how much these are more than the exact ones.
        strict: what an element may differ by without kernels, relative and absolute.
        factor: how many times plain mlx-lm's error ours may be with kernels.
    """
    own, plain, error = (np.asarray(each, np.float64) for each in (own, plain, error))
    assert own.shape == plain.shape == error.shape
    if not kernels.available():
        np.testing.assert_allclose(own, plain, rtol=strict, atol=strict)
        return
    allowed = factor * max(_size(error), _UNIT * _size(plain))
    assert _size(own - plain + error) <= allowed


def _size(numbers: Any) -> float:
    """The root of the mean of the squares."""
    return float(np.sqrt(np.mean(np.square(numbers))))
