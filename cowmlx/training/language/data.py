"""The data source of a language model: batches of rows, made of JSON lines in bounded steps."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Generator, Mapping
from itertools import chain
from typing import Any

import mlx.core as mx
from xxhash import xxh3_64

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.memory import RequireRoom
from cowmlx.models.model import Model
from cowmlx.steps import finished
from cowmlx.training.array_data import Rows
from cowmlx.training.language import examples
from cowmlx.training.language.rows import AT_ONCE, Row, RowMaker, by_length, pack
from cowmlx.training.language.token_inputs import TokenBatch
from cowmlx.training.objective import key_of
from cowmlx.training.options import Choice, Flag, Number, Option, read

CUT, REFUSE = "cut", "refuse"
_MAX_ROWS = 1 << 20
OPTIONS: dict[str, Option] = {
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
        micro_batch: rows that are computed at once; 0: all.
        window: the most tokens of a row; by default 2048, or the model's context length if that is
            less.
        long_rows: "cut" or "refuse" rows above it.
        mask_prompt: train on a chat's last message only, and on a completion without its prompt.
        packing: join short rows.
        shuffle: rows of similar length in a batch, batches in a random order; otherwise rows in
            the order of the data.
        seed: of the order.

    Raises:
        InvalidArgument: another key, or a value of another type or out of range.
    """

    def __init__(self, value: object = None, place: str = "options") -> None:
        options = read({} if value is None else value, place, OPTIONS)
        self.batch_size: int = options["batch_size"]
        self.micro_batch: int = options["micro_batch"]
        self._window: int | None = options["max_seq_length"]
        self.window = self._window or _WINDOW
        self.long_rows: str = options["long_rows"]
        self.mask_prompt: bool = options["mask_prompt"]
        self.packing: bool = options["packing"]
        self.shuffle: bool = options["shuffle"]
        self.seed: int = options["seed"]

    def for_model(self, model: Model) -> DataOptions:
        """Return the same for a model.

        Raises:
            InvalidArgument: its context length is less than the window.
        """
        most = model.context_length
        if self._window is not None and self._window > most:
            message = f"max_seq_length is {self._window}, but the model's context length is {most}"
            raise InvalidArgument(
                message, argument="max_seq_length", value=self._window, accepted=f"2 to {most}"
            )
        copied = copy.copy(self)
        copied.window = min(self.window, most)
        return copied


class LanguageData:
    """The :class:`cowmlx.training.objective.DataSource` of rows of tokens.

    Args:
        rows: one or more.
        options: how they become batches.
        digest: of the lines that the rows are made of, and the options.
        counts: for :meth:`info`.
    """

    def __init__(
        self, rows: list[Row], options: DataOptions, digest: str, counts: dict[str, int]
    ) -> None:
        self._rows = rows
        self._options = options
        self._counts = counts
        self._epoch = self._index = 0
        self._order: tuple[int, list[list[int]]] | None = None
        self._hash = digest

    def prepare(self, step: int) -> Generator[None, None, None]:
        """Order the rows of an epoch that begins, yielding between parts."""
        if self._order is None or self._order[0] != self._epoch:
            self._order = self._epoch, (yield from self._ordered())

    def batch(self, step: int) -> Rows | None:
        """Return the next batch, None once at the end of each epoch."""
        batches = self._batches()
        if self._index >= len(batches):
            self._epoch, self._index = self._epoch + 1, 0
            return None
        rows = batches[self._index]
        self._index += 1
        size = self._options.micro_batch or len(rows)
        return Rows([self._made(rows[at : at + size]) for at in range(0, len(rows), size)])

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
            text = "the place in the data is one in other data, or in batches made otherwise"
            raise BadFormat(text, reason="saved_context_mismatch")
        for value, most in ((epoch, 1 << 62), (index, self.steps())):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise BadFormat(
                    f"the place in the data is epoch {epoch!r}, batch {index!r}, and an epoch has "
                    f"{self.steps()} batches"
                )
        assert isinstance(epoch, int)
        assert isinstance(index, int)
        self._epoch, self._index = epoch, index

    def info(self) -> dict[str, int]:
        """Return counts of lines, rows, tokens, targets, and of rows that were cut or left out."""
        return {**self._counts, "rows": len(self._rows), "steps": self.steps()}

    def _batches(self) -> list[list[int]]:
        """Return the rows of each batch of this epoch."""
        if self._order is None or self._order[0] != self._epoch:
            finished(self.prepare(0))
        assert self._order is not None
        return self._order[1]

    def _ordered(self) -> Generator[None, None, list[list[int]]]:
        """Return rows of similar length together, in an order that the seed and epoch decide."""
        size = self._options.batch_size
        order = list(range(len(self._rows)))
        if self._options.shuffle:
            groups = yield from by_length(self._rows, self._shuffled("rows", len(order)))
            order = list(chain.from_iterable(groups))
        batches = [order[begin : begin + size] for begin in range(0, len(order), size)]
        if self._options.shuffle:
            batches = [batches[index] for index in self._shuffled("batches", len(batches))]
        return batches

    def _shuffled(self, what: str, count: int) -> list[int]:
        key = key_of(self._options.seed, what, self._epoch)
        order: list[int] = mx.random.permutation(count, key=key).tolist()  # type: ignore[assignment]
        return order

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


