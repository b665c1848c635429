"""Arrays for tests of kernels, and how far rounding may lead from float64."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st
from support.kernel_module import needed

DIM = 128  # of the layer that stores what it is given
TYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
# Half of the distance between neighbouring numbers, and what sums of float32 add to it.
PRECISION = {"float32": 3e-6, "float16": 2**-11 + 3e-6, "bfloat16": 2**-8 + 3e-6}
VIEWS = ("plain", "strided", "flipped", "swapped")

types = st.sampled_from(list(TYPES))
views = st.sampled_from(VIEWS)


def exact(array: mx.array) -> np.ndarray:
    """The same numbers in float64."""
    return np.array(array.astype(mx.float32), dtype=np.float64)


def random(shape: tuple[int, ...], type_: str, seed: int = 0, scale: float = 1) -> mx.array:
    return (mx.random.normal(shape, key=mx.random.key(seed)) * scale).astype(TYPES[type_])


def viewed(array: mx.array, view: str) -> mx.array:
    """The same numbers, lying otherwise in memory."""
    if view == "strided":
        wide = mx.repeat(array, 2, axis=-1)
        mx.eval(wide)
        return wide[..., ::2]
    if view == "flipped":
        turned = mx.contiguous(array[::-1])
        mx.eval(turned)
        return turned[::-1]
    if view == "swapped" and array.ndim > 2:
        swapped = mx.contiguous(array.swapaxes(-2, -3))
        mx.eval(swapped)
        return swapped.swapaxes(-2, -3)
    return array


def close(found: mx.array, wanted: np.ndarray, scale: np.ndarray | float = 0) -> bool:
    """Whether numbers are right up to rounding: of each itself, and of terms as large as scale."""
    precision = PRECISION[str(found.dtype).removeprefix("mlx.core.")]
    assert found.shape == wanted.shape
    allowed = precision * np.abs(wanted) + PRECISION["float32"] * scale + 1e-7
    return bool(np.all(np.abs(exact(found) - wanted) <= allowed))


def identity() -> Any:
    """A layer that stores its activations as keys and as values, and adds what it attends to."""
    module = needed()
    one = module.Matrix(module.pack(mx.eye(DIM)), rows=DIM)
    half = {
        **dict.fromkeys(("query", "key", "value", "out"), one),
        **{"heads": 1, "groups": 1, "norm_per_head": True, "scale": 0.1, "soft_cap": 0.0},
        **{"residual": 1.0, "window": 0, "place": 0},
        **{"table": -1, "turning": 0, "traditional": False},
    }
    return module.make_layers(DIM, [{"attention": half, "mlp": None}], False, {})
