"""Estimates of the memory that a model's contexts take, before they take it."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate.fused.stand_in import plainly
from cowmlx.cache.layer_state import parts
from cowmlx.models.widths import widths_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.cache.layers import KVQuantization
    from cowmlx.models.model import Model

_FLOAT = 4  # bytes of an activation, at most
# Numbers per token that a chunk holds at once, as multiples of the network's widths.
_OF_WIDTH, _OF_MLP, _OF_EXPERT = 6, 4, 8
_OF_LOGITS = 4  # per number of the vocabulary: logits, log-probabilities and what sampling sorts


class LayerGrowth(NamedTuple):
    """How the cache of a layer grows.

    Attributes:
        fixed: bytes of any number of tokens.
        per_token: bytes of each token.
        step: tokens for which memory is taken at once.
        window: tokens that it holds at most; 0: no bound.
    """

    fixed: int
    per_token: int
    step: int
    window: int

    def nbytes(self, tokens: int) -> int:
        """Return the bytes behind so many tokens."""
        held = -(-tokens // self.step) * self.step
        return self.fixed + self.per_token * (min(held, self.window) if self.window else held)


class Footprint:
    """The memory of a model's contexts with one kind of cache.

    Args:
        model: its weights may still be on disk.
        layers: of the caches.
    """

    def __init__(self, model: Model, layers: list[LayerGrowth]) -> None:
        self._layers = layers
        self._form = model.form
        self._fused = model.is_fused
        self._widths = widths_of(model)
        # On a CPU mlx computes all scores of a masked attention at once.
        masked = self._form.why_not or any(layer.window for layer in layers)
        self._holds_scores = self._form.on_cpu and not self._fused and bool(masked)

    def cache(self, tokens: int) -> int:
        """Return the bytes of the caches behind so many tokens."""
        return sum(layer.nbytes(tokens) for layer in self._layers)

    def layer(self, tokens: int) -> int:
        """Return the bytes of the largest cache of a layer behind so many tokens."""
        return max((layer.nbytes(tokens) for layer in self._layers), default=0)

    def growing(self, tokens: int) -> int:
        """Return the bytes that are taken for a moment when caches grow: old and new ones.

        Fused layers are one operation, so the caches of all grow before it; others grow one after
        the other, two at a time.
        """
        grown = [layer.nbytes(tokens) - layer.fixed for layer in self._layers]
        return sum(grown) if self._fused else 2 * max(grown, default=0)

    def activations(self, chunk: int, tokens: int) -> int:
        """Return the bytes of the activations of a prompt's chunk.

        Args:
            chunk: its tokens.
            tokens: that the context holds behind it.
        """
        widths = self._widths
        numbers = _OF_WIDTH * widths.width
        if widths.experts:
            numbers += _OF_EXPERT * widths.experts * widths.width
        else:
            numbers += _OF_MLP * widths.mlp
        if self._holds_scores:
            numbers += 2 * widths.heads * tokens
        # Caches with a window hold a whole chunk behind it.
        passing = sum(layer.per_token for layer in self._layers if layer.window)
        return _FLOAT * (chunk * numbers + _OF_LOGITS * widths.vocabulary) + chunk * passing

    def needed(self, tokens: int, chunk: int) -> int:
        """Return the bytes that a generation takes at its peak, its caches included.

        Args:
            tokens: that the context holds at its end.
            chunk: tokens of the largest chunk of its prompt.
        """
        growth = self.growing(tokens)
        return self.cache(tokens) + growth + self.activations(min(chunk, tokens), tokens)


class Expected(NamedTuple):
    """The size of a generation.

    Attributes:
        tokens: that its context holds at its end.
        draft: the footprint of the draft model; None without one.
    """

    tokens: int
    draft: Footprint | None

    def nbytes(self, footprint: Footprint, chunk: int) -> int:
        """Return the bytes at its peak, its caches included.

        Args:
            footprint: of its model.
            chunk: tokens of the largest chunk of its prompt.
        """
        drafts = 0 if self.draft is None else self.draft.cache(self.tokens)
        return footprint.needed(self.tokens, chunk) + drafts


def footprint_of(model: Model, kv: KVQuantization | None) -> Footprint | None:
    """Return the footprint of contexts; None where the caches cannot be read from a trace.

    Args:
        model: its weights may still be on disk.
        kv: how contexts store keys and values; None: in the model's type.
    """
    key = "footprint", None if kv is None else kv.key, model.is_fused
    footprint: Footprint | None = model.remembered.once(key, lambda: _traced(model, kv))
    return footprint


def most_needed(model: Model, tokens: int, chunk: int) -> int:
    """Return an upper bound of the bytes of a generation, from the config alone; 0: unknown.

    Args:
        model: its weights may still be on disk.
        tokens: that the context holds at its end.
        chunk: tokens of the largest chunk of its prompt.
    """
    per_token, per_number, once = model.remembered.once("most needed", lambda: _most(model))
    return tokens * per_token + chunk * per_number + once if per_token else 0


def _most(model: Model) -> tuple[int, int, int]:
    """Return the most bytes of a token in caches that grow, of one in a chunk, and besides."""
    widths = widths_of(model)
    per_number = _OF_WIDTH * widths.width + _OF_EXPERT * widths.experts * widths.width
    per_number += _OF_MLP * widths.mlp
    logits = _FLOAT * _OF_LOGITS * widths.vocabulary
    return 4 * _FLOAT * widths.layers * widths.width, _FLOAT * per_number, logits


def _traced(model: Model, kv: KVQuantization | None) -> Footprint | None:
    """Lead two tokens through the network, without evaluating anything, and read its caches."""
    try:
        layers = model.make_cache() if kv is None else kv.maker(model)()
        with plainly():
            model.network(mx.array([[0, 0]], mx.int32), cache=layers)
        return Footprint(model, [_growth(part) for _, part in parts(layers)])
    except Exception as error:
        failures.reraise_shortage(error)
        return None


def _growth(layer: Any) -> LayerGrowth:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is None or values is None:
        return LayerGrowth(int(layer.nbytes), 0, 1, 0)
    arrays = [*_arrays(keys), *_arrays(values)]
    columns = max(1, arrays[0].shape[-2])
    window = getattr(layer, "max_size", None) or getattr(layer, "chunk_size", None) or 0
    per_token = sum(array.nbytes for array in arrays) // columns
    step = getattr(layer, "step", 1)
    return LayerGrowth(0, per_token, step if isinstance(step, int) else 1, window)


def _arrays(value: Any) -> list[mx.array]:
    """Return the arrays of keys or values, of which quantized ones have several."""
    return list(value) if isinstance(value, tuple | list) else [value]
