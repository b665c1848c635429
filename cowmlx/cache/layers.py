"""The layer caches of a model, in its own type or quantized, and their sizes."""

from __future__ import annotations

from functools import partial

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate.fused.stand_in import plainly
from cowmlx.cache import layer_state
from cowmlx.cache.dequantized import DequantizedKVCache
from cowmlx.errors import InvalidArgument, OutOfRange, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.models.model import Model


BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)
_RING = "RotatingKVCache"


class KVQuantization:
    """How keys and values are stored; ``bits`` 0: in the model's type.

    On an NVIDIA GPU every layer gets them dequantized: mlx's products there take no part of a
    buffer, which the held tokens are.

    Raises:
        InvalidArgument: a value that no cache has.
        Unsupported: the model's caches, or its attention, cannot do that.
    """

    def __init__(self, model: Model, bits: int, group_size: int) -> None:
        if bits not in (0, *BITS):
            raise OutOfRange("kv_bits", bits, "0, 4 or 8")
        if group_size not in (0, *GROUP_SIZES):
            raise OutOfRange("kv_group_size", group_size, "0, 32, 64 or 128")
        if group_size and not bits:
            raise InvalidArgument(
                f"kv_group_size is {group_size}, but kv_bits is 0",
                reason="conflict",
                argument="kv_group_size",
                other="kv_bits",
            )
        self.bits = bits
        self.group_size = group_size
        self.dequantizes = False  # whether layers get keys and values dequantized
        if not bits:
            return
        model.require_one_machine(f"kv_bits is {bits}")
        reasons = []
        for size in (group_size,) if group_size else (64, 32):
            self.group_size = size
            for self.dequantizes in (True,) if _on_cuda() else (False, True):
                reason = _why_not(model, self)
                if reason is None:
                    return
                reasons.append(reason)
        raise Unsupported(
            f"kv_bits is {bits} and kv_group_size {group_size}, but the cache of a "
            f"{model.architecture} model cannot be quantized so: {reasons[-1]}; "
            + ("leave kv_group_size at 0" if group_size else "leave kv_bits at 0"),
            argument="kv_group_size" if group_size else "kv_bits",
            value=group_size or bits,
        )

    @property
    def key(self) -> tuple[int, int]:
        """(bits, group size): equal for caches of one kind."""
        return self.bits, self.group_size

    def maker(self, model: Model) -> Callable[[], list[Any]]:
        """Return a maker of a sequence's empty layer caches."""
        return partial(_quantized, model, self) if self.bits else model.make_cache


def _on_cuda() -> bool:
    return mx.default_device().type == mx.gpu and mx.cuda.is_available()


def why_not_quantized(model: Model) -> str | None:
    """Return why no quantized cache works with a model; None if one does."""
    try:
        KVQuantization(model, 8, 0)
    except Unsupported as error:
        return str(error)
    return None


def _quantized(model: Model, how: KVQuantization) -> list[Any]:
    """Return fresh layer caches, those for keys and values quantized.

    Raises:
        Unsupported: there is none, or one of a kind that cannot be.
    """
    layers = model.make_cache()
    made = [_quantized_layer(layer, how) for layer in layers]
    if all(new is old for new, old in zip(made, layers, strict=True)):
        behind = any(type(layer).__name__ == _RING for layer in layers)
        raise Unsupported(f"it has no keys and values{' but behind windows' if behind else ''}")
    return made


def _quantized_layer(layer: Any, how: KVQuantization) -> Any:
    kind = type(layer).__name__
    if kind == "KVCache":
        quantized = layer.to_quantized(group_size=how.group_size, bits=how.bits)
        return DequantizedKVCache(quantized) if how.dequantizes else quantized
    # The state of a recurrence, or the tokens of a window: of bounded size, and always in full.
    if kind in ("ArraysCache", _RING):
        return layer
    raise Unsupported(f"a {kind} layer has no quantized form")


def _why_not(model: Model, how: KVQuantization) -> str | None:
    """Return why a model's cache cannot be quantized so, or None; tried once."""
    key = ("quantized", *how.key, how.dequantizes)
    why: str | None = model.remembered.once(key, lambda: _try(model, how))
    return why


def _try(model: Model, how: KVQuantization) -> str | None:
    """Run one token through the network, without evaluating anything; None if it works."""
    try:
        layers = _quantized(model, how)
        with plainly():
            model.network(mx.array([[0]], mx.int32), cache=layers)
    except Unsupported as error:
        return str(error)
    except Exception as error:  # of an attention that does not expect quantized arrays
        failures.reraise_shortage(error)
        problem = str(error).partition("\n")[0]
        return f"its attention does not take them ({type(error).__name__}: {problem})"
    return None


def bytes_of_tokens(model: Model, count: int, kv_bits: int) -> int | None:
    """Return the bytes of the layer caches behind ``count`` tokens; nothing is evaluated.

    None for a network that cannot be led through so many tokens at once.

    Raises:
        InvalidArgument: ``kv_bits`` is neither 0, 4 nor 8.
        Unsupported: the model's caches cannot be quantized so.
    """
    import mlx.core as mx

    layers = KVQuantization(model, kv_bits, 0).maker(model)()
    try:
        model.network(mx.zeros((1, count), mx.int32), cache=layers)
        held = list(layer_state.leaves(layers).values())
    except Exception as exc:
        failures.reraise_shortage(exc)
        return None
    return sum(array.nbytes for array in held if isinstance(array, mx.array))
