"""JSON lines made a data source, in bounded steps."""

from __future__ import annotations

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.training.language import examples, lines, packing
from cowmlx.training.language.data import REFUSE, LanguageData
from cowmlx.training.language.rows import Row, RowMaker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from cowmlx.models.model import Model
    from cowmlx.training.language.data import DataOptions

# Bytes after which others get a turn.
_PART = 1 << 14
_PROBLEMS = 5


def read(
    model: Model, source: bytes | str, options: DataOptions, name: str = ""
) -> Generator[None, None, LanguageData]:
    """Make batches of JSON lines, yielding between parts of the work.

    Args:
        model: whose tokenizer and chat template are used.
        source: the lines, or the path of a file.
        options: how.
        name: of the data, for messages.

    Returns:
        the data source.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: lines are malformed; the message has the numbers of the first, and why.
        InvalidArgument: there is nothing to be learnt, or the window is longer than the model's.
        Unsupported: the model has no chat template.
    """
    name = name or (source if isinstance(source, str) else "the data")
    options = options.for_model(model)
    maker = RowMaker(model, mask_prompt=options.mask_prompt)
    made: list[Row] = []
    faults = _Faults()
    counts = {"lines": 0, "cut": 0, "without_targets": 0}
    done = 0
    for number, line in lines.read(source):
        counts["lines"] = number
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
    if faults.count:
        raise faults.error(counts["lines"], source, name)
    if not made:
        raise InvalidArgument(_nothing(name, counts), reason="missing", argument=name)
    yield
    return LanguageData(
        packing.pack(made, options.window) if options.packing else made, options, counts
    )


def _within(row: Row, options: DataOptions, counts: dict[str, int]) -> Row | None:
    """Return a row as far as the window holds it; None if nothing of it is to be learnt."""
    length, window = len(row.tokens), options.window
    if length > window:
        if options.long_rows == REFUSE:
            raise examples.Malformed(f"it has {length} tokens, more than max_seq_length {window}")
        counts["cut"] += 1
        kept = [(first, min(end, window)) for first, end in row.targets if first < window]
        row = Row(row.tokens[:window], kept)
    if row.count <= 0:
        counts["without_targets"] += 1
        return None
    return row


class _Faults:
    """What is wrong with lines: the first of them, and how many there are."""

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
        told = "; ".join(f"line {number}: {reason}" for number, reason in self._first)
        more = self.count - len(self._first)
        return BadFormat(
            f"{self.count} of {lines} lines of {name} cannot be learnt: {told}"
            + (f"; and {more} more" if more else ""),
            file=source if isinstance(source, str) else None,
            line=self._first[0][0],
            value=self._first[0][1],
        )


def _nothing(name: str, counts: dict[str, int]) -> str:
    if not counts["lines"]:
        return f"{name} is empty: there is nothing to learn"
    return (
        f"none of the {counts['lines']} lines of {name} has a token to learn: of each, the prompt "
        "takes all tokens"
    )
