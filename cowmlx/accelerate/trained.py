"""Operations of a training on a CPU: by kernels, with gradients written for them.

There mlx computes an exponential number by number, composes these operations of many small ones,
and repeats much of the work for the gradient.
"""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx.accelerate import kernels

# With more queries or keys, products of large matrices are faster.
_MOST_POSITIONS = 512

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def takes(*arrays: mx.array) -> bool:
    """Whether the CPU computes, and kernels have the types that gradients are written for."""
    return kernels.usable() and all(one.dtype == mx.float32 and one.ndim for one in arrays)


def keeps_scores(positions: int) -> bool:
    """Whether gradients of attention over so many positions need the scores of all heads."""
    return not kernels.usable() or positions > _MOST_POSITIONS


def _differentiable(
    function: Callable[..., Any], gradient: Callable[..., Any], *arrays: mx.array
) -> Any:
    """Call a function of arrays whose gradient is another's: of (arrays, cotangents, results)."""
    own: Any = mx.custom_function(function)
    own.vjp(gradient)
    return own(*arrays)


def _halves(pair: mx.array) -> tuple[mx.array, mx.array]:
    """Return the two elements of axis 0 as views, which indices would copy."""
    return pair[:1].squeeze(0), pair[1:].squeeze(0)


def softmax(x: mx.array) -> mx.array:
    """Softmax over the last axis of float32 (..., N)."""

    def gradient(_: Any, cotangent: mx.array, result: mx.array) -> mx.array:
        part = cotangent * result
        return part - result * part.sum(axis=-1, keepdims=True)

    result: mx.array = _differentiable(kernels.module().softmax, gradient, x)
    return result


def relu(x: mx.array) -> mx.array:
    """What is above 0 of float32 x; the gradient needs the result alone."""

    def gradient(_: Any, cotangent: mx.array, result: mx.array) -> mx.array:
        return cotangent * (result > 0)

    result: mx.array = _differentiable(lambda x: mx.maximum(x, 0), gradient, x)
    return result


def cross_entropy(logits: mx.array, targets: mx.array, exactly: bool = False) -> mx.array:
    """Return minus the log-probabilities of targets.

    Args:
        logits: (..., V) float32.
        targets: (...) integers; ones out of range are clamped.
        exactly: with mlx's bits, where it adds numbers in order; slower.

    Returns:
        (...) float32.
    """
    losses: mx.array = kernels.module().cross_entropy(logits, targets, exactly)
    return losses


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up of float32 (..., N)."""

    def gradient(given: Sequence[mx.array], cotangent: mx.array, _: Any) -> Sequence[mx.array]:
        gate, up = given
        part = kernels.module().gate(gate, activation="sigmoid")
        whole = gate * part
        return cotangent * up * (part + whole * (1 - part)), cotangent * whole

    result: mx.array = _differentiable(kernels.module().gate, gradient, gate, up)
    return result


def gelu(x: mx.array) -> mx.array:
    """Multiply float32 (..., N) by the normal distribution function of it."""
    result: mx.array = kernels.module().gate(x, activation="gelu")
    return result


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """Divide rows of float32 (..., N) by their root mean square, times weight (N,)."""
    result: mx.array = kernels.module().rms_norm(x, weight, eps)
    return result


def layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    """Normalize rows of float32 (..., N): (x - mean) / deviation * weight (N,) + bias (N,).

    Source: Ba et al., 2016, "Layer Normalization".
    """
    result: mx.array = kernels.module().layer_norm(x, weight, bias, eps)
    return result


def batch_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    """Normalize channels of float32 (..., C): (x - mean) / deviation * weight (C,) + bias (C,).

    The statistics are those of the batch.

    Source: Ioffe and Szegedy, 2015, "Batch Normalization".
    """
    count = math.prod(x.shape[:-1])
    factor = mx.ones(x.shape[-1:]) if weight is None else weight
    offset = mx.zeros(x.shape[-1:]) if bias is None else bias

    def statistics(x: mx.array) -> tuple[mx.array, mx.array]:
        mean, variance = _halves(kernels.module().channel_moments(x))
        return mean, mx.rsqrt(variance + eps)

    def function(x: mx.array, factor: mx.array, offset: mx.array) -> mx.array:
        mean, scale = statistics(x)
        return (x - mean) * (scale * factor) + offset

    def gradient(given: Any, cotangent: mx.array, _: Any) -> Any:
        x, factor, _ = given
        mean, scale = statistics(x)  # which a recording computes once
        total, product = _halves(kernels.module().channel_sums(cotangent, x, mean))
        if count == 0:
            return x, total, total
        along = product * scale
        slope = along / count * scale
        # Not the forward's x - mean, which would be kept for this.
        of_x = (factor * scale) * (cotangent - total / count + (mean - x) * slope)
        return of_x, along, total

    result: mx.array = _differentiable(function, gradient, x, factor, offset)
    return result


def attention(
    q: mx.array, k: mx.array, v: mx.array, scale: float, mask: str | mx.array | None
) -> mx.array:
    """Attend, as ``mlx.core.fast.scaled_dot_product_attention`` without sinks does.

    Args:
        q: (B, H, L, D) float32.
        k: (B, G, S, D), where G divides H.
        v: (B, G, S, E).
        scale: of the products.
        mask: "causal", or an array that is added or, of bool, keeps what is true; or None.
    """
    rows, heads, length, size = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if max(length, keys) <= _MOST_POSITIONS and q.size and k.size and v.size:
        causal = isinstance(mask, str) and bool(mask)
        added = mask if isinstance(mask, mx.array) else None
        if added is not None and added.dtype != mx.bool_:
            added = added.astype(mx.float32)
        result: mx.array = kernels.module().trained_attention(
            q, k, v, scale=scale, causal=causal, mask=added
        )
        return result
    parted = (rows, groups, heads // groups, length)
    scores = (q * scale).reshape(*parted, size) @ k[:, :, None].swapaxes(-1, -2)
    if isinstance(mask, str):
        mask = mx.arange(keys - length, keys)[:, None] >= mx.arange(keys) if mask else None
    if mask is not None:
        if mask.ndim > 2:  # of heads
            mask = mx.broadcast_to(mask, (*mask.shape[:-3], heads, *mask.shape[-2:]))
            mask = mask.reshape(*mask.shape[:-3], groups, heads // groups, *mask.shape[-2:])
        is_kept = mask.dtype == mx.bool_
        least = mx.finfo(mx.float32).min
        scores = mx.where(mask, scores, least) if is_kept else scores + mask
    return (softmax(scores) @ v[:, :, None]).reshape(rows, heads, length, v.shape[-1])
