"""Random numbers of samples; they depend on the seed and the sample's number only.

mlx's global random state is never used, so a host that shares mlx keeps its own.
"""

from __future__ import annotations

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_COIN = 0xD1B54A32D192ED03  # makes the coin differ from the sample's own bits
_LEAST = 2.0**-33  # half a step of 32 random bits: 0 would be noise without bound


def sample_keys(samples: Iterable[tuple[int, int]]) -> mx.array:
    """Return (B, 2) uint32, the random keys of samples: each of a seed and of its number there."""
    words = [sample_word(seed, sample) for seed, sample in samples]
    return mx.array([[word >> 32, word & 0xFFFFFFFF] for word in words], mx.uint32)


def sample_coin(seed: int, sample: int) -> float:
    """Return a random number in [0, 1) that belongs to a seed's n-th sample."""
    return (_mixed(sample_word(seed, sample) ^ _COIN) >> 11) / (1 << 53)


def gumbel(keys: mx.array, size: int) -> mx.array:
    """Return (B, size) standard Gumbel numbers, a row for each key (B, 2).

    The best of logits with such noise added is a sample from their softmax (E. J. Gumbel 1954).
    Its large values come from uniform numbers near 0, where float32 has the finest steps, so
    that improbable tokens have their share.
    """

    def uniform(key: mx.array) -> mx.array:
        return mx.random.uniform(_LEAST, 1, (size,), key=key)

    return -mx.log(-mx.log1p(-mx.vmap(uniform)(keys)))


def sample_word(seed: int, sample: int) -> int:
    """Return 64 random bits. Neighbouring seeds and samples share no run of them."""
    return _mixed(seed + (sample + 1) * _GOLDEN)


def _mixed(word: int) -> int:
    """Mix 64 bits (splitmix64, doi:10.1145/2660193.2660195)."""
    word &= _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
