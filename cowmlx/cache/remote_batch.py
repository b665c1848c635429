"""A batch whose rows lie with the ranks of a model on several machines."""

from __future__ import annotations

import weakref
from itertools import chain

from cowmlx.cache.batch import has_place
from cowmlx.cache.rows.positions import Row
from cowmlx.machines.network import RemoteLayer, RemoteNetwork, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.machines.group import Entry


class RemoteRow(Row):
    """A sequence's place in such a batch.

    Attributes:
        number: by which ranks know it.
        nbytes: that its sequence had when it joined.
    """

    __slots__ = ("nbytes", "number")

    def __init__(self, number: int, index: int, length: int, nbytes: int) -> None:
        super().__init__(index, length)
        self.number = number
        self.nbytes = nbytes


class RemoteRows:
    """The rows of such a batch, in the order that ranks have them in."""

    def __init__(self) -> None:
        self.all: list[RemoteRow] = []


class RemoteBatch:
    """Several sequences, for ranks to step at once; every change is an entry of their log.

    Args:
        network: whose sequences these are.
    """

    def __init__(self, network: RemoteNetwork) -> None:
        self.rows = RemoteRows()
        self._network = network
        self._id = next(network.ids)
        network.note({"op": "batch", "id": self._id})
        weakref.finalize(self, network.group.drop, self._id).atexit = False

    def has_place(self, length: int) -> bool:
        """Whether a sequence of so many tokens is like enough to the others in length."""
        return has_place([row.length for row in self.rows.all], length)

    def join(self, layers: list[RemoteLayer], length: int) -> RemoteRow:
        """Move a sequence of ``length`` tokens into a new row."""
        (layer,) = layers
        row = RemoteRow(next(self._network.ids), len(self.rows.all), length, layer.nbytes)
        self._note("join", row, id=layer.id, length=length)
        self.rows.all.append(row)
        return row

    def take(self, row: RemoteRow) -> list[RemoteLayer]:
        """Return a row's layers, copied, as those of a sequence of its own."""
        layer = RemoteLayer(self._network, row.length, row.nbytes)
        self._note("take", row, id=layer.id)
        return [layer]

    def leave(self, row: RemoteRow) -> None:
        """Give up a row; the last one takes its place."""
        self._note("leave", row)
        last = self.rows.all.pop()
        if last is not row:
            last.index = row.index
            self.rows.all[row.index] = last

    def step(self, rows: list[RemoteRow], tokens: list[int]) -> Entry:
        """Feed rows a token each; ranks answer with their logits, in this order.

        Raises:
            Lost: a rank is.
        """
        network = self._network
        head = {"op": "step", "batch": self._id, "rows": [row.number for row in rows]}
        entry = network.group.post(head, packed(tokens), network.facts.size(len(rows)))
        for row in rows:
            row.length += 1
        return entry

    def feed(self, rows: list[RemoteRow], tokens: list[list[int]]) -> Entry:
        """Feed rows so many tokens each, whose logits nobody wants.

        Raises:
            Lost: a rank is.
        """
        head = {"op": "feed", "batch": self._id, "rows": [row.number for row in rows]}
        head |= {"counts": [len(ids) for ids in tokens]}
        entry = self._network.group.post(head, packed([*chain(*tokens)]), 0)
        for row, ids in zip(rows, tokens, strict=True):
            row.length += len(ids)
        return entry

    def can_take_back(self, row: RemoteRow, more: int) -> bool:
        """Whether ``more`` further tokens of a row could be dropped again."""
        facts = self._network.facts
        return facts.trims and (facts.window is None or row.length + more < facts.window)

    def nbytes_of(self, row: RemoteRow) -> int:
        """Return the bytes that a row's sequence had when it joined."""
        return row.nbytes

    def _note(self, operation: str, row: RemoteRow, **arguments: Any) -> None:
        head = {"op": operation, "batch": self._id, "row": row.number, **arguments}
        self._network.note(head)
