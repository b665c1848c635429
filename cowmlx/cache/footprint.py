"""Estimates of the memory that a model's contexts take, before they take it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate.fused.stand_in import plainly
from cowmlx.cache.layer_state import parts
from cowmlx.models.widths import widths_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.accelerate.device import Form
    from cowmlx.cache.layers import KVQuantization
    from cowmlx.models.model import Model

_FLOAT = 4  # bytes of an activation, at most
# Numbers per token that a chunk holds at once, as multiples of the network's widths.
_OF_WIDTH, _OF_MLP, _OF_EXPERT = 6, 4, 8
# Per head, token and held token, of an attention that holds the scores of all heads; and of one
# with relative positions (arXiv 2006.03654).
_OF_SCORES, _OF_RELATIVE_SCORES = 2, 6
# Widths of heads for which mlx's kernels for GPUs hold none, in chunks of more than 8 tokens.
_HEADS_WITHOUT_SCORES = (64, 72, 80, 96, 128)
_OF_LOGITS = 4  # per number of the vocabulary: logits, log-probabilities and what sampling sorts


class LayerGrowth(NamedTuple):
    """How the cache of a layer grows.

    Attributes:
        fixed: bytes of any number of tokens.
        per_token: bytes of each token.
        step: tokens for which memory is taken at once.
        window: tokens that it holds at most; 0: no bound.
        head: numbers of a head's keys and of its values.
        is_quantized: whether attention reads keys and values of few bits.
        expanded: numbers that attention makes of those of a token.
    """

    fixed: int
    per_token: int
    step: int
    window: int
    head: tuple[int, int] = (0, 0)
    is_quantized: bool = False
    expanded: int = 0

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
        latent = self._widths.latent
        is_latent = latent > 0 and any(latent in layer.head for layer in layers)
        self._expanded = max((layer.expanded for layer in layers), default=0)
        if is_latent:
            self._expanded = self._widths.expanded
        grow = [layer for layer in layers if layer.per_token]
        plain = not self._fused and any(_holds_scores(self._form, layer) for layer in grow)
        self._scores = _OF_SCORES if is_latent or plain else 0

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
        numbers += self._scores * widths.heads * tokens
        # Caches with a window hold a whole chunk behind it.
        passing = sum(layer.per_token for layer in self._layers if layer.window)
        once = _OF_LOGITS * widths.vocabulary + self._expanded * tokens
        return _FLOAT * (chunk * numbers + once) + chunk * passing

    def needed(self, tokens: int, chunk: int, rows: int = 1) -> int:
        """Return the bytes that a generation takes at its peak, its caches included.

        Args:
            tokens: that the context holds at its end.
            chunk: tokens of the largest chunk of its prompt.
            rows: texts of so many tokens side by side.
        """
        held = rows * (self.cache(tokens) + self.growing(tokens))
        return held + self.activations(rows * min(chunk, tokens), tokens)


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


def _holds_scores(form: Form, layer: LayerGrowth) -> bool:
    """Whether an attention over a cache, which is not fused, holds the scores of all heads."""
    if form.on_cpu:  # where mlx computes those of a masked attention at once
        return bool(form.why_not or layer.window)
    keys, values = layer.head
    return layer.is_quantized or keys != values or keys not in _HEADS_WITHOUT_SCORES


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
    most = model.remembered.once("most needed", lambda: _most(model))
    per_token, per_number, per_score, once = most
    if model.is_fused and not widths_of(model).latent:
        per_score = 0
    held = chunk * (per_number + tokens * per_score)
    return tokens * per_token + held + once if per_token else 0


def _most(model: Model) -> tuple[int, int, int, int]:
    """Return upper bounds in bytes.

    They are of a token in caches; of a token in a chunk; of a pair of a token in the chunk and a
    token held; and of the logits.
    """
    widths = widths_of(model)
    per_number = _OF_WIDTH * widths.width + _OF_EXPERT * widths.experts * widths.width
    per_number += _OF_MLP * widths.mlp
    logits = _FLOAT * _OF_LOGITS * widths.vocabulary
    per_token = 4 * widths.layers * widths.width + widths.expanded
    scores = _OF_SCORES * widths.heads
    return _FLOAT * per_token, _FLOAT * per_number, _FLOAT * scores, logits


def bytes_of_texts(model: Model, lengths: Sequence[int], chunk: int) -> int:
    """Return the bytes that texts take that are processed side by side; 0: unknown.

    Args:
        model: its weights are read.
        lengths: tokens of each text.
        chunk: of each that are processed in a turn; an encoder takes all.
    """
    if model.is_encoder:
        return _bytes_in_encoder(model, lengths)
    footprint = footprint_of(model, None)
    return 0 if footprint is None else footprint.needed(max(lengths), chunk, len(lengths))


def _bytes_in_encoder(model: Model, lengths: Sequence[int]) -> int:
    widths, form, config = widths_of(model), model.form, model.config
    numbers = sum(lengths) * (_OF_WIDTH * widths.width + _OF_MLP * widths.mlp)
    head = widths.width // max(1, widths.heads)
    pairs = int("local_attention" in config)  # a mask
    if config.get("relative_attention"):
        pairs = _OF_RELATIVE_SCORES * widths.heads
    elif config.get("use_bidirectional_attention"):  # no kernel has all of its layers
        numbers += sum(lengths) * _OF_WIDTH * widths.width
        pairs = 1 + _OF_SCORES * widths.heads
    elif form.why_not and (form.on_cpu or head not in _HEADS_WITHOUT_SCORES):
        pairs += _OF_SCORES * widths.heads
    groups = (count * length * length for length, count in Counter(lengths).items())
    return _FLOAT * (numbers + pairs * max(groups))


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
    step = step if isinstance(step, int) else 1
    if hasattr(layer, "bits"):
        return LayerGrowth(0, per_token, step, window, is_quantized=True)
    bits, _ = getattr(layer, "packing", (32, 0))  # of words of 32 bits, which become numbers
    first = _arrays(keys)[0], _arrays(values)[0]
    head = first[0].shape[-1] * 32 // bits, first[1].shape[-1] * 32 // bits
    expanded = first[0].shape[1] * sum(head) if bits < 32 else 0
    return LayerGrowth(0, per_token, step, window, head, False, expanded)


def _arrays(value: Any) -> list[mx.array]:
    """Return the arrays of keys or values, of which quantized ones have several."""
    return list(value) if isinstance(value, tuple | list) else [value]
