"""What stands in the host where a network and its layer caches stand, of a model on ranks."""

from __future__ import annotations

import weakref
from array import array
from itertools import count

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.machines.group import Entry, Group

# Logits are sent as these, and are what they were.
_SENT: dict[str, tuple[mx.Dtype, mx.Dtype]] = {
    "float32": (mx.uint32, mx.float32),
    "float16": (mx.uint16, mx.float16),
    "bfloat16": (mx.uint16, mx.bfloat16),
}


_CODES: dict[int, Any] = {2: "H", 4: "I"}
DTYPES = frozenset(_SENT)


class Facts:
    """What holds for the layer caches and the logits of a model.

    Attributes:
        vocabulary: width of the logits.
        dtype: of the logits, by name.
        trims: whether tokens can be dropped at the end.
        window: tokens from which on they cannot, or None.
    """

    def __init__(self, vocabulary: int, dtype: str, trims: bool, window: int | None) -> None:
        self.vocabulary = vocabulary
        self.dtype = dtype
        self.trims = trims
        self.window = window

    def size(self, rows: int) -> int:
        """Return the bytes of so many rows of logits."""
        return rows * self.vocabulary * _SENT[self.dtype][1].size

    def logits(self, body: bytes) -> mx.array:
        """Return logits (rows, V) that were sent."""
        sent, own = _SENT[self.dtype]
        numbers: Any = memoryview(body).cast(_CODES[sent.size])
        values = mx.array(numbers, dtype=sent)
        return values.view(own).reshape(-1, self.vocabulary)


class RemoteLayer:
    """All layer caches of one sequence, which lie with the ranks.

    Attributes:
        id: by which ranks know it.
        offset: tokens that it holds.
        nbytes: bytes that it has there, as far as they have told.
    """

    keys: None = None  # it has none here

    def __init__(self, network: RemoteNetwork, offset: int = 0, nbytes: int = 0) -> None:
        self.network = network
        self.id = next(network.ids)
        self.offset = offset
        self.nbytes = nbytes
        self.state: list[Any] = []
        weakref.finalize(self, network.group.drop, self.id).atexit = False

    @property
    def max_size(self) -> int | None:
        """Tokens from which on none can be dropped, or None."""
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
    """Takes the place of a network: what it is fed is an entry of the ranks' log.

    Args:
        group: the ranks, which have loaded the model.
        facts: of it.

    Attributes:
        training: never.
        ids: of sequences and batches.
    """

    training = False

    def __init__(self, group: Group, facts: Facts) -> None:
        self.group = group
        self.facts = facts
        self.ids = count(1)

    def make_cache(self) -> list[RemoteLayer]:
        """Return the empty layer caches of a sequence."""
        return [RemoteLayer(self)]

    def note(self, head: dict[str, Any]) -> None:
        """Append an entry that nobody waits for. Of ranks that are lost nothing is left to do."""
        if self.group.lost is None:
            self.group.post(head)

    def forward(self, layers: list[Any], tokens: Sequence[int], rows: int) -> Entry:
        """Let ranks process tokens that follow those of a sequence.

        Args:
            layers: of the sequence.
            tokens: these.
            rows: of the last of them, whose logits are wanted.

        Raises:
            Lost: a rank is.
        """
        (layer,) = layers
        entry = self.group.post(
            {"op": "forward", "id": layer.id, "rows": rows}, packed(tokens), self.facts.size(rows)
        )
        layer.offset += len(tokens)
        return entry

    def logits(self, entry: Entry) -> mx.array:
        """Return the logits (rows, V) that the first rank has answered with."""
        return self.facts.logits(entry.body)

    def bytes_held(self, entry: Entry) -> int:
        """Return what all ranks hold of a sequence, going by the first one's part."""
        told = entry.answers[0].get("bytes")
        good = isinstance(told, int) and told >= 0
        return told * len(self.group.peers) if good else 0  # type: ignore[operator]

    def __deepcopy__(self, memo: Any) -> RemoteNetwork:
        return self


def packed(tokens: Sequence[int]) -> bytes:
    """Return tokens as they are sent."""
    return array("i", tokens).tobytes()
