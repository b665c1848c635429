"""The update of parameters: gradient clipping and the optimizer, traced once for all steps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.optimizers import clip_grad_norm

from cowmlx.accelerate import kernels, trained
from cowmlx.programs.operations.half import widened
from cowmlx.programs.running.compiling import Unit
from cowmlx.programs.running.flags import Flags
from cowmlx.training.optimizers import Optimizer

# Bounds of parameters whose update is recorded. With larger ones, building a graph costs little.
MOST_BYTES = 16 << 20
MOST_PARAMETERS = 256


def clipped(
    gradients: Mapping[str, mx.array], value: float, norm: float
) -> tuple[dict[str, mx.array], mx.array]:
    """Return clipped gradients, and their Euclidean norm before, float32 or wider; lazily.

    Args:
        gradients: by the names of parameters.
        value: elements are clipped to ±value first; 0: they are not.
        norm: then all are scaled so that their norm together is at most this, as in
            ``mlx.optimizers.clip_grad_norm``; 0: they are not.
    """
    own = dict(gradients)
    wide = _widened(own)
    if trained.takes(*wide.values()):
        before = kernels.module().norm(list(wide.values()))
    else:
        _, before = clip_grad_norm(wide, 1.0)
    if value > 0:
        own = {name: mx.clip(array, -value, value) for name, array in own.items()}
    if norm > 0:
        scaled, _ = clip_grad_norm(_widened(own), norm)
        own = {name: array.astype(own[name].dtype) for name, array in scaled.items()}
    return own, before


def _widened(gradients: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """Return gradients whose sum of squares is float32 or wider."""
    return {name: widened(gradient) for name, gradient in gradients.items()}


class Update:
    """Clips gradients and lets an optimizer update parameters.

    Args:
        optimizer: a call advances its state.
        clip_value: see :func:`clipped`.
        clip_norm: likewise.
        parameters: the trained ones.

    Attributes:
        is_computed: whether the arrays of the last update are already computed.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        clip_value: float,
        clip_norm: float,
        parameters: Mapping[str, mx.array],
    ) -> None:
        self.is_computed = False
        self._optimizer = optimizer
        self._bounds = clip_value, clip_norm
        self._names = list(parameters)
        size = sum(array.nbytes for array in parameters.values())
        on_cpu = mx.default_device().type == mx.cpu and kernels.available()
        is_small = size <= MOST_BYTES and len(self._names) <= MOST_PARAMETERS
        own = weakref.ref(self)  # no reference cycle, which would keep the arrays
        self._unit = Unit(partial(_traced, own), steady=False) if on_cpu and is_small else None

    def __call__(
        self, gradients: dict[str, mx.array], parameters: Mapping[str, mx.array]
    ) -> tuple[dict[str, mx.array], mx.array]:
        """Return the parameters after a step, and the gradients' norm before clipping.

        Args:
            gradients: by the names of parameters; emptied.
            parameters: the trained ones.
        """
        self.is_computed = False
        if self._unit is None:
            own, norm = clipped(gradients, *self._bounds)
            gradients.clear()
            return self._optimizer.updated(own, parameters), norm
        state, counts = self._optimizer.arrays(), self._optimizer.counts()
        given = [gradients[name] for name in self._names]
        given += [parameters[name] for name in self._names]
        given += state
        gradients.clear()
        computed = self._unit.at_once(given)
        self.is_computed = computed is not None
        (norm, *rest), _ = self._unit(given) if computed is None else computed
        count = len(self._names)
        after = rest[count:]
        for at in counts:
            after.insert(at, _next(state[at]))
        self._optimizer.set_arrays(after)
        return dict(zip(self._names, rest[:count], strict=True)), norm

    def trace(self, arrays: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
        """Return what a step makes of arrays, which are tracers."""
        count, before = len(self._names), self._optimizer.copy_of_state()
        gradients = dict(zip(self._names, arrays[:count], strict=False))
        parameters = dict(zip(self._names, arrays[count : 2 * count], strict=False))
        counts = self._optimizer.counts()
        try:
            self._optimizer.set_arrays(arrays[2 * count :])
            own, norm = clipped(gradients, *self._bounds)
            updated = self._optimizer.updated(own, parameters)
            state = self._optimizer.arrays()
        finally:
            self._optimizer.restore(before)
        # Kernels have no integers.
        results = [array for at, array in enumerate(state) if at not in counts]
        return [norm, *[updated[name] for name in self._names], *results], {}


def _traced(
    update: weakref.ref[Update], arrays: Sequence[mx.array]
) -> tuple[list[mx.array], Flags]:
    own = update()
    assert own is not None
    return own.trace(arrays)


def _next(count: mx.array) -> mx.array:
    number: Any = count.item()
    return mx.array(number + 1, count.dtype)
