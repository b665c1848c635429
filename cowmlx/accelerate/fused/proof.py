"""The proof that fused layers give what a network's own do, on random activations."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import failures
from cowmlx.accelerate.fused import parts
from cowmlx.accelerate.fused.alike import kind_of
from cowmlx.accelerate.fused.arrangements import ACTIVATIONS, Arrangement, declared, searched
from cowmlx.accelerate.fused.run import Run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

_ROWS, _PROMPT = 2, 5
# Of the largest change that a layer makes: float32 rounds to 1e-7 of it, wrong parts to 1e-3.
_TOLERANCE = 1e-4


class Rest:
    """The half of a layer that stays the network's own: x + after(module(before(x)))."""

    def __init__(self, module: Any, before: Any, after: Any, residual: float) -> None:
        self._module, self._before, self._after = module, before, after
        self._residual = residual

    def __call__(self, x: mx.array) -> mx.array:
        """Return activations behind it."""
        made = self._module(x if self._before is None else self._before(x))
        made = made if self._after is None else self._after(made)
        return x + (made if self._residual == 1 else made * self._residual)


class Fused(NamedTuple):
    """A layer that kernels compute, or its first half."""

    description: dict[str, Any]
    """For :class:`~cowmlx.accelerate.fused.run.Run`."""
    rest: Rest | None
    """The half that follows, where kernels have none."""
    arrangement: Arrangement
    """By which it was proved."""


