"""Samples of the values of weights, by which hashes tell models apart."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    import mlx.core as mx

# Values taken of one weight, on a grid over all of it.
_VALUES = 4096
# Weights hashed at a time.
_GROUP = 16


def hash_steps(named: Sequence[tuple[str, Any, Any]]) -> Generator[None, None, None]:
    """Hash names, shapes, types and samples of the values of weights, a group of them a step.

    Args:
        named: the name of each, its array or what is sliced as one, and the hash that it goes into.
    """
    for start in range(0, len(named), _GROUP):
        group = named[start : start + _GROUP]
        samples = _samples([array for _, array, _ in group])
        for (name, array, digest), sample in zip(group, samples, strict=True):
            digest.update(f"{name} {array.shape} {array.dtype}\n".encode())
            digest.update(memoryview(sample))  # type: ignore[arg-type]
        yield


def _samples(arrays: list[Any]) -> list[mx.array]:
    """Return the bytes of some values of each array, evaluated."""
    import mlx.core as mx

    samples = [mx.contiguous(array[_grid(array.shape)]).reshape(-1) for array in arrays]
    samples = [sample.view(mx.uint8) for sample in samples]
    mx.eval(samples)
    return samples


def _grid(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return slices that take at most about ``_VALUES`` values, spread over every axis."""
    slices = [slice(None)] * len(shape)
    left = float(_VALUES)
    by_size = sorted(range(len(shape)), key=lambda axis: shape[axis])
    for position, axis in enumerate(by_size):
        share = max(1, round(left ** (1 / (len(shape) - position))))
        slices[axis] = slice(None, None, max(1, -(-shape[axis] // share)))
        left /= max(1, min(shape[axis], share))
    return (*slices, ...)