def _made_of(
    rows: list[Row], options: DataOptions, digest: str, counts: dict[str, int]
) -> Generator[None, None, LanguageData]:
    """Make data, yielding between parts of the rows."""
    counts |= {"tokens": 0, "targets": 0, "longest": 0}
    for number, row in enumerate(rows, 1):
        counts["tokens"] += len(row.tokens)
        counts["targets"] += row.target_count
        counts["longest"] = max(counts["longest"], len(row.tokens))
        if not number % AT_ONCE:
            yield
    return LanguageData(rows, options, digest, counts)


def _hash_of(options: DataOptions, model: Model) -> Any:
    """Return the hash of all that makes rows of lines, which are to be added, but the tokenizer.

    Not of tokens: a chat template may write the date, and a training continues on another day.
    """
    sources = model.chat_template.sources if model.chat_template is not None else {}
    return xxh3_64(repr([sorted(vars(options).items()), sorted(sources.items())]).encode())


def _array(values: array[int] | bytearray) -> mx.array:
    """Return an array of the same numbers, which are copied."""
    return mx.array(memoryview(values))  # type: ignore[arg-type]


# Bytes of data in a turn.
_PART = 1 << 14
_PROBLEMS = 5
# Of a row beside its tokens; and of rows, before memory is looked at again.
_ROW_BYTES, _CHECKED = 300, 1 << 20


def read_lines(
    model: Model,
    source: bytes | str,
    options: DataOptions,
    name: str = "",
    require_room: RequireRoom = lambda size, what: None,
) -> Generator[None, None, LanguageData]:
    """Make batches of JSON lines, or of a file with a path, yielding between parts of the work.

    Args:
        model: has the tokenizer.
        source: the lines, or the path.
        options: how they become batches.
        name: of the data in messages; "": the path.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: lines are malformed; the message has the numbers of the first, and why.
        InvalidArgument: there is no target, or the window is longer than the model's.
        Unsupported: the model has no chat template.
    """
    name = name or (source if isinstance(source, str) else "the data")
    options = options.for_model(model)
    maker = RowMaker(model, mask_prompt=options.mask_prompt)
    made: list[Row] = []
    faults = _Faults()
    counts = {"lines": 0, "cut": 0, "without_targets": 0}
    hashed = _hash_of(options, model)
    done = size = checked = 0
    for number, line in examples.lines(source):
        counts["lines"] = number
        hashed.update(line)
        hashed.update(b"\n")
        done += len(line) + 1
        if done >= _PART:
            yield
            done = 0
        try:
            row = _within((yield from maker.steps(examples.parse(line))), options, counts)
        except examples.Malformed as exc:
            faults.add(number, str(exc))
            continue
        if row is not None and not faults.count:
            made.append(row)
            size += _ROW_BYTES + row.tokens.itemsize * len(row.tokens)
        if size - checked >= _CHECKED:
            checked = size
            require_room(size, f"the rows of {name}")
    if faults.count:
        raise faults.error(counts["lines"], source, name)
    if not made:
        raise InvalidArgument(_nothing(name, counts), reason="missing", argument=name)
    yield
    rows = (yield from pack(made, options.window)) if options.packing else made
    return (yield from _made_of(rows, options, hashed.hexdigest(), counts))


def _within(row: Row, options: DataOptions, counts: dict[str, int]) -> Row | None:
    """Return a row as far as the window holds it; None if no target is left."""
    length, window = len(row.tokens), options.window
    if length > window:
        if options.long_rows == REFUSE:
            raise examples.Malformed(f"it has {length} tokens, more than max_seq_length {window}")
        counts["cut"] += 1
        kept = [(first, min(end, window)) for first, end in row.targets if first < window]
        row = Row(row.tokens[:window], kept)
    if row.target_count <= 0:
        counts["without_targets"] += 1
        return None
    return row


class _Faults:
    """Malformed lines: the first ones, and their number."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[tuple[int, str]] = []

    def add(self, number: int, reason: str) -> None:
        """Note a line."""
        self.count += 1
        if len(self._first) < _PROBLEMS:
            self._first.append((number, reason))

    def error(self, lines: int, source: bytes | str, name: str) -> BadFormat:
        """Return the error of data with so many lines."""
        first = "; ".join(f"line {number}: {reason}" for number, reason in self._first)
        more = self.count - len(self._first)
        return BadFormat(
            f"{self.count} of {lines} lines of {name} cannot be trained on: {first}"
            + (f"; and {more} more" if more else ""),
            file=source if isinstance(source, str) else None,
            line=self._first[0][0],
            value=self._first[0][1],
        )


def _nothing(name: str, counts: dict[str, int]) -> str:
    if not counts["lines"]:
        return f"{name} is empty: there is nothing to train on"
    return (
        f"none of the {counts['lines']} lines of {name} has a token to train on: the prompt takes "
        "all tokens of each line"
    )