class Layer:
    """A network's layer that is to be fused.

    Args:
        block: the layer.
        window: tokens that it sees; 0: all.
        make_cache: returns its empty cache.
        norms: see :func:`parts.norm_of`.

    Attributes:
        kind: equal for layers that compute the same but for their weights; None if it is
            unknown.

    Raises:
        Unknown, UnsupportedRoPE: it is none that kernels have.
    """

    def __init__(
        self,
        block: Any,
        window: int,
        make_cache: Callable[[], Any],
        norms: dict[Hashable, tuple[str, bool]] | None = None,
    ) -> None:
        self._block = block
        self._window = window
        self._make_cache = make_cache
        attention, mlp, self._norms = parts.block_parts(block)
        self.width = parts.attention_width(attention)
        self._attention = parts.attention_of(attention, norms)
        self._tables = parts.rotation_of(attention, self._attention)
        self._mlp = None if mlp is None else parts.mlp_of(mlp)
        known = {id(module) for module in (attention, *self._norms)}
        others = [
            part for part in block.values() if isinstance(part, Module) and id(part) not in known
        ]
        self._rest = None
        if self._mlp is None:
            if len(others) != 1:
                raise parts.Unknown(f"it has {len(others)} modules behind its attention")
            self._rest = others[0]
        elif len(others) != 1:
            raise parts.Unknown("it has more than an attention and an MLP")
        self._known = [_norm(norm, self.width, norms) for norm in self._norms]
        cache = make_cache()
        state = type(cache), getattr(cache, "__dict__", None)
        self.kind = kind_of(parts.modules_given(block), block, window, *state)
        self._inputs: list[mx.array] = []
        self._expected: list[mx.array] = []

    def arranged(self, how: Arrangement) -> Fused:
        """Return the layer as kernels compute it, by the proof of another one of its kind.

        Raises:
            Unknown: as :meth:`prove`.
        """
        fused = self._made(how)
        return self.prove(how) if fused is None else fused

    def prove(self, hint: Arrangement | None) -> Fused:
        """Return the layer as kernels compute it.

        Args:
            hint: how a layer before it was arranged.

        Raises:
            Unknown: nothing that kernels have gives the same.
        """
        self._expect()
        has_mlp, turns = self._mlp is not None, self._tables is not None
        for how in (*([] if hint is None else [hint]), *declared(self._block, has_mlp, turns)):
            if len(how.slots) != len(self._norms) or (has_mlp and not how.activation):
                continue
            own = how._replace(
                activation=how.activation if has_mlp else "", turns=how.turns and turns
            )
            fused = self._made(own)
            if fused is not None and self._error(fused) < _TOLERANCE:
                return fused
        return self._search()

    def _search(self) -> Fused:
        """Return the first arrangement that gives the same, with the best of its activations."""
        least = float("inf")
        turns = self._tables is not None
        for slots, residual, with_turns in searched(self._block, len(self._norms), turns):
            best: tuple[float, Fused] | None = None
            for activation in ACTIVATIONS if self._mlp is not None else ("",):
                fused = self._made(Arrangement(slots, activation, residual, with_turns))
                if fused is None:
                    break
                error = self._error(fused)
                least = min(least, error)
                if best is None or error < best[0]:
                    best = error, fused
            if best is not None and best[0] < _TOLERANCE:
                return best[1]
        raise parts.Unknown(f"its results differ by {least:.1g} of their size")

    def _made(self, how: Arrangement) -> Fused | None:
        norms = dict(zip(how.slots, self._known, strict=True))
        modules = dict(zip(how.slots, self._norms, strict=True))
        if any(value is None for slot, value in norms.items() if slot in ("before", "after")):
            return None
        attention = self._attention | {
            "before": norms.get("before"),
            "after": norms.get("after"),
            "residual": how.residual,
        }
        mlp, rest = None, None
        if self._mlp is not None:
            if any(value is None for value in norms.values()):
                return None
            mlp = self._mlp | {
                "before": norms.get("inner_before"),
                "after": norms.get("inner_after"),
                "activation": how.activation,
                "residual": how.residual,
            }
        else:
            inner = modules.get("inner_before"), modules.get("inner_after")
            rest = Rest(self._rest, *inner, how.residual)
        description = {
            "attention": attention,
            "mlp": mlp,
            "angles": self._tables if how.turns else None,
            "window": self._window,
            "cache": type(self._make_cache()).__name__,
        }
        return Fused(description, rest, how)

    def _expect(self) -> None:
        """Take a prompt and a step of two rows through the network's own layer."""
        key = mx.random.key(11)
        shape = _ROWS, _PROMPT + 1, self.width
        x = mx.random.normal(shape, key=key)
        self._inputs = [x[:, :_PROMPT], x[:, _PROMPT:]]
        cache = self._make_cache()
        at = mx.arange(_PROMPT)
        mask = at[:, None] >= at[None]
        if self._window:
            mask = mask & (at[:, None] < at[None] + self._window)
        try:
            prompt = self._block(self._inputs[0], mask, cache)
            step = self._block(self._inputs[1], None, cache)
        except Exception as error:  # whatever an architecture makes of arguments it does not know
            failures.reraise_shortage(error)
            raise parts.Unknown(f"it is called otherwise ({type(error).__name__})") from error
        self._expected = [prompt, step, *_held(cache)]
        mx.eval(self._expected)

    def _error(self, fused: Fused) -> float:
        """Return how far a fused layer is off, as a part of what the layer changes."""
        run = Run(self.width, [fused.description])
        cache = self._make_cache()
        made = []
        for x in self._inputs:
            y = run.take(x, [cache], mx.float32, mx.float32, False)
            if y is None:
                raise parts.Unknown(f"its cache is a {type(cache).__name__}")
            made.append(y if fused.rest is None else fused.rest(y))
        off = []
        without = [*self._inputs, *[mx.zeros_like(buffer) for buffer in self._expected[2:]]]
        for own, expected, base in zip(
            [*made, *_held(cache)], self._expected, without, strict=True
        ):
            if own.shape != expected.shape:
                return float("inf")
            size = mx.abs(expected - base).max() + 1e-9
            off.append(mx.abs(own - expected).max() / size)
        worst = float(mx.stack(off).max().item())  # type: ignore[arg-type]
        return worst if worst == worst else float("inf")  # NaN is no proof


def _norm(module: Any, width: int, kinds: dict[Hashable, tuple[str, bool]] | None) -> Any:
    try:
        return parts.norm_of(module, width, kinds)
    except parts.Unknown:
        return None


def _held(cache: Any) -> list[mx.array]:
    keys, values = cache.keys, cache.values
    used = min(cache.offset, keys.shape[2])
    return [keys[:, :, :used], values[:, :, :used]]
