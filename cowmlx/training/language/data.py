"""The data source of a language model: batches of rows, in an order that a seed decides."""

from __future__ import annotations

import copy
from array import array

import mlx.core as mx
from xxhash import xxh3_64

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.training import seeds
from cowmlx.training.language import option_types
from cowmlx.training.language.loss import TokenBatch
from cowmlx.training.language.option_types import Choice
from cowmlx.training.options import Flag, Number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.training.language.rows import Row

CUT, REFUSE = "cut", "refuse"
_MAX_ROWS = 1 << 20
OPTIONS: dict[str, Any] = {
    "batch_size": Number(f"1 to {_MAX_ROWS}", 1, _MAX_ROWS, integer=True, default=4),
    "micro_batch": Number(f"0 to {_MAX_ROWS}", 0, _MAX_ROWS, integer=True, default=0),
    "max_seq_length": Number("2 to 2^24", 2, 1 << 24, integer=True),
    "long_rows": Choice((CUT, REFUSE), CUT),
    "mask_prompt": Flag(False),
    "packing": Flag(False),
    "shuffle": Flag(True),
    "seed": Number("0 to 2^63 - 1", 0, 2**63 - 1, integer=True, default=0),
}
_WINDOW = 2048


class DataOptions:
    """How data become batches; names are mlx-lm's where it has them.

    Attributes:
        batch_size: rows of a step.
        micro_batch: rows of it that are computed at once; 0: all.
        window: the most tokens of a row; not given, 2048, or the model's context length if that is
            less.
        long_rows: "cut" or "refuse": what is done with longer ones.
        mask_prompt: learn a chat's last message only, and a completion without its prompt.
        packing: put short rows behind each other.
        shuffle: batches of similar length in an order that the seed decides; without it the rows
            in their own order.
        seed: of the order.

    Args:
        value: an object with keys of ``OPTIONS``; None: none of them.
        place: what it is, for messages.

    Raises:
        InvalidArgument: another key, or a value of another type or out of range.
    """

    def __init__(self, value: object = None, place: str = "options") -> None:
        found = option_types.read({} if value is None else value, place, OPTIONS)
        self.batch_size: int = found["batch_size"]
        self.micro_batch: int = found["micro_batch"]
        self._window: int | None = found["max_seq_length"]
        self.window = self._window or _WINDOW
        self.long_rows: str = found["long_rows"]
        self.mask_prompt: bool = found["mask_prompt"]
        self.packing: bool = found["packing"]
        self.shuffle: bool = found["shuffle"]
        self.seed: int = found["seed"]

    def for_model(self, model: Model) -> DataOptions:
        """Return the same for a model.

        Raises:
            InvalidArgument: its context length is less than the window.
        """
        most = model.context_length
        if self._window is not None and self._window > most:
            raise InvalidArgument(
                f"max_seq_length is {self._window}, but the model's context length is {most}",
                argument="max_seq_length",
                value=self._window,
                accepted=f"2 to {most}",
            )
        found = copy.copy(self)
        found.window = min(self.window, most)
        return found


class Step:
    """The batch of one step.

    Attributes:
        micro_batches: of it, the last maybe smaller.
    """

    __slots__ = ("micro_batches",)

    def __init__(self, micro_batches: Sequence[TokenBatch]) -> None:
        self.micro_batches = micro_batches


