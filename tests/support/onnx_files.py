"""The weights of a BERT that was exported to ONNX, by the names that Hugging Face gives them.

Reads the few fields of the format (protocol buffers) that this takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_TYPES = {1: np.float32, 7: np.int64}
# Where a product with a weight without a name stands in the graph.
_PRODUCT = re.compile(r"/?(encoder/layer\.\d+/.*)/MatMul")


def _number(data: memoryview, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, and integers or bytes."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            value: Any
            value, at = _number(data, at)
        else:
            size, at = _number(data, at) if kind == 2 else ((8, at) if kind == 1 else (4, at))
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def _several(data: memoryview, number: int) -> list[Any]:
    return [value for own, value in _fields(data) if own == number]


def _texts(data: memoryview, number: int) -> list[str]:
    return [bytes(value).decode() for value in _several(data, number)]


def _tensor(data: memoryview) -> tuple[str, np.ndarray[Any, Any]]:
    dims: list[int] = []
    for value in _several(data, 1):
        if isinstance(value, int):
            dims.append(value)
        else:
            at = 0
            while at < len(value):
                size, at = _number(value, at)
                dims.append(size)
    (kind,), raw = _several(data, 2), _several(data, 9) or _several(data, 4)
    numbers = np.frombuffer(raw[0] if raw else b"", _TYPES.get(kind, np.uint8))
    return _texts(data, 8)[0], numbers.reshape(dims if numbers.size else (0,))


def weights(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The weights of a file, by name; those of products are turned as linear layers have them."""
    (graph,) = _several(memoryview(file.read_bytes()), _GRAPH)
    stored = dict(map(_tensor, _several(graph, _INITIALIZER)))
    found = {name: own for name, own in stored.items() if name.endswith((".weight", ".bias"))}
    for node in _several(graph, _NODE):
        names, inputs = _texts(node, 3), _texts(node, 1)
        place = _PRODUCT.fullmatch(names[0]) if names else None
        if place and inputs[-1] in stored and stored[inputs[-1]].ndim == 2:
            found[place[1].replace("/", ".") + ".weight"] = stored[inputs[-1]].T
    return found
