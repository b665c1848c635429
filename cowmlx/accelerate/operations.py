"""What ``mlx.core.fast`` means, by kernels, where the CPU computes and they take the arguments.

Each function has the signature of mlx's own of that name, and leaves to that whatever kernels do
not take. On a CPU mlx puts such an operation together from ten to thirty small ones.
"""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx

from cowmlx.accelerate import kernels, trained
from cowmlx.accelerate import rope as positions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)
_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")  # without parameters, of rows
_CACHE_BITS = (4, 8)
_CACHE_GROUP = 32


class Scope:
    """A ``with`` statement that knows whether it is entered."""

    def __init__(self) -> None:
        self.entered = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Enter it, perhaps within itself."""
        before, self.entered = self.entered, True
        try:
            yield
        finally:
            self.entered = before


# While a training issues operations, they are mlx's own, or those of ``trained``: kernels leave
# their gradients to mlx's, so that each would be computed twice.
plainly = Scope()


def rms_norm(x: mx.array, weight: mx.array | None, eps: float, *, stream: Any = None) -> mx.array:
    """As ``mlx.core.fast.rms_norm``."""
    if _takes(stream, x) and _is_vector(weight):
        made: mx.array = kernels.module().rms_norm(x, weight, eps)
        return made
    if _is_trained(stream, x, weight):
        return trained.rms_norm(x, weight, eps)
    return mx.fast.rms_norm(x, weight, eps, stream=stream)


def layer_norm(
    x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float, *, stream: Any = None
) -> mx.array:
    """As ``mlx.core.fast.layer_norm``."""
    if _takes(stream, x) and _is_vector(weight) and _is_vector(bias):
        made: mx.array = kernels.module().layer_norm(x, weight, bias, eps)
        return made
    if _is_trained(stream, x, weight, bias):
        return trained.layer_norm(x, weight, bias, eps)
    return mx.fast.layer_norm(x, weight, bias, eps, stream=stream)


def rope(
    a: mx.array,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None = None,
    stream: Any = None,
) -> mx.array:
    """As ``mlx.core.fast.rope``; layers that ask for the same angles share them."""
    fits = a.ndim >= 3 and 0 < dims <= a.shape[-1] and dims % 2 == 0
    is_taken = _takes(stream, a) or _is_trained(stream, a)
    if is_taken and fits and (base is None) != (freqs is None):
        turned = positions.shared(dims, base, freqs, scale).get(offset, a.shape[-2])
        if turned.shape[0] in (1, a.shape[0]):
            made: mx.array = kernels.module().rotate(a, turned, traditional=traditional)
            return made
    return mx.fast.rope(
        a, dims, traditional=traditional, base=base, scale=scale, offset=offset, freqs=freqs,
        stream=stream,
    )  # fmt: skip


def scaled_dot_product_attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    *,
    scale: float,
    mask: str | mx.array | None = None,
    sinks: mx.array | None = None,
    stream: Any = None,
    **others: Any,
) -> mx.array:
    """As ``mlx.core.fast.scaled_dot_product_attention``."""
    if not others and _takes(stream, q, k, v) and q.ndim == 4 and _is_mask(mask):
        made: mx.array = kernels.module().attention(q, k, v, scale=scale, mask=mask, sinks=sinks)
        return made
    if sinks is None and not others and _is_trained(stream, q, k, v) and q.ndim == 4:
        return trained.attention(q, k, v, scale, mask)
    return mx.fast.scaled_dot_product_attention(
        q, k, v, scale=scale, mask=mask, sinks=sinks, stream=stream, **others
    )


def takes_quantized(queries: mx.array, bits: int, group_size: int) -> bool:
    """Whether kernels attend to keys and values that are quantized so."""
    fits = bits in _CACHE_BITS and group_size % _CACHE_GROUP == 0
    return fits and _takes(None, queries) and queries.ndim == 4


def quantized_attention(
    queries: mx.array,
    keys: tuple[mx.array, mx.array, mx.array],
    values: tuple[mx.array, mx.array, mx.array],
    scale: float,
    mask: str | mx.array | None,
    group_size: int,
    bits: int,
) -> mx.array:
    """Attend to keys and values (weights, scales, biases) of mlx-lm's quantized caches."""
    made: mx.array = kernels.module().attention_quantized(
        queries, keys, values, scale=scale, bits=bits, group=group_size, mask=mask
    )
    return made


