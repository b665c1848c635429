"""Decoding with a network whose layers are fused: a token a row, from tokens to logits at once.

The general way through the modules of mlx-lm is slow: Python takes longer for it than kernels take
for a small model's token.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import mlx.core as mx

from cowmlx.accelerate import positions
from cowmlx.accelerate.blocks import InBlocks
from cowmlx.accelerate.fused import stand_in
from cowmlx.accelerate.fused.caches import form_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.fused.run import Run
    from cowmlx.accelerate.fused.stand_in import FusedNetwork

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


class Whole(NamedTuple):
    """A network that is one run of layers."""

    run: Run
    """All of them, with the head."""
    short: Run
    """The same with :attr:`few` layers."""
    few: list[int]
    """The first layer of each kind of cache."""
    owner: Module
    """The module in whose place the layers are run."""
    stand_in: FusedNetwork
    """Takes its place with :attr:`short`."""
    ids: tuple[int, int]
    """Tokens, by which the network is tried out."""


def offer(network: Module, whole: Whole | None, make_cache: Callable[[], list[Any]]) -> None:
    """Let a network be decoded at once, if that gives its very logits.

    The trial takes few layers: the layers themselves are proved, only the work around them is not.

    Args:
        network: its layers fused.
        whole: what computes it; None: it is not decoded at once any more.
        make_cache: returns empty caches of its layers.
    """
    vars(network)[_PLACE] = None
    if whole is None:
        return
    caches = make_cache()
    with stand_in.replaced(whole.owner, whole.stand_in):
        alike = _is_alike(network, whole, [caches[index] for index in whole.few])
    if alike:
        vars(network)[_PLACE] = Decode(whole.run)


def _is_alike(network: Module, whole: Whole, caches: list[Any]) -> bool:
    """Whether a short network's logits are those of its short run."""
    network(mx.array([whole.ids]), cache=caches)  # room for a token comes with those before it
    mx.eval([cache.state for cache in caches])
    plain = [copy.copy(cache) for cache in caches]
    token = mx.array(whole.ids[:1], mx.uint32)
    expected = network(token[:, None], cache=plain)[:, -1, :]
    mx.eval(expected)  # before its step is taken in the place of what both caches hold
    made = Decode(whole.short).logits(token, caches)
    if made is None or made.shape != expected.shape or made.dtype != expected.dtype:
        return False
    # Zeros are what any head makes of zeros.
    return bool(mx.any(expected).item() and mx.array_equal(made, expected).item())
