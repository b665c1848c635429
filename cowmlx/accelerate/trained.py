"""Operations that are trained through on a CPU: by kernels, with gradients of their own.

mlx computes an exponential number by number there, puts what is below together from many small
operations, and does much of it again for the gradient.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def takes(*arrays: mx.array) -> bool:
    """Whether the CPU computes, and kernels have the types that gradients are written for."""
    on_cpu = mx.default_device().type == mx.cpu and kernels.available()
    return on_cpu and all(array.dtype == mx.float32 and array.ndim for array in arrays)


def softmax(x: mx.array) -> mx.array:
    """Softmax over the last axis of float32 (..., N)."""

    @mx.custom_function
    def function(x: mx.array) -> mx.array:
        made: mx.array = kernels.module().softmax(x)
        return made

    @function.vjp
    def gradient(_: Any, cotangent: mx.array, made: mx.array) -> mx.array:
        part = cotangent * made
        return part - made * part.sum(axis=-1, keepdims=True)

    found: Any = function(x)
    made: mx.array = found
    return made


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """Return minus the log-probabilities of targets.

    Args:
        logits: (..., V) float32.
        targets: (...) integers.

    Returns:
        (...) float32.
    """
    wanted = targets[..., None]

    @mx.custom_function
    def function(logits: mx.array) -> tuple[mx.array, mx.array]:
        probabilities: mx.array = kernels.module().softmax(logits)
        # The greatest is at least 1/V, so that its logarithm is exact where others' are infinite.
        norm = logits.max(axis=-1) - mx.log(probabilities.max(axis=-1))
        chosen = mx.take_along_axis(logits, wanted, axis=-1).squeeze(-1)
        return norm - chosen, probabilities

    @function.vjp
    def gradient(_: Any, cotangents: Any, made: Any) -> mx.array:
        by, probabilities = cotangents[0][..., None], made[1]
        chosen = (mx.take_along_axis(probabilities, wanted, axis=-1) - 1) * by
        return mx.put_along_axis(probabilities * by, wanted, chosen, axis=-1)

    found: Any = function(logits)
    losses: mx.array = found[0]
    return losses


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up of float32 (..., N)."""

    @mx.custom_function
    def function(gate: mx.array, up: mx.array) -> mx.array:
        made: mx.array = kernels.module().gate(gate, up, activation="silu")
        return made

    @function.vjp
    def gradient(given: Sequence[mx.array], cotangent: mx.array, _: Any) -> Sequence[mx.array]:
        gate, up = given
        part = kernels.module().gate(gate, activation="sigmoid")
        whole = gate * part
        return cotangent * up * (part + whole * (1 - part)), cotangent * whole

    found: Any = function(gate, up)
    made: mx.array = found
    return made


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """Divide rows of float32 (..., N) by their root mean square, times weight (N,)."""

    def gradient_of_x(x: mx.array, by: mx.array) -> tuple[mx.array, mx.array]:
        scale = mx.rsqrt(mx.square(x).mean(axis=-1, keepdims=True) + eps)
        normed = x * scale
        return scale * (by - normed * (by * normed).mean(axis=-1, keepdims=True)), normed

    if weight is None:

        @mx.custom_function
        def plain(x: mx.array) -> mx.array:
            made: mx.array = kernels.module().rms_norm(x, None, eps)
            return made

        @plain.vjp
        def gradient_of_plain(x: mx.array, cotangent: mx.array, _: Any) -> mx.array:
            return gradient_of_x(x, cotangent)[0]

        found: Any = plain(x)
    else:

        @mx.custom_function
        def weighed(x: mx.array, weight: mx.array) -> mx.array:
            made: mx.array = kernels.module().rms_norm(x, weight, eps)
            return made

        @weighed.vjp
        def gradient(given: Sequence[mx.array], cotangent: mx.array, _: Any) -> Sequence[mx.array]:
            x, weight = given
            of_x, normed = gradient_of_x(x, cotangent * weight)
            rows = tuple(range(x.ndim - 1))
            return of_x, (cotangent * normed).sum(axis=rows)

        found = weighed(x, weight)
    made: mx.array = found
    return made


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
