"""Gradients of the micro-batches of a batch: summed, divided by all targets, clipped."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
from mlx.optimizers import clip_grad_norm


def widened(array: mx.array) -> mx.array:
    """Return floats of 16 bits in float32, others as they are."""
    return array.astype(mx.float32) if array.dtype in (mx.float16, mx.bfloat16) else array


class Sums:
    """What the micro-batches of a batch come to.

    A loss that is a sum over targets is divided by their number once all are known: a mean over the
    targets of the whole batch, not a mean of means. Sums of 16 bits are kept in float32.

    Args:
        of_means: whether losses and gradients are means over targets: they are weighed with these,
            unless there is one micro-batch, whose mean stays as it is to the bit.
    """

    def __init__(self, of_means: bool) -> None:
        self._of_means = of_means
        self._count = 0
        self._loss = mx.array(0.0, mx.float32)
        self._targets = mx.array(0.0, mx.float32)
        self._gradients: dict[str, mx.array] = {}
        self._dtypes: dict[str, mx.Dtype] = {}
        self._first: tuple[mx.array, dict[str, mx.array]] | None = None

    def add(self, loss: mx.array, targets: mx.array, gradients: Mapping[str, mx.array]) -> None:
        """Add a micro-batch, lazily."""
        self._count += 1
        number = targets.astype(mx.float32)
        if self._of_means and self._count == 1:
            self._first = loss, dict(gradients)
        elif self._of_means:
            if self._first is not None:
                before, first = self._first
                self._first = None
                self._add(before * self._targets, first, self._targets)
            self._add(loss * number, gradients, number)
        else:
            self._add(loss, gradients, None)
        self._targets = self._targets + number

    def _add(
        self, loss: mx.array, gradients: Mapping[str, mx.array], weight: mx.array | None
    ) -> None:
        self._loss = self._loss + widened(loss)
        for name, gradient in gradients.items():
            self._dtypes[name] = gradient.dtype
            wide = widened(gradient)
            if weight is not None:
                wide = wide * weight.astype(wide.dtype)
            known = self._gradients.get(name)
            self._gradients[name] = wide if known is None else known + wide

    @property
    def arrays(self) -> list[mx.array]:
        """All that is still to be computed."""
        loss, gradients = self._first or (self._loss, self._gradients)
        return [loss, self._targets, *gradients.values()]

    @property
    def targets(self) -> mx.array:
        """The number of targets so far."""
        return self._targets

    def mean(self) -> tuple[mx.array, dict[str, mx.array]]:
        """Return the mean loss, float32 or wider, and gradients in the parameters' dtypes; lazy."""
        if self._first is not None:
            loss, first = self._first
            return widened(loss), first
        found = {
            name: (gradient / self._targets.astype(gradient.dtype)).astype(self._dtypes[name])
            for name, gradient in self._gradients.items()
        }
        return self._loss / self._targets, found


def clipped(
    gradients: Mapping[str, mx.array], value: float, norm: float
) -> tuple[dict[str, mx.array], mx.array]:
    """Return gradients as the optimizer gets them, and their norm before; lazily.

    Args:
        gradients: by the names of parameters.
        value: every element is brought within ±value first; 0: none is.
        norm: then all are scaled so that their norm together is at most this, as
            ``mlx.optimizers.clip_grad_norm`` does it; 0: they are not.

    Returns:
        The gradients; the Euclidean norm of all of them as they were given, float32 or wider.
    """
    own = dict(gradients)
    _, before = clip_grad_norm(own, 1.0)
    if value > 0:
        own = {name: mx.clip(each, -value, value) for name, each in own.items()}
    if norm > 0:
        own, _ = clip_grad_norm(own, norm)
    return own, before
