"""The state of layer caches as named leaves, as saved contexts have them, and their rules.

mlx-lm's caches give their state as nested tuples and lists of arrays, numbers and None. A
:class:`Template` learns the leaves of a model's caches from two passes that are traced, not
evaluated, so that a file is checked before it is used.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from mlx.nn.layers.base import Module

# Tokens of the passes: the sizes that differ behind them are those that grow.
_PASSES = (1, 8)
# Caches that hold keys and values of a run of tokens that ends with the last one.
_RUNS = (
    *("KVCache", "QuantizedKVCache", "DequantizedKVCache"),
    *("ConcatenateKVCache", "ChunkedKVCache"),
)
_RING = "RotatingKVCache"
_TRACKED = (*_RUNS, _RING)
# Their attributes that never change.
_SETTINGS = ("group_size", "bits", "chunk_size", "keep", "max_size")
_TOKENS = 2  # the axis of keys and values that counts tokens


class Mismatch(Exception):
    """A state that is not one of these layers; the text says why."""


class ArrayInfo:
    """The type and shape of an array that is not read yet."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: mx.Dtype, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape


def kind_of(layer: Any) -> Any:
    """Return a layer's class by name; a list of its parts' where it has parts."""
    within = getattr(layer, "caches", None)
    return type(layer).__name__ if within is None else [kind_of(part) for part in within]


def leaves(layers: list[Any]) -> dict[str, Any]:
    """Return the leaves of layer caches by their paths, such as "0.1".

    Keys and values are allocated ahead; only their used part is returned.
    """
    return {
        path: _used(layer, leaf)
        for where, layer in parts(layers)
        for path, leaf in _walk(layer.state, where)
    }


