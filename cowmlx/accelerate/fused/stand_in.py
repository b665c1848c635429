"""Classes that take the place of a network's, and compute fused where a call allows it.

An instance keeps its attributes and gets another class, a subclass of its class. Its ``_fused``
computes; without one, as in a copy of a network, the network's code does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager

import mlx.core as mx

from cowmlx.accelerate.operations import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cowmlx.accelerate.fused.proof import Rest
    from cowmlx.accelerate.fused.run import Run


_TOKENS = (mx.int32, mx.uint32)
_ACTIVATIONS = (mx.float32, mx.float16, mx.bfloat16)
_made: dict[type, type] = {}


# While networks are called, their own code computes, and refuses what it always did.
plainly = Scope()


class Fused(ABC):
    """Computes in a module's place.

    Attributes:
        run: of layers with caches, if it is one.
    """

    run: Run | None = None

    def __deepcopy__(self, memo: Any) -> None:
        """Return None: a copy of a network may get other weights, and proves its layers again."""
        return None

    @abstractmethod
    def take(self, *args: Any, **kwargs: Any) -> mx.array | None:
        """Return what the module gives, or None if this call is not one that it takes."""


class FusedLayer(Fused):
    """Computes a decoder layer: a run of kernels, then the rest of the layer in Python."""

    run: Run

    def __init__(self, run: Run, rest: Rest | None) -> None:
        self.run = run
        self._rest = rest

    def take(self, x: Any, mask: Any = None, cache: Any = None, *more: Any) -> mx.array | None:
        """Return what the layer gives, or None if this call is not one that it takes."""
        if cache is None or more or x.ndim != 3 or x.dtype not in _ACTIVATIONS:
            return None
        made = self.run.take(x, [cache], x.dtype, x.dtype, False)
        return made if made is None or self._rest is None else self._rest(made)


class FusedNetwork(Fused):
    """All layers, and what is around them: from tokens to what the head reads."""

    run: Run

    def __init__(self, run: Run, embedding: Any, dtype: mx.Dtype) -> None:
        self.run = run
        self._embedding = embedding
        self._dtype = dtype

    def take(self, inputs: Any, cache: Any = None, *more: Any) -> mx.array | None:
        """Return what the network gives, or None if this call is not one that it takes."""
        if cache is None or any(argument is not None for argument in more):
            return None
        if inputs.ndim != 2 or inputs.dtype not in _TOKENS:
            return None
        return self.run.take(inputs, cache, self._dtype, mx.float32, inputs.shape[1] > 1)


def put(module: Any, fused: Fused | None) -> None:
    """Let a module compute fused; None: as it did before."""
    kind = type(module)
    if getattr(kind, "_is_stand_in", False):
        module._fused = fused
    elif fused is not None:
        if kind not in _made:
            _made[kind] = _subclass(kind)
        module.__class__ = _made[kind]
        module._fused = fused


@contextmanager
def replaced(module: Any, fused: Fused) -> Iterator[None]:
    """Let another fused computation take a module's place in the block."""
    before, module._fused = module._fused, fused
    try:
        yield
    finally:
        module._fused = before


def _subclass(kind: type) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        fused = self._fused
        if fused is not None and not self._training and not plainly.entered:
            try:
                made = fused.take(*args, **kwargs)
            except TypeError:  # other arguments
                made = None
            if made is not None:
                return made
        made = kind.__call__(self, *args, **kwargs)
        if fused is not None and fused.run is not None:
            fused.run.convert_caches([*args, *kwargs.values()])
        return made

    names = {"__call__": call, "__module__": kind.__module__, "_is_stand_in": True}
    return type(kind.__name__, (kind,), names)
