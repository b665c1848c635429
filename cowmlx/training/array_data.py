"""Data that are whole arrays, with rows along the first axis."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from xxhash import xxh3_64

from cowmlx.accelerate import kernels
from cowmlx.errors import InvalidArgument
from cowmlx.generated.reasons import Reason
from cowmlx.training.objective import key_of


class Pieces(Sequence[list[mx.array]]):
    """The rows of arrays in pieces, made on demand.

    Args:
        arrays: one or more, with as many rows each.
        size: rows of a piece, the last may be smaller; 0: all.
    """

    def __init__(self, arrays: Sequence[mx.array], size: int) -> None:
        self._arrays = list(arrays)
        self._rows = arrays[0].shape[0]
        self._size = min(size or self._rows, self._rows)

    def __len__(self) -> int:
        return -(-self._rows // self._size)

    def __getitem__(self, index: Any) -> Any:
        """Return a piece."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self._size == self._rows:
            return list(self._arrays)
        begin = index * self._size
        return [array[begin : begin + self._size] for array in self._arrays]


@dataclass(frozen=True)
class Rows:
    """A batch: rows in pieces that are computed at once."""

    micro_batches: Sequence[Any]


def unfit(
    reason: Reason, what: str, at: int, name: str, value: object, accepted: object
) -> InvalidArgument:
    """Return the error of an array of a list, whose argument is after the last ": " in what."""
    return InvalidArgument(
        f"{what}[{at}] ({name}) has {value}, must have {accepted}",
        reason=reason,
        argument=f"{what.rpartition(': ')[2]}[{at}]",
        value=f"{value}",
        accepted=f"{accepted}",
    )


def rows_of(arrays: Sequence[mx.array], names: Sequence[str], what: str = "inputs") -> int:
    """Return how many rows arrays have; ``what`` names the list in messages, as "where: list".

    Raises:
        InvalidArgument: there are more or fewer, one has no rows, or another number of them.
    """
    argument = what.rpartition(": ")[2]
    if len(arrays) != len(names):
        raise InvalidArgument(
            f"{what} has {len(arrays)} arrays, must have {len(names)}: {', '.join(names[:16])}",
            reason="missing" if len(arrays) < len(names) else "out_of_range",
            argument=argument,
            value=len(arrays),
            accepted=f"{len(names)}",
        )
    if not arrays:
        raise InvalidArgument(f"{what} has no array", reason="missing", argument=argument)
    for at, (array, name) in enumerate(zip(arrays, names, strict=True)):
        if not array.ndim or not array.shape[0]:
            raise unfit("shape_mismatch", what, at, name, list(array.shape), "1 row or more")
        if array.shape[0] != arrays[0].shape[0]:
            rows, wanted = array.shape[0], arrays[0].shape[0]
            raise InvalidArgument(
                f"{what}[{at}] ({name}) has {rows} rows, but {names[0]} has {wanted}",
                reason="shape_mismatch",
                argument=f"{argument}[{at}]",
                value=rows,
                accepted=f"{wanted} rows",
            )
    return arrays[0].shape[0]