class LanguageData:
    """What :class:`cowmlx.training.objective.DataSource` asks for, of rows of tokens.

    Args:
        rows: at least one, each with something to be learnt.
        options: how they become batches.
        counts: what :meth:`info` tells of their making.
    """

    def __init__(
        self, rows: list[Row], options: DataOptions, counts: dict[str, int] | None = None
    ) -> None:
        self._rows = rows
        self._options = options
        self._counts = counts or {}
        self._epoch = self._index = 0
        self._order: tuple[int, list[list[int]]] | None = None
        self._hash = _hash(rows, options)

    def batch(self, step: int) -> Step | None:
        """Return the next batch, None once at the end of each epoch."""
        batches = self._batches()
        if self._index >= len(batches):
            self._epoch, self._index = self._epoch + 1, 0
            return None
        rows = batches[self._index]
        self._index += 1
        size = self._options.micro_batch or len(rows)
        return Step([self._made(rows[at : at + size]) for at in range(0, len(rows), size)])

    def steps(self) -> int:
        """Return how many batches an epoch has."""
        return -(-len(self._rows) // self._options.batch_size)

    def state(self) -> dict[str, Any]:
        """Return the place, and a hash of the data that it is a place in."""
        return {"epoch": self._epoch, "index": self._index, "data": self._hash}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place.

        Raises:
            BadFormat: it is none in these data.
        """
        epoch, index = state.get("epoch"), state.get("index")
        if state.get("data") != self._hash:
            raise BadFormat(
                "the place in the data is one in other data, or in batches made otherwise",
                reason="saved_context_mismatch",
            )
        for value, most in ((epoch, 1 << 62), (index, self.steps())):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise BadFormat(
                    f"the place in the data is epoch {epoch!r}, batch {index!r}, and an epoch has "
                    f"{self.steps()} batches",
                    reason="malformed_file",
                )
        assert isinstance(epoch, int)
        assert isinstance(index, int)
        self._epoch, self._index = epoch, index

    def info(self) -> dict[str, int]:
        """Return what was made of the data: lines, rows, tokens, targets, and what was left out."""
        return {
            **self._counts,
            "rows": len(self._rows),
            "tokens": sum(len(row.tokens) for row in self._rows),
            "targets": sum(row.count for row in self._rows),
            "longest": max(len(row.tokens) for row in self._rows),
            "steps": self.steps(),
        }

    def _batches(self) -> list[list[int]]:
        """Return the rows of each batch of this epoch."""
        if self._order is None or self._order[0] != self._epoch:
            self._order = self._epoch, self._ordered()
        return self._order[1]

    def _ordered(self) -> list[list[int]]:
        """Return rows of similar length together, in an order that the seed and epoch decide."""
        size = self._options.batch_size
        order = list(range(len(self._rows)))
        if self._options.shuffle:
            order = self._shuffled("rows", len(order))
            order.sort(key=lambda index: len(self._rows[index].tokens))
        batches = [order[begin : begin + size] for begin in range(0, len(order), size)]
        if self._options.shuffle:
            batches = [batches[index] for index in self._shuffled("batches", len(batches))]
        return batches

    def _shuffled(self, what: str, count: int) -> list[int]:
        key = seeds.key_of(self._options.seed, what, self._epoch)
        found: list[int] = mx.random.permutation(count, key=key).tolist()  # type: ignore[assignment]
        return found

    def _made(self, group: list[int]) -> TokenBatch:
        rows = [self._rows[index] for index in group]
        width = max(len(row.tokens) for row in rows)
        tokens, targets = array("i", bytes(4 * width * len(rows))), bytearray(width * len(rows))
        for index, row in enumerate(rows):
            begin = index * width
            tokens[begin : begin + len(row.tokens)] = row.tokens
            for first, end in row.targets:
                targets[begin + first : begin + end] = b"\1" * (end - first)
        shape = (len(rows), width)
        return TokenBatch(
            _array(tokens).reshape(shape), _array(targets).reshape(shape).astype(mx.bool_)
        )


def _hash(rows: list[Row], options: DataOptions) -> str:
    """Return a hash of rows, and of how they become batches."""
    hashed = xxh3_64(repr(sorted(vars(options).items())).encode())
    for row in rows:
        hashed.update(row.tokens.tobytes())
        hashed.update(repr(row.targets).encode())
    return hashed.hexdigest()


def _array(values: array[int] | bytearray) -> mx.array:
    """Return an array of the same numbers, which are copied."""
    return mx.array(memoryview(values))  # type: ignore[arg-type]
