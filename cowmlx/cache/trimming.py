"""Which layer caches can take tokens back, and taking them back."""

from __future__ import annotations

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def can_trim(layer: Any, more: int = 0) -> bool:
    """Whether a layer cache can drop its last tokens, without a trace.

    mlx-lm's ``is_trimmable`` promises too much of a chunked cache that has dropped its front.

    Args:
        layer: a cache of mlx-lm.
        more: whether it still can after so many more tokens.
    """
    parts = getattr(layer, "caches", None)
    if parts is not None:
        return all(can_trim(part, more) for part in parts)
    front_is_gone = getattr(layer, "start_position", 0) != 0
    if not layer.is_trimmable() or front_is_gone:
        return False
    limit = getattr(layer, "max_size", None) or getattr(layer, "chunk_size", None)
    return not (more and limit) or layer.offset + more < limit


def can_trim_all(layers: list[Any], more: int = 0) -> bool:
    """Whether every layer can, so that no operation leaves layers out of step."""
    return all(_always_trims(type(layer)) or can_trim(layer, more) for layer in layers)


_always: dict[type, bool] = {}


def _always_trims(kind: type) -> bool:
    """Whether caches of a kind always can. Called for every token of every layer."""
    if kind not in _always:
        named = kind.__name__ == "KVCache" and kind.__module__.endswith(".models.cache")
        _always[kind] = named
    return _always[kind]


def trim(layers: list[Any], count: int) -> bool:
    """Drop the last ``count`` tokens of every layer; false if one dropped another number."""
    dropped = [layer.trim(count) for layer in layers]
    return all(number == count for number in dropped)


def shorten(layer: Any) -> None:
    """Free the buffers of a layer cache for future tokens, if they are half of it or more.

    They are allocated again when it grows. For smaller ones the copy would cost more.
    """
    for part in getattr(layer, "caches", [layer]):
        keys = getattr(part, "keys", None)
        if type(part).__name__ != "KVCache" or keys is None or not part.offset:
            continue
        if keys.shape[2] >= 2 * part.offset:
            part.keys = mx.contiguous(keys[..., : part.offset, :])
            part.values = mx.contiguous(part.values[..., : part.offset, :])


def trims_of(layers: list[Any]) -> dict[str, Any]:
    """Return whether empty layers can drop tokens ("trims"), and up to what size ("window").

    A window of None is no limit.
    """
    parts = [part for layer in layers for part in getattr(layer, "caches", (layer,))]
    limits = [
        getattr(part, "max_size", None) or getattr(part, "chunk_size", None) for part in parts
    ]
    window = min((limit for limit in limits if limit), default=None)
    return {"trims": can_trim_all(layers), "window": window}
