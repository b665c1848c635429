"""Random numbers that a seed and a place alone decide; mlx's global state is never used."""

from __future__ import annotations

from hashlib import blake2b

import mlx.core as mx


def key_of(seed: int, *place: str | int) -> mx.array:
    """Return the key, uint32 (2,), of a place: those of different places share nothing.

    Args:
        seed: the training's.
        place: what the numbers are for, and where, such as "shuffle" and an epoch.
    """
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    words = [int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")]
    return mx.array(words, mx.uint32)