class Inputs:
    """The inputs of a batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def check(self, arrays: Sequence[mx.array], what: str = "inputs") -> None:
        """Check arrays of one or more rows.

        Raises:
            InvalidArgument: as :func:`rows_of`.
        """
        rows_of(arrays, self.names, what)

    def batch(self, arrays: Sequence[mx.array], micro_batch: int) -> Rows:
        """Return a batch of all rows, ``micro_batch`` of which are computed at once; 0: all."""
        return Rows(Pieces(arrays, micro_batch))


# Bytes that are hashed in a turn.
_PART = 4 << 20


def digest_of(arrays: Sequence[mx.array]) -> Generator[None, None, str]:
    """Return a hash of computed arrays with rows, yielding between parts."""
    hashed = xxh3_64()
    for array in arrays:
        rows = array.shape[0]
        hashed.update(f"{array.dtype} {array.shape}".encode())
        at_once = max(1, _PART * rows // max(array.nbytes, 1))
        for begin in range(0, rows if array.size else 0, at_once):
            numbers = mx.contiguous(array[begin : begin + at_once]).reshape(-1)
            size = _PART // numbers.itemsize
            for first in range(0, numbers.size, size):
                part = numbers[first : first + size].view(mx.uint8)
                hashed.update(memoryview(part))  # type: ignore[arg-type]
                yield
    return hashed.hexdigest()


# Larger batches are not prefetched.
_MOST_AHEAD = 16 << 20


class ArrayData:
    """Batches of the rows of arrays; the last of an epoch may be smaller.

    Args:
        inputs: of the program or model.
        arrays: checked by them.
        batch_size: rows of a batch; 0: all.
        micro_batch: rows that are computed at once; 0: those of the batch.
        seed: of the order, another one in each epoch; None: the order of the arrays.
        digest: of the arrays; other data have another one.
    """

    def __init__(
        self,
        inputs: Inputs,
        arrays: Sequence[mx.array],
        batch_size: int,
        micro_batch: int,
        seed: int | None,
        digest: str = "",
    ) -> None:
        self._inputs = inputs
        self._arrays = list(arrays)
        self._rows = arrays[0].shape[0]
        self._size = min(batch_size or self._rows, self._rows)
        self._micro_batch = micro_batch
        self._seed = seed
        # A hash of the data and of how they become batches.
        self._described = f"{digest} {self._size}" + (" shuffled" if seed is not None else "")
        self._is_short = mx.default_device().type == mx.cpu and kernels.available()
        self._epoch = self._index = 0
        self._order: tuple[int, mx.array] | None = None
        # The prefetched batch: its epoch and index, and its rows.
        self._ahead: tuple[tuple[int, int], list[mx.array]] | None = None

    def prepare(self, step: int) -> Generator[None, None, None]:
        """Do nothing: batches are parts of the arrays."""
        yield from ()

    def batch(self, step: int) -> Rows | None:
        """Return the next batch; None at the end of an epoch."""
        if self._index >= self.steps():
            self._epoch, self._index = self._epoch + 1, 0
            return None
        chosen = self._at_once() if self._is_short else None
        if chosen is None:
            self._is_short = False
            chosen = self._by_stream()
        self._index += 1
        return self._inputs.batch(chosen, self._micro_batch)

    def _at_once(self) -> list[mx.array] | None:
        """Return the next rows, computed without a stream; None if that would take long."""
        begin, end = self._range(self._index)
        module = kernels.module()
        order = None
        if self._seed is not None:  # rows are copied
            size = sum(array.nbytes for array in self._arrays) * (end - begin) // self._rows
            if size > module.MOST_COPIED:
                return None
            order = self._order_of(self._epoch)
        found = []
        for array in self._arrays:
            rows = module.rows(array, begin, end, order)
            if rows is None:
                return None
            found.append(rows)
        return found

    def _by_stream(self) -> list[mx.array]:
        """Return the next rows, computed, and start to compute those behind them."""
        place = self._epoch, self._index
        is_ahead = self._ahead is not None and self._ahead[0] == place
        chosen = self._ahead[1] if self._ahead is not None and is_ahead else self._rows_at(*place)
        self._ahead = None
        mx.eval(chosen)
        size = sum(array.nbytes for array in chosen)
        following = self._epoch, self._index + 1
        if following[1] < self.steps() and size <= _MOST_AHEAD:  # prefetch them
            ahead = self._rows_at(*following)
            mx.async_eval(ahead)
            self._ahead = following, ahead
        return chosen

    def _range(self, index: int) -> tuple[int, int]:
        begin = index * self._size
        return begin, min(begin + self._size, self._rows)

    def _rows_at(self, epoch: int, index: int) -> list[mx.array]:
        """Return the rows of a batch, lazily."""
        begin, end = self._range(index)
        if self._seed is None:
            return [array[begin:end] for array in self._arrays]
        rows = self._order_of(epoch)[begin:end]
        return [mx.take(array, rows, axis=0) for array in self._arrays]

    def _order_of(self, epoch: int) -> mx.array:
        if self._order is None or self._order[0] != epoch:
            key = key_of(self._seed or 0, "shuffle", epoch)
            order = mx.random.permutation(self._rows, key=key)
            mx.eval(order)
            self._order = epoch, order
        return self._order[1]

    def steps(self) -> int:
        """Return how many batches an epoch has."""
        return -(-self._rows // self._size)

    def state(self) -> dict[str, Any]:
        """Return the place, and a hash of the data and of how they become batches."""
        return {"epoch": self._epoch, "index": self._index, "data": self._described}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place in these data."""
        self._epoch, self._index = int(state["epoch"]), int(state["index"])
