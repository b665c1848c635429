"""Flags, read after the values are computed: indices out of range, numbers not finite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import mlx.core as mx

from cowmlx.errors import CowMlxError
from cowmlx.programs.failure import placed
from cowmlx.programs.graph import Node
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.row import OperationError

# In place of a trace's array, which would keep the trace alive.
_NOTHING = mx.zeros((0, 3), mx.int64, stream=mx.cpu)


@dataclass(frozen=True)
class Note:
    """The check of a flag.

    Args:
        node: the node's name.
        op: its operation.
        function: the function that it is in.
        number: of the node's check; -1 if results have to be finite.
        check: the row's own, without its array; None if results have to be finite.
    """

    node: str
    op: str
    function: str
    number: int = -1
    check: Check | None = field(default=None, compare=False)

    def look(self, flag: mx.array) -> CowMlxError | None:
        """Return the error of an evaluated flag, or None."""
        error: CowMlxError | None = None
        if self.check is not None:
            error = self.check.look(flag)
        elif (flag if flag.ndim == 0 else mx.any(flag)).item():
            error = OperationError(
                "out_of_range",
                f"{self.op} makes a number that is not finite, and was given none",
                op=self.op,
                accepted="finite results",
            )
        return None if error is None else placed(error, self.node, self.op, self.function)


Flags = dict[Note, mx.array]
"""Flags by their checks: (count, place, value) of int64, or one bool."""


def add(flags: Flags, note: Note, flag: mx.array, guard: mx.array | None) -> None:
    """Add a flag; of two with the same note, the first that is set stays.

    Args:
        flags: receives it.
        note: its check.
        flag: int64 (3,), or bool () if results have to be finite.
        guard: a bool () that is false where the node does not count; None: it does.
    """
    if guard is not None:
        flag = mx.where(guard, flag, mx.zeros_like(flag))
    known = flags.get(note)
    if known is not None and note.check is None:
        flag = mx.logical_or(known, flag)
    elif known is not None:
        flag = mx.where(known[0] > 0, known, flag)
    flags[note] = flag


def of_check(node: Node, function: str, number: int, check: Check) -> Note:
    """Return the note of a node's check."""
    return Note(node.name, node.op, function, number, replace(check, found=_NOTHING, good=None))


def raise_first(looked: Iterable[tuple[Note, mx.array]]) -> None:
    """Raise the error of the first evaluated flag that is set.

    Raises:
        CowMlxError: an index out of range, or a number that is not finite.
    """
    for note, flag in looked:
        error = note.look(flag)
        if error is not None:
            raise error
