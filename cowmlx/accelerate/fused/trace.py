"""What a network does around its layers: it is called with listeners in their places."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import failures
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FAR = 20_000  # tokens that a cache without a window pretends to hold
_TOKENS = 2
_MOST_SEEN = 1 << 23  # elements of a mask that is looked at


class Unclear(Exception):
    """A network that does something else around its layers; the text says what."""


class Listener:
    """Stands in for a layer: the same attributes; its result is a random array."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self.called: list[tuple[mx.array, Any, Any]] = []
        self.result: mx.array | None = None

    def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
        """Note the call."""
        self.called.append((x, mask, cache))
        self.result = mx.random.normal(x.shape, x.dtype, key=mx.random.key(len(self.called)))
        return self.result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)


class Around(NamedTuple):
    """How a network calls its layers."""

    before: mx.array
    """(1, T, H) that the first layer is given."""
    behind: mx.array
    """(1, T, H) that the last one has given."""
    result: mx.array
    """The network's result of that."""
    windows: list[int]
    """Tokens that each layer sees; 0: all."""


def lists_of_blocks(network: Module) -> Iterator[tuple[Any, str]]:
    """Yield the modules that have a list of modules, and its name."""
    for module in modules_of(network):
        for name, value in module.items():
            if isinstance(value, list) and value and all(isinstance(v, Module) for v in value):
                yield module, name


def listen(owner: Any, name: str, caches: list[Any], ids: mx.array) -> Around:
    """Call the owner of layers with listeners in their places.

    Args:
        owner: called with tokens and caches.
        name: of its list of layers.
        caches: empty ones, one for each layer; they are of no use afterwards.
        ids: (1, T) tokens.

    Raises:
        Unclear: it does not lead activations through its layers one after the other.
    """
    blocks = owner[name]
    if len(caches) != len(blocks):
        raise Unclear(f"it has {len(blocks)} layers and {len(caches)} caches")
    for cache in caches:
        _pretend(cache)
    listeners = [Listener(block) for block in blocks]
    owner[name] = listeners
    try:
        result = owner(ids, cache=caches)
    except Exception as error:
        failures.reraise_shortage(error)
        raise Unclear(f"its layers are called otherwise ({type(error).__name__})") from error
    finally:
        owner[name] = blocks
    given: mx.array | None = None
    windows = []
    for listener, cache in zip(listeners, caches, strict=True):
        if len(listener.called) != 1 or listener.called[0][2] is not cache:
            raise Unclear("its layers are not called once each, with their own caches")
        x, mask, _ = listener.called[0]
        if given is not None and x is not given:
            raise Unclear("it does something between its layers")
        windows.append(_window(mask, cache, ids.shape[1]))
        given = listener.result
    if given is None or not isinstance(result, mx.array):
        raise Unclear("it returns something else than activations")
    return Around(listeners[0].called[0][0], given, result, windows)


def _pretend(cache: Any) -> None:
    """Let an empty cache say that it holds so many tokens that any window is full."""
    size = getattr(cache, "max_size", None)
    cache.offset = _FAR if size is None else size + _FAR


def _window(mask: Any, cache: Any, tokens: int) -> int:
    """Return how many tokens a mask lets a query see; 0: all before it."""
    if mask is None or (isinstance(mask, str) and mask == "causal"):
        return 0
    size = getattr(cache, "max_size", None)
    before = _FAR if size is None else size - 1
    if not isinstance(mask, mx.array) or mask.dtype != mx.bool_:
        raise Unclear("its layers have a mask of another kind")
    if mask.shape[-1] != before + tokens or mask.size != tokens * (before + tokens):
        raise Unclear("its layers have a mask of another shape")
    if mask.size > _MOST_SEEN:
        raise Unclear(f"its layers see {before + 1} tokens, too many to look at")
    mask = mask.reshape(tokens, before + tokens)
    window = int(mask[0].sum().item())
    at = mx.arange(before, before + tokens)[:, None]
    columns = mx.arange(before + tokens)[None]
    causal = columns <= at
    if size is None and mx.array_equal(mask, causal).item():
        return 0
    if not mx.array_equal(mask, causal & (columns > at - window)).item():
        raise Unclear("its layers have a mask that is no window")
    return window
