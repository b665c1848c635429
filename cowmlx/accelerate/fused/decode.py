"""Decoding with a network whose layers are fused: a token a row, from tokens to logits at once.

The general way through the modules of mlx-lm is slow: Python takes longer for it than kernels take
for a small model's token.
"""

from __future__ import annotations

import copy

import mlx.core as mx

from cowmlx.accelerate import positions
from cowmlx.accelerate.blocks import InBlocks
from cowmlx.accelerate.fused.caches import form_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.fused.run import Run

_PLACE = "_decode"  # of a network, where it keeps its Decode


class Decode:
    """Takes tokens through a network that is one run of layers with a head.

    Args:
        run: with the head.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __deepcopy__(self, memo: Any) -> None:
        """Nothing: a copy of a network may get other weights, and proves its layers again."""
        return None

    def logits(self, ids: mx.array, caches: list[Any]) -> mx.array | None:
        """Return logits (B, V) behind tokens (B,); None, and nothing has changed, if it cannot."""
        form = form_of(caches[0]) if caches else None
        if form is None or not form.direct:
            return None
        return self._run.decode(ids, caches, form)


def logits_behind(
    network: Module, ids: mx.array, caches: list[Any], shifts: list[int] | None = None
) -> mx.array:
    """Feed a token to every row of a network's caches.

    Args:
        network: gives logits (B, T, V).
        ids: (B,) tokens.
        caches: of its layers; they hold the tokens afterwards.
        shifts: of rows behind images, see ``cowmlx.accelerate.positions``; None: all are 0.

    Returns:
        logits (B, V), lazily.
    """
    if shifts is not None:
        with positions.shifted(network, shifts):
            return logits_behind(network, ids, caches)
    decode: Decode | None = vars(network).get(_PLACE)
    if decode is not None and not network.training:
        made = decode.logits(ids, caches)
        if made is not None:
            return made
    logits: mx.array = network(ids[:, None], cache=caches)
    return logits[:, -1, :]


def head_of(network: Any, owner: Any) -> Any | None:
    """Return what may be the head of a network: a linear layer, or else its embedding."""
    own = [each for each in network.values() if isinstance(each, InBlocks)]
    tied = [part for part in owner.values() if isinstance(part, InBlocks)]
    heads = own or [each for each in tied if hasattr(each, "as_linear")]
    return heads[0] if len(heads) == 1 else None


def offer(
    network: Module,
    run: Run | None,
    make_cache: Callable[[], list[Any]],
    ids: tuple[int, ...] = (0, 0),
) -> None:
    """Let a network be decoded at once, if that gives its very logits.

    Args:
        network: its layers fused.
        run: all of it, with the head; None: it is not decoded at once any more.
        make_cache: returns empty caches of its layers.
        ids: two tokens, by which it is tried out.
    """
    vars(network)[_PLACE] = None
    if run is None:
        return
    decode = Decode(run)
    own = make_cache()
    network(mx.array([ids]), cache=own)  # room for a token comes with those before it
    mx.eval([cache.state for cache in own])
    plain = [copy.copy(cache) for cache in own]
    token = mx.array(ids[:1], mx.uint32)
    expected = network(token[:, None], cache=plain)[:, -1, :]
    mx.eval(expected)  # before its step is taken in the place of what both caches hold
    made = decode.logits(token, own)
    if made is None:
        return
    alike = made.shape == expected.shape and made.dtype == expected.dtype
    alike = alike and bool(mx.any(expected).item())  # zeros are what any head makes of zeros
    if alike and mx.array_equal(made, expected).item():
        vars(network)[_PLACE] = decode