def softmax(x: mx.array) -> mx.array | None:
    """Return the softmax over the last axis, in float32; None where kernels do not take it."""
    if _is_trained(None, x):
        return trained.softmax(x)
    if not _takes(None, x):
        return None
    made: mx.array = kernels.module().softmax(x)
    return made


def relu(x: mx.array) -> mx.array:
    """Return what is above 0, of any type."""
    return trained.relu(x) if _is_trained(None, x) else mx.maximum(x, 0)


def batch_norm(
    x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float
) -> mx.array | None:
    """Return channels normalized by their batch statistics; None unless a gradient is traced.

    Args:
        x: (..., C).
        weight: (C,), a factor of each channel; None: 1.
        bias: (C,); None: 0.
        eps: added to the variance.
    """
    if _is_trained(None, x, weight, bias):
        return trained.batch_norm(x, weight, bias, eps)
    return None


def convolution(
    x: mx.array, weight: mx.array, padding: Sequence[tuple[int, int]], **steps: Any
) -> mx.array | None:
    """Return a convolution, or None where kernels do not take it.

    Args:
        x: (N, 1 to 3 axes, C) float32, float16 or bfloat16; computed as float32.
        weight: (O, as many axes, C / groups), of the same dtype.
        padding: zeros before and behind each axis; below 0 elements are cut off.
        steps: the other arguments of ``mlx.core.conv_general``.
    """
    is_known = x.dtype == weight.dtype and x.dtype in _FLOATS and x.size > 0
    if not is_known or mx.default_device().type != mx.cpu or not kernels.available():
        return None
    if weight.size // weight.shape[0] > kernels.module().MOST_COLUMNS:
        return None
    wide = [array.astype(mx.float32) for array in (x, weight)]  # itself, if it is float32
    made: mx.array = kernels.module().convolution(*wide, padding=padding, **steps)
    return made.astype(x.dtype)


def gelu(x: mx.array) -> mx.array | None:
    """Return the gelu of numbers whose gradient is wanted; None where kernels do not take them."""
    return trained.gelu(x) if x.size and _is_trained(None, x) else None


def gated(gate: mx.array, up: mx.array, activation: str) -> mx.array | None:
    """Return activation(gate) * up, or None where kernels do not take them."""
    if gate.shape != up.shape or not gate.ndim:
        return None
    if activation == "silu" and _is_trained(None, gate, up):
        return trained.swiglu(gate, up)
    if not _takes(None, gate, up):
        return None
    made: mx.array = kernels.module().gate(gate, up, activation=activation)
    return made


def activated(x: mx.array, up: mx.array | None, activation: str) -> mx.array | None:
    """Return activation(x), times ``up`` where given, or None where kernels do not take them."""
    if activation not in _ACTIVATIONS or not _takes(None, x):
        return None
    if up is not None:
        return gated(x, up, activation)
    made: mx.array = kernels.module().gate(x, activation=activation)
    return made


def pooled(
    hidden: mx.array, groups: Sequence[tuple[int, int, int]], kind: str, skipped: int, unit: bool
) -> mx.array | None:
    """Return a vector of each text (B, D), or None where kernels do not take the states.

    Args:
        hidden: (N, D), of the tokens of all texts.
        groups: (start, texts, length) of neighbours of one length.
        kind: "cls", "last", "max", "mean" or "weighted".
        skipped: tokens of each text that do not count, unless it has no more.
        unit: whether vectors get length 1.
    """
    if hidden.dtype != mx.float32 or not _takes(None, hidden):
        return None
    made: mx.array = kernels.module().pool_texts(hidden, groups, kind, skipped, unit)
    return made


def _takes(stream: Any, *arrays: mx.array) -> bool:
    """Whether the CPU computes, on its own stream, and kernels know the types."""
    if plainly.entered or stream is not None or mx.default_device().type != mx.cpu:
        return False
    return kernels.available() and all(array.dtype in _FLOATS and array.ndim for array in arrays)


def _is_trained(stream: Any, *arrays: mx.array | None) -> bool:
    """Whether there are gradients of our own for arrays of these types."""
    if not plainly.entered or stream is not None:
        return False
    return trained.takes(*(array for array in arrays if array is not None))


def _is_vector(array: mx.array | None) -> bool:
    return array is None or (array.ndim == 1 and array.dtype in _FLOATS)


def _is_mask(mask: str | mx.array | None) -> bool:
    if isinstance(mask, mx.array):
        return mask.dtype == mx.bool_ or mask.dtype in _FLOATS
    return mask in (None, "causal")
