"""Proxies in the host for a network and its layer caches, which the ranks hold."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import mlx.core as mx

from cowmlx.machines.group import Entry, Group

# Logits of a dtype are sent as integers.
_SENT: dict[str, tuple[mx.Dtype, mx.Dtype]] = {
    "float32": (mx.uint32, mx.float32),
    "float16": (mx.uint16, mx.float16),
    "bfloat16": (mx.uint16, mx.bfloat16),
}
_CODES: dict[int, Any] = {2: "H", 4: "I"}
DTYPES = frozenset(_SENT)


class Facts(NamedTuple):
    """Facts of the layer caches and the logits of a model."""

    vocabulary: int  # width of the logits
    dtype: str  # of the logits
    trims: bool  # whether tokens can be dropped at the end
    window: int | None  # the number of tokens from which they cannot

    def size(self, rows: int) -> int:
        """Return the bytes of rows of logits."""
        return rows * self.vocabulary * _SENT[self.dtype][1].size

    def logits(self, body: bytes) -> mx.array:
        """Return received logits (rows, V)."""
        sent, own = _SENT[self.dtype]
        numbers: Any = memoryview(body).cast(_CODES[sent.size])
        values = mx.array(numbers, dtype=sent)
        return values.view(own).reshape(-1, self.vocabulary)


class RemoteLayer:
    """All layer caches of one sequence, which the ranks hold."""

    keys: None = None  # it has none here

    def __init__(self, network: RemoteNetwork, offset: int = 0, nbytes: int = 0) -> None:
        self.network = network
        self.id = next(network.ids)  # of the sequence, for the ranks
        self.offset = offset  # its number of tokens
        self.nbytes = nbytes  # its bytes, as far as ranks have reported them
        self.state: list[Any] = []
        weakref.finalize(self, network.group.drop, self.id).atexit = False

    @property
    def max_size(self) -> int | None:
        """The number of tokens from which none can be dropped, or None."""
        return self.network.facts.window

    def is_trimmable(self) -> bool:
        """Whether the last tokens can be dropped."""
        facts = self.network.facts
        return facts.trims and (facts.window is None or self.offset < facts.window)

    def trim(self, number: int) -> int:
        """Drop the last tokens; returns how many."""
        number = min(number, self.offset)
        if number:
            self.network.note({"op": "trim", "id": self.id, "count": number})
            self.offset -= number
        return number

    def __deepcopy__(self, memo: Any) -> RemoteLayer:
        other = RemoteLayer(self.network, self.offset, self.nbytes)
        if self.offset:
            self.network.note({"op": "copy", "id": self.id, "to": other.id})
        return other


class RemoteNetwork:
    """A proxy of a network: its passes are entries of the ranks' log."""

    training = False

    def __init__(self, group: Group, facts: Facts) -> None:
        self.group = group
        self.facts = facts
        self.ids = count(1)

    def make_cache(self) -> list[RemoteLayer]:
        """Return the empty layer caches of a sequence."""
        return [RemoteLayer(self)]

    def note(self, head: dict[str, Any]) -> None:
        """Append an entry without an answer; does nothing for lost ranks."""
        if self.group.lost is None:
            self.group.post(head)

    def forward(self, layers: list[Any], tokens: Sequence[int], rows: int) -> Entry:
        """Let ranks append tokens to a sequence; the logits of the last ``rows`` are the answer.

        Raises:
            Lost: a rank is.
        """
        (layer,) = layers
        entry = self.group.post(
            {"op": "forward", "id": layer.id, "rows": rows}, encoded(tokens), self.facts.size(rows)
        )
        layer.offset += len(tokens)
        return entry

    def logits(self, entry: Entry) -> mx.array:
        """Return the logits (rows, V) in the first rank's answer."""
        return self.facts.logits(entry.body)

    def bytes_held(self, entry: Entry) -> int:
        """Return the bytes of a sequence or row on all ranks, estimated from the first's part."""
        held = entry.answers[0].get("bytes")
        good = isinstance(held, int) and held >= 0
        return held * len(self.group.peers) if good else 0  # type: ignore[operator]

    def __deepcopy__(self, memo: Any) -> RemoteNetwork:
        return self


def encoded(tokens: Sequence[int]) -> bytes:
    """Return tokens as int32 bytes, for sending."""
    return array("i", tokens).tobytes()