def parts(layers: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every cache that has no parts, and its path."""
    for index, layer in enumerate(layers):
        path = f"{where}{index}"
        within = getattr(layer, "caches", None)
        if within is None:
            yield path, layer
        else:
            yield from parts(within, f"{path}.")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}.{index}")
    else:
        yield path, value


def _used(layer: Any, leaf: Any) -> Any:
    kind = type(layer).__name__
    if not isinstance(leaf, mx.array) or kind not in _TRACKED:
        return leaf
    used: int = layer.offset - getattr(layer, "start_position", 0)
    return leaf[:, :, :used] if used < leaf.shape[_TOKENS] else leaf


class Template:
    """The form of the states of a model's layer caches.

    Args:
        network: called with tokens (1, S) and layers.
        make_layers: returns empty layer caches.
    """

    def __init__(self, network: Module, make_layers: Callable[[], list[Any]]) -> None:
        self._make_layers = make_layers
        self._first, self._second = ({}, {})  # type: dict[str, Any], dict[str, Any]
        for length, known in zip(_PASSES, (self._first, self._second), strict=True):
            layers = make_layers()
            network(mx.zeros((1, length), mx.int32), cache=layers)
            self._states = {where: _outlined(part.state) for where, part in parts(layers)}
            for where, state in self._states.items():
                known.update(_walk(state, where))
        self.kinds = [kind_of(layer) for layer in layers]

    def check(self, found: dict[str, Any], length: int) -> None:
        """Check leaves, arrays or their :class:`ArrayInfo`, of layers that hold some tokens.

        Raises:
            Mismatch: they are not these layers'.
        """
        if found.keys() != self._second.keys():
            odd = sorted(found.keys() ^ self._second.keys())
            raise Mismatch(f"its layers do not have the parts of these ({', '.join(odd[:3])})")
        for where, part in parts(self._make_layers()):
            kind = type(part).__name__
            own = [path for path in found if path.startswith(f"{where}.")]
            if not own or not _can_be_set(part):
                raise Mismatch(f"the state of a {kind} layer cannot be read and set")
            for path in own:
                self._check_leaf(path, found[path], kind, length)
            if kind in _TRACKED:
                problem = _problem(part, _filled(self._states[where], found, where), length)
                if problem:
                    raise Mismatch(f"layer {where} {problem}")

    def bytes_converted(self, found: dict[str, Any]) -> int:
        """Return the bytes that :meth:`fill` takes for arrays, checked, of another type."""
        arrays = mx.array | ArrayInfo
        pairs = ((leaf, self._second[path]) for path, leaf in found.items())
        return sum(
            prod(leaf.shape) * known.dtype.size
            for leaf, known in pairs
            if isinstance(leaf, arrays) and isinstance(known, arrays) and leaf.dtype != known.dtype
        )

    def fill(self, found: dict[str, Any]) -> list[Any]:
        """Return layer caches with these leaves, which were checked, in the layers' own types."""
        layers = self._make_layers()
        typed = {path: _typed(leaf, self._second[path]) for path, leaf in found.items()}
        for where, part in parts(layers):
            part.state = _filled(self._states[where], typed, where)
        return layers

    def _check_leaf(self, path: str, leaf: Any, kind: str, length: int) -> None:
        known = [leaves[path] for leaves in (self._first, self._second) if path in leaves]
        alike = [other for other in known if _alike(other, leaf)]
        if not alike:
            raise Mismatch(f"{path} is {_shown(leaf)}, not {_shown(known[-1])}")
        if isinstance(leaf, mx.array | ArrayInfo):
            for axis, size in enumerate(leaf.shape):
                sizes = {other.shape[axis] for other in alike}
                tracked = axis == _TOKENS and kind in _TRACKED  # _problem looks at these
                grows = len(sizes) > 1 and 0 < size <= length
                if size not in sizes and not tracked and not grows:
                    raise Mismatch(f"{path} is {_shown(leaf)}, not {_shown(alike[-1])}")
        elif leaf is not None and kind not in _TRACKED:
            counts = len(set(alike)) > 1 and not isinstance(leaf, str)
            if not (0 <= leaf <= length if counts else leaf == alike[-1]):
                raise Mismatch(f"{path} is {leaf!r}, which it cannot be")


def _outlined(state: Any) -> Any:
    """Return a state without its arrays, which would keep a graph alive."""
    if isinstance(state, tuple | list):
        return type(state)(_outlined(item) for item in state)
    return ArrayInfo(state.dtype, state.shape) if isinstance(state, mx.array) else state


def _can_be_set(layer: Any) -> bool:
    state = getattr(type(layer), "state", None)
    return isinstance(state, property) and state.fset is not None


def _filled(state: Any, found: dict[str, Any], path: str) -> Any:
    """Return a state like ``state`` with the leaves found."""
    if isinstance(state, tuple | list):
        items = (_filled(item, found, f"{path}.{index}") for index, item in enumerate(state))
        return type(state)(items)
    return found[path]


def _alike(other: Any, leaf: Any) -> bool:
    if isinstance(leaf, mx.array | ArrayInfo):
        return (
            isinstance(other, ArrayInfo)
            and (leaf.dtype == other.dtype or (_is_floating(leaf) and _is_floating(other)))
            and len(leaf.shape) == len(other.shape)
        )
    return type(leaf) is type(other)


def _is_floating(array: mx.array | ArrayInfo) -> bool:
    """Whether its numbers can be converted to the type of other layers."""
    return mx.issubdtype(array.dtype, mx.floating)


def _typed(leaf: Any, known: Any) -> Any:
    """Return a leaf in the type that it has in a model's layers."""
    if isinstance(leaf, mx.array) and isinstance(known, mx.array | ArrayInfo):
        return leaf.astype(known.dtype)
    return leaf


def _shown(leaf: Any) -> str:
    if isinstance(leaf, mx.array | ArrayInfo):
        return f"{str(leaf.dtype).rpartition('.')[2]} {tuple(leaf.shape)}"
    return repr(leaf)


def _problem(layer: Any, state: Any, length: int) -> str:
    """Return the problem of a state for a cache of keys and values; "" if it has none.

    Args:
        layer: an empty cache, which is given the state.
        state: its arrays may be :class:`ArrayInfo`.
        length: the tokens it has to hold.
    """
    settings = {name: value for name, value in vars(layer).items() if name in _SETTINGS}
    layer.state = state
    for name, value in settings.items():
        if getattr(layer, name) != value:
            return f"has {name} {getattr(layer, name)}, not {value}"
    halves = [leaf for _, leaf in _walk((layer.keys, layer.values), "")]
    if all(part is None for part in halves):  # the layer is not used
        return "" if layer.offset == 0 else f"is empty, but at offset {layer.offset}"
    if layer.offset != length:
        return f"is at offset {layer.offset}, not {length}"
    sizes = {part.shape[_TOKENS] for part in halves}
    size = sizes.pop()
    if sizes:
        return "has keys and values of different lengths"
    if type(layer).__name__ == _RING:
        return _ring_problem(layer, size)
    start = getattr(layer, "start_position", 0)
    if not 0 <= start < length or size != length - start:
        return f"holds {size} tokens, not those from {start} to {length}"
    return ""


def _ring_problem(layer: Any, size: int) -> str:
    """A ring grows to its full size, or beyond by the last chunk of a prompt, then wraps."""
    offset, index, full = layer.offset, layer._idx, layer.max_size
    if offset < full:
        good = size == index == offset
    elif size > full:
        good = size <= offset and index == size
    else:
        good = size == full and layer.keep < index <= size
    return "" if good else f"holds {size} of {offset} tokens, the next at {index}"
